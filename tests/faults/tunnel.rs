//! What comes in from the wire and claims to be of a pod: tunnel packets that no node wrote, and packets with our own addresses.

use std::net::{IpAddr, Ipv4Addr};

use osmia_lab::packet::{Injector, Ip, frame};
use osmia_lab::{Encap, Lab, Node, OUTSIDE_V4, Options, Pod, Space};

use crate::stage::{dropped, lab, pod, receiver, story};

const PORT: u16 = 4789;
const VNI: u32 = 1;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

struct Stage {
    lab: Lab,
    here: Pod,
    there: Pod,
}

impl Stage {
    fn new() -> Self {
        let lab = lab(Options { encap: Encap::Vxlan, ..Options::default() });
        let (here, there) = (pod(&lab, 0, "here"), pod(&lab, 1, "there"));
        Self { lab, here, there }
    }

    fn node(&self) -> &Node {
        &self.lab.nodes[0]
    }

    /// A packet that must not arrive at `here`, sent inside `space` to `destination`, and the reason that counts it at n1.
    fn refused(&self, space: &Space, destination: IpAddr, reason: &str, packet: impl Fn(u16) -> Vec<u8>) {
        let (socket, port) = receiver(&self.here.space, self.here.address(false).unwrap());
        let before = dropped(self.node(), reason);
        Injector::inside(space).unwrap().send(&packet(port), destination).unwrap();
        let mut buffer = [0; 64];
        let arrived = socket.recv_from(&mut buffer);
        assert!(arrived.is_err(), "{reason} from {}: it arrived: {arrived:?}", space.name());
        assert_eq!(dropped(self.node(), reason) - before, 1, "{reason} from {}; {}", space.name(), story(self.node()));
    }

    /// A tunnel packet of `outer` around one of `inner` to `here`.
    fn wrapped(&self, outer: Ipv4Addr, inner: Ipv4Addr, port: u16) -> Vec<u8> {
        let inner = Ip::new(inner, self.here.v4.unwrap()).udp(4000, port, b"forged");
        Ip::new(outer, self.node().v4()).vxlan(50_000, PORT, VNI, &frame(MAC, MAC, &inner))
    }
}

#[test]
fn tunnel_packets_that_no_node_wrote_arrive_nowhere() {
    let stage = Stage::new();
    let (here, there) = (stage.here.v4.unwrap(), stage.there.v4.unwrap());
    let (n1, n2) = (stage.lab.nodes[0].v4(), stage.lab.nodes[1].v4());
    for alive in [true, false] {
        if !alive {
            stage.node().kill_agent().unwrap();
        }
        // Else what follows proves nothing: the same packet of the node whose pod it is arrives.
        let (socket, port) = receiver(&stage.here.space, here.into());
        let node = &stage.lab.nodes[1].space;
        Injector::inside(node).unwrap().send(&stage.wrapped(n2, there, port), n1.into()).unwrap();
        assert_eq!(socket.recv_from(&mut [0; 64]).unwrap().1.ip(), IpAddr::from(there), "{}", story(stage.node()));

        let outside = &stage.lab.lan.outside;
        stage.refused(outside, n1.into(), "TUNNEL_SPOOF", |port| stage.wrapped(OUTSIDE_V4, there, port));
        // Of another node's pod that is not there, of one of this node, of nobody in the cluster, of somebody outside.
        let foreign = [[10, 244, 9, 9], here.octets(), [10, 244, 200, 1], [198, 51, 100, 7]];
        for inner in foreign.map(Ipv4Addr::from) {
            stage.refused(node, n1.into(), "TUNNEL_SPOOF", |port| stage.wrapped(n2, inner, port));
        }
        stage.refused(&stage.here.space, n1.into(), "TUNNEL_FROM_POD", |port| stage.wrapped(here, there, port));
    }
}

#[test]
fn our_own_addresses_are_no_sources_on_the_wire() {
    let stage = Stage::new();
    let (lab, here, n1) = (&stage.lab, stage.here.v4.unwrap(), stage.node().v4());
    lab.lan.router.sysctl(&[("net/ipv4/conf/all/rp_filter", "0"), ("net/ipv4/conf/outside/rp_filter", "0")]).unwrap();
    lab.lan.router.ip(&format!("route add 10.244.1.0/24 via {n1}\n")).unwrap();
    let sibling = pod(lab, 0, "sibling").v4.unwrap();
    let outside = &lab.lan.outside;
    let plain = |source: Ipv4Addr| move |port| Ip::new(source, here).udp(4000, port, b"forged");
    stage.refused(outside, here.into(), "MARTIAN", plain(sibling));
    stage.refused(outside, here.into(), "MARTIAN", plain(n1));
    stage.refused(outside, here.into(), "UNOWNED", plain([10, 244, 200, 1].into()));
    // A pod of the other node, whose packets come in the tunnel.
    stage.refused(outside, here.into(), "TUNNEL_SPOOF", plain(stage.there.v4.unwrap()));
    // And who is nobody of the cluster does arrive.
    let (socket, port) = receiver(&stage.here.space, here.into());
    Injector::inside(outside).unwrap().send(&plain(OUTSIDE_V4)(port), here.into()).unwrap();
    assert_eq!(socket.recv_from(&mut [0; 64]).unwrap().1.ip(), IpAddr::from(OUTSIDE_V4), "{}", story(stage.node()));
}
