//! Nodes with agents, pods on them, and what must pass between two of them.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use osmia_lab::{Lab, OUTSIDE_V4, OUTSIDE_V6, Options, Pod, Probe, Proto, Space};
use serde_json::Value;

use crate::exchange::Way;

/// Longer than any pod's MTU, and no multiple of what a fragment holds.
const LONG: usize = 5_003;
const UDP_HEADER: usize = 8;

pub(crate) struct Stage {
    pub(crate) lab: Lab,
}

impl Stage {
    pub(crate) fn new(options: Options) -> Self {
        Self::prepared(options, |_| {})
    }

    /// `prepare` runs before the agents start.
    pub(crate) fn prepared(options: Options, prepare: impl FnOnce(&Lab)) -> Self {
        let lab = Lab::build(options).expect("a lab");
        prepare(&lab);
        lab.start_agents().expect("agents");
        Self { lab }
    }

    pub(crate) fn pod(&self, node: usize, name: &str) -> Pod {
        self.lab.add_pod(node, name).unwrap_or_else(|err| panic!("{err:#}; {}", self.story()))
    }

    /// Streams, echo requests, datagrams that just fit, ones that the sender's kernel cuts and ones that it hands on in one piece arrive as from `seen`.
    pub(crate) fn passes(&self, way: &Way<'_>, mtu: usize, seen: IpAddr) {
        self.streams(way, mtu, seen);
        let probe = Probe {
            proto: Proto::Icmp,
            from: way.from,
            to: way.to,
            destination: way.destination,
            patience: Duration::from_secs(3),
        };
        let outcome = probe.run().expect("sockets").complete(seen);
        outcome.unwrap_or_else(|why| self.fail(way, "echo", &why));
    }

    /// [`Self::passes`] without echo requests.
    pub(crate) fn streams(&self, way: &Way<'_>, mtu: usize, seen: IpAddr) {
        let header = if way.destination.is_ipv4() { 20 } else { 40 };
        let outcomes = [
            ("a stream", way.stream()),
            ("a datagram that just fits", way.datagram(mtu - header - UDP_HEADER)),
            ("a datagram one byte too long", way.datagram(mtu - header - UDP_HEADER + 1)),
            ("a long datagram", way.datagram(LONG)),
            ("datagrams in one piece", way.segmented()),
        ];
        for (what, outcome) in outcomes {
            match outcome {
                Ok(peer) if peer == seen => {}
                Ok(peer) => self.fail(way, what, &format!("arrived as from {peer}, not {seen}")),
                Err(err) => self.fail(way, what, &format!("{err:#}")),
            }
        }
    }

    /// Everything between two pods, their nodes and the outside host, each seen as who it is, the outside by the node's address.
    pub(crate) fn all_pass(&self, (a, b): (&Pod, &Pod), v6: bool, mtu: usize) {
        let address = |pod: &Pod| pod.address(v6).expect("an address of the family");
        self.between(a, b, v6, mtu);
        let home = &self.lab.nodes[a.node];
        let other = &self.lab.nodes[b.node];
        for node in [home, other] {
            self.passes(&Way::plain(&a.space, &node.space, node.address(v6)), mtu, address(a));
            self.passes(&Way::plain(&node.space, &a.space, address(a)), mtu, node.address(v6));
        }
        let outside = if v6 { OUTSIDE_V6.into() } else { OUTSIDE_V4.into() };
        self.passes(&Way::plain(&a.space, &self.lab.lan.outside, outside), mtu, home.address(v6));
    }

    /// Both ways between two pods.
    pub(crate) fn between(&self, a: &Pod, b: &Pod, v6: bool, mtu: usize) {
        let address = |pod: &Pod| pod.address(v6).expect("an address of the family");
        self.passes(&Way::plain(&a.space, &b.space, address(b)), mtu, address(a));
        self.passes(&Way::plain(&b.space, &a.space, address(a)), mtu, address(b));
    }

    fn fail(&self, way: &Way<'_>, what: &str, why: &str) -> ! {
        let (from, to) = (way.from.name(), way.to.name());
        panic!("{what} from {from} to {to}, {}: {why}; {}", way.destination, self.story())
    }

    /// What the command line tool says of every node.
    pub(crate) fn story(&self) -> String {
        let mut text = String::new();
        for node in &self.lab.nodes {
            for arguments in [&["drop"][..], &["flow", "list"]] {
                let said = node.osmia(arguments).map_or_else(|err| format!("{err:#}"), |ended| ended.text());
                text += &format!("\n== {} {}\n{said}", node.name, arguments.join(" "));
            }
        }
        text
    }
}

/// MTU of the pod's `eth0`, bytes, as its kernel has it.
pub(crate) fn mtu(space: &Space) -> usize {
    let text = space.output(Command::new("ip").args(["-json", "link", "show", "eth0"])).expect("a link");
    let links: Value = serde_json::from_str(&text).expect("JSON");
    let mtu = links.pointer("/0/mtu").and_then(Value::as_u64).expect("an MTU");
    usize::try_from(mtu).expect("a small number")
}
