//! What comes in from the wire and claims to be of a pod: tunnel packets that no node wrote, and packets with our own addresses. Each by
//! IPv4 and by IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use osmia_lab::packet::{Injector, Ip, frame};
use osmia_lab::{Encap, Families, Lab, Node, OUTSIDE_V4, OUTSIDE_V6, Options, Pod, Space, UPLINK};

use crate::stage::{dropped, lab, pod, receiver, story};

const PORT: u16 = 4789;
const VNI: u32 = 1;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

struct Stage {
    lab: Lab,
    here: Pod,
    there: Pod,
    /// Family of the pods' packets.
    v6: bool,
    /// Family of the tunnel.
    outer_v6: bool,
}

impl Stage {
    fn new(families: Families, v6: bool) -> Self {
        let lab = lab(Options { encap: Encap::Vxlan, families, ..Options::default() });
        let (here, there) = (pod(&lab, 0, "here"), pod(&lab, 1, "there"));
        Self { lab, here, there, v6, outer_v6: !families.nodes_v4() }
    }

    fn node(&self) -> &Node {
        &self.lab.nodes[0]
    }

    fn at(&self, pod: &Pod) -> IpAddr {
        pod.address(self.v6).unwrap()
    }

    fn pick(&self, v4: [u8; 4], v6: [u16; 8]) -> IpAddr {
        if self.v6 { Ipv6Addr::from(v6).into() } else { Ipv4Addr::from(v4).into() }
    }

    /// A packet that must not arrive at `here`, sent inside `space` to `destination`, and the reason that counts it at n1.
    fn refused(&self, space: &Space, destination: IpAddr, reason: &str, packet: impl Fn(u16) -> Vec<u8>) {
        let (socket, port) = receiver(&self.here.space, self.at(&self.here));
        let before = dropped(self.node(), reason);
        Injector::inside(space).unwrap().send(&packet(port), destination).unwrap();
        let mut buffer = [0; 64];
        let arrived = socket.recv_from(&mut buffer);
        assert!(arrived.is_err(), "{reason} from {}: it arrived: {arrived:?}", space.name());
        assert_eq!(dropped(self.node(), reason) - before, 1, "{reason} from {}; {}", space.name(), story(self.node()));
    }

    /// The same packet, of whom it may be, arrives: else what is refused proves nothing.
    fn taken(&self, space: &Space, destination: IpAddr, from: IpAddr, packet: impl Fn(u16) -> Vec<u8>) {
        let (socket, port) = receiver(&self.here.space, self.at(&self.here));
        Injector::inside(space).unwrap().send(&packet(port), destination).unwrap();
        let arrived = socket.recv_from(&mut [0; 64]).map(|(_, peer)| peer.ip());
        assert_eq!(arrived.ok(), Some(from), "{}", story(self.node()));
    }

    /// A tunnel packet from `outer` to `node` around one of `inner` to `here`.
    fn wrapped(&self, outer: IpAddr, node: IpAddr, inner: IpAddr, port: u16) -> Vec<u8> {
        let inner = Ip::new(inner, self.at(&self.here)).udp(4000, port, b"forged");
        Ip::new(outer, node).vxlan(50_000, PORT, VNI, &frame(MAC, MAC, &inner))
    }
}

