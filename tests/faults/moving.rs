//! Nodes whose address or uplink MTU changes while pods talk.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use osmia_lab::load::Stream;
use osmia_lab::{Capture, Encap, Lab, OUTSIDE_V4, OUTSIDE_V6, Options, Pod, Subnet, UPLINK};

use crate::exchange::Exchange;
use crate::stage::{becomes, counted, dropped, lab, pod, story};

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
    let text = pod.space.output(Command::new("ip").args(["-o", "link", "show", "eth0"])).unwrap();
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

const PATIENCE: Duration = Duration::from_secs(3);
/// What fills a link of 1500 bytes, less than the headers of a datagram.
const LARGE: usize = 1440;

/// A connection out of the cluster, which the next byte goes over.
fn connected(pod: &Pod, lab: &Lab, outside: IpAddr) -> (TcpStream, TcpStream) {
    let listener = lab.lan.outside.run(|| TcpListener::bind((outside, 0))).unwrap().unwrap();
    let target = listener.local_addr().unwrap();
    let mut near = pod.space.run(|| TcpStream::connect_timeout(&target, PATIENCE)).unwrap().unwrap();
    let (mut far, _) = listener.accept().unwrap();
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    for _ in 0..5 {
        near.write_all(b"?").unwrap();
        far.read_exact(&mut [0]).unwrap();
    }
    (near, far)
}

/// An uplink that takes less than its pods' links do, which nobody changes any more: the kernel answers the question for the way out with
/// "too long", which is no missing route.
#[test]
fn pods_learn_that_their_uplink_takes_less() {
    let lab = lab(Options { encap: Encap::Native, nodes: vec![Subnet::Near], ..Options::default() });
    let node = &lab.nodes[0];
    let client = pod(&lab, 0, "client");
    assert_eq!(mtu(&client), 1500);
    // So that a full segment is a packet of its own.
    let off = ["-K", "eth0", "gso", "off", "tso", "off", "tx-udp-segmentation", "off"];
    client.space.output(Command::new("ethtool").args(off)).unwrap();
    let outside = [IpAddr::from(OUTSIDE_V4), OUTSIDE_V6.into()];
    let mut living = outside.map(|outside| connected(&client, &lab, outside));
    let flow = outside.map(|outside| {
        let answering = lab.lan.outside.run(|| UdpSocket::bind((outside, 0))).unwrap().unwrap();
        answering.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let asking =
            client.space.run(|| UdpSocket::bind((client.address(outside.is_ipv6()).unwrap(), 0))).unwrap().unwrap();
        asking.connect(answering.local_addr().unwrap()).unwrap();
        (asking, answering)
    });
    node.space.ip(&format!("link set {UPLINK} mtu 1400\n")).unwrap();
    let mut count = 0;
    assert!(becomes(|| {
        count += 1;
        mtu(&pod(&lab, 0, &format!("new-{count}"))) == 1400
    }));
    for (outside, (asking, answering)) in outside.into_iter().zip(flow) {
        // The first is too long, and a new flow; the pod's kernel tells its socket at the next; those after it come in pieces.
        let mut arrived = 0;
        for _ in 0..5 {
            let sent = asking.send(&[7; LARGE]).is_ok();
            arrived += u32::from(sent && answering.recv(&mut [0; LARGE]).is_ok_and(|length| length == LARGE));
        }
        assert!(arrived >= 3, "{arrived} datagrams to {outside}; {}", story(node));
        let route = client.space.output(Command::new("ip").args(["route", "get", &outside.to_string()])).unwrap();
        assert!(route.contains("mtu 1400"), "{route}");
    }
    // What the pod has learnt so far is for datagrams as well: it forgets it, so that the connections go on with a full segment.
    for v6 in ["-4", "-6"] {
        client.space.output(Command::new("ip").args([v6, "route", "flush", "cache"])).unwrap();
    }
    for (outside, (near, far)) in outside.into_iter().zip(&mut living) {
        near.write_all(&[7; 4 * LARGE]).unwrap();
        far.read_exact(&mut [0; 4 * LARGE])
            .unwrap_or_else(|err| panic!("the connection to {outside}: {err}; {}", story(node)));
    }
    assert!(counted(node, "too_big_sent") >= 2);
    assert_eq!(dropped(node, "NO_ROUTE"), 0, "{}", story(node));
}
