//! Nodes whose address or uplink MTU changes while pods talk.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use osmia_lab::load::Stream;
use osmia_lab::{Capture, Encap, Lab, Options, Pod, UPLINK};

use crate::exchange::Exchange;
use crate::stage::{becomes, lab, pod, story};

/// A second address of n2 in its subnet.
const NEW: Ipv4Addr = Ipv4Addr::new(172, 30, 1, 77);

struct Flows {
    exchange: Exchange,
    stream: Stream,
}

impl Flows {
    fn start(a: &Pod, b: &Pod) -> Self {
        let at = |pod: &Pod| pod.address(false).unwrap();
        let exchange = Exchange::start((&a.space, at(a)), (&b.space, at(b)));
        Self { exchange, stream: Stream::start(&b.space, &a.space, at(a), 4_000_000).unwrap() }
    }

    /// Both go on right now.
    fn go_on(&self, when: &str, lab: &Lab) {
        let before = self.stream.received();
        thread::sleep(Duration::from_millis(500));
        let moved = self.stream.received() - before;
        let story = || lab.nodes.iter().map(story).collect::<String>();
        assert!(moved > 500_000, "{when}: the stream moved {moved} bytes in half a second; {}", story());
    }
}

fn changes_its_address(encap: Encap, lost: u64) {
    let mut lab = lab(Options { encap, ..Options::default() });
    let (a, b) = (pod(&lab, 0, "a"), pod(&lab, 1, "b"));
    let flows = Flows::start(&a, &b);
    flows.go_on("before", &lab);
    let old = lab.nodes[1].v4();
    lab.nodes[1]
        .space
        .ip(&format!(
            "address add {NEW}/32 dev {UPLINK}
route add 172.30.1.0/24 dev {UPLINK} src {NEW} metric 50
route add default via 172.30.1.254 src {NEW} metric 50
"
        ))
        .unwrap();
    lab.nodes[1].manifest.addresses[0] = NEW.into();
    lab.announce(1).unwrap();
    thread::sleep(Duration::from_millis(1000));
    lab.nodes[1].space.ip(&format!("address del {old}/24 dev {UPLINK}\n")).unwrap();
    flows.go_on("without the old address", &lab);
    let capture = Capture::start(&lab.lan.bridges).unwrap();
    flows.go_on("some time after", &lab);
    flows.stream.finish().unwrap();
    let exchanged = flows.exchange.finish();
    let story = || lab.nodes.iter().map(story).collect::<String>();
    assert!(exchanged.missing <= lost && exchanged.strange == 0, "{encap:?}: {exchanged:?}; {}", story());
    let seen = capture.finish().unwrap();
    if encap == Encap::Vxlan {
        let outer = (IpAddr::from(lab.nodes[0].v4()), IpAddr::from(NEW));
        assert!(seen.keys().any(|s| s.outer == outer && s.inner.is_some()), "{seen:?}");
        assert!(!seen.keys().any(|s| s.outer.0 == old || s.outer.1 == old), "{seen:?}");
    }
}

#[test]
fn a_node_changes_its_address_natively() {
    changes_its_address(Encap::Native, 0);
}

/// Between the moments at which the two nodes learn it, a few are lost: each believes only what it knows.
#[test]
fn a_node_changes_its_address_under_the_tunnel() {
    changes_its_address(Encap::Vxlan, 250);
}

fn mtu(pod: &Pod) -> u32 {
    let text = pod.space.output(std::process::Command::new("ip").args(["-o", "link", "show", "eth0"])).unwrap();
    let mut words = text.split_whitespace().skip_while(|word| *word != "mtu");
    words.nth(1).unwrap().parse().unwrap()
}

#[test]
fn an_uplinks_new_mtu_is_learnt_and_flows_go_on() {
    let lab = lab(Options::default());
    let (a, b) = (pod(&lab, 0, "a"), pod(&lab, 1, "b"));
    assert_eq!(mtu(&a), 1450);
    let flows = Flows::start(&a, &b);
    for (wire, pods) in [(1400, 1350), (1500, 1450)] {
        for node in &lab.nodes {
            node.space.ip(&format!("link set {UPLINK} mtu {wire}\n")).unwrap();
        }
        let mut count = 0;
        assert!(
            becomes(|| {
                count += 1;
                let new = pod(&lab, 0, &format!("new-{wire}-{count}"));
                mtu(&new) == pods
            }),
            "{}",
            fs::read_to_string(&lab.nodes[0].paths.log).unwrap()
        );
        flows.go_on(&format!("MTU {wire}"), &lab);
    }
    flows.stream.finish().unwrap();
    let exchanged = flows.exchange.finish();
    assert_eq!((exchanged.missing, exchanged.strange), (0, 0), "{exchanged:?}");
}