/// Tunnel packets that no node wrote arrive nowhere, the agent alive and dead.
fn forged(stage: &Stage) {
    let (here, there) = (stage.at(&stage.here), stage.at(&stage.there));
    let v6 = stage.outer_v6;
    let (n1, n2) = (stage.lab.nodes[0].address(v6), stage.lab.nodes[1].address(v6));
    // n2 has another address, which tells nobody that it is n2's; and so has n1, to which nobody of the cluster sends.
    let (second, other): (IpAddr, IpAddr) = if v6 {
        ([0xfd30, 0, 0, 1, 0, 0, 0, 0x99].into(), [0xfd30, 0, 0, 1, 0, 0, 0, 0x98].into())
    } else {
        ([172, 30, 1, 99].into(), [172, 30, 1, 98].into())
    };
    let (bits, nodad) = if v6 { (128, " nodad") } else { (32, "") };
    for (node, address) in [(1, second), (0, other)] {
        let line = format!("address add {address}/{bits} dev {UPLINK}{nodad}\n");
        stage.lab.nodes[node].space.ip(&line).unwrap();
    }
    for alive in [true, false] {
        if !alive {
            stage.node().kill_agent().unwrap();
        }
        let node = &stage.lab.nodes[1].space;
        stage.taken(node, n1, there, |port| stage.wrapped(n2, n1, there, port));

        // Of a host that is no node, and of a node by an address that is not the cluster's.
        let (outside, stranger): (_, IpAddr) =
            (&stage.lab.lan.outside, if v6 { OUTSIDE_V6.into() } else { OUTSIDE_V4.into() });
        stage.refused(outside, n1, "TUNNEL_SPOOF", |port| stage.wrapped(stranger, n1, there, port));
        stage.refused(node, n1, "TUNNEL_SPOOF", |port| stage.wrapped(second, n1, there, port));
        // To another address of this node, on which the tunnel's device listens as well.
        stage.refused(node, other, "TUNNEL_HEADER", |port| stage.wrapped(n2, other, there, port));
        // Of another node's pod that is not there, of one of this node, of nobody in the cluster, of somebody outside.
        let foreign = [
            stage.pick([10, 244, 9, 9], [0xfd00, 0x10, 0x244, 9, 0, 0, 0, 9]),
            here,
            stage.pick([10, 244, 200, 1], [0xfd00, 0x10, 0x244, 200, 0, 0, 0, 1]),
            stage.pick([198, 51, 100, 7], [0x2001, 0xdb8, 7, 0, 0, 0, 0, 7]),
        ];
        for inner in foreign {
            stage.refused(node, n1, "TUNNEL_SPOOF", |port| stage.wrapped(n2, n1, inner, port));
        }
        // From a pod: to its own node, to the other one, to that one's other address.
        if stage.v6 == v6 {
            for node in [n1, n2, second] {
                let pod = &stage.here.space;
                stage.refused(pod, node, "TUNNEL_FROM_POD", |port| stage.wrapped(here, node, there, port));
            }
        }
    }
}

#[test]
fn tunnel_packets_that_no_node_wrote_arrive_nowhere() {
    forged(&Stage::new(Families::Dual, false));
}

#[test]
fn ipv6_packets_in_a_tunnel_that_no_node_wrote_arrive_nowhere() {
    forged(&Stage::new(Families::Dual, true));
}

#[test]
fn a_tunnel_over_ipv6_believes_nodes_alone() {
    forged(&Stage::new(Families::V6, true));
}

#[test]
fn ipv4_pods_in_a_tunnel_over_ipv6_are_believed_of_nodes_alone() {
    forged(&Stage::new(Families::V4OverV6, false));
}

/// Our own addresses are no sources on the wire.
fn martians(v6: bool) {
    let stage = Stage::new(Families::Dual, v6);
    let (lab, here, n1) = (&stage.lab, stage.at(&stage.here), stage.node().address(v6));
    let (v4, wide) = (stage.node().v4(), stage.node().v6());
    lab.lan.router.sysctl(&[("net/ipv4/conf/all/rp_filter", "0"), ("net/ipv4/conf/outside/rp_filter", "0")]).unwrap();
    let lines = format!("route add 10.244.1.0/24 via {v4}\nroute add fd00:10:244:1::/64 via {wide}\n");
    lab.lan.router.ip(&lines).unwrap();
    let sibling = stage.at(&pod(lab, 0, "sibling"));
    let outside = &lab.lan.outside;
    let plain = |source: IpAddr| move |port| Ip::new(source, here).udp(4000, port, b"forged");
    stage.refused(outside, here, "MARTIAN", plain(sibling));
    stage.refused(outside, here, "MARTIAN", plain(n1));
    let nobody = stage.pick([10, 244, 200, 1], [0xfd00, 0x10, 0x244, 200, 0, 0, 0, 1]);
    stage.refused(outside, here, "UNOWNED", plain(nobody));
    // A pod of the other node, whose packets come in the tunnel.
    stage.refused(outside, here, "TUNNEL_SPOOF", plain(stage.at(&stage.there)));
    // And who is nobody of the cluster does arrive.
    let stranger = if v6 { IpAddr::from(OUTSIDE_V6) } else { OUTSIDE_V4.into() };
    stage.taken(outside, here, stranger, plain(stranger));
}

#[test]
fn our_own_addresses_are_no_sources_on_the_wire() {
    martians(false);
}

#[test]
fn our_own_ipv6_addresses_are_no_sources_on_the_wire() {
    martians(true);
}
