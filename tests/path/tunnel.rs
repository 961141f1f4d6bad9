//! VXLAN written and read by our programs: four pairs of families, on a wire that passes GSO and on one that segments and merges.

use osmia_lab::{Capture, Proto, Underlay};
use osmia_maps::layout::{DropReason, Stat};

use crate::bench::{Bench, Carry, Pod, probe};
use crate::datagram;

fn nodes(underlay: Underlay, carry: Carry) -> (Bench, Pod, Pod) {
    let mut bench = Bench::new(underlay, carry).expect("a bench");
    let a = bench.pod(0, "a").expect("pod a");
    let b = bench.pod(1, "b").expect("pod b");
    (bench, a, b)
}

/// Every protocol, both families, both ways, and datagrams that the sender hands over in one piece of many.
fn all_pass(bench: &Bench, a: &Pod, b: &Pod) {
    for v6 in [false, true] {
        for proto in Proto::ALL {
            bench.passes(proto, &a.space, &b.space, b.address(v6), a.address(v6));
            bench.passes(proto, &b.space, &a.space, a.address(v6), b.address(v6));
        }
        let arrived = datagram::segmented(&a.space, &b.space, b.address(v6)).expect("sockets");
        assert_eq!(arrived, datagram::SEGMENTS, "UDP GSO, IPv6 {v6}; {}", bench.story());
    }
}

fn through(underlay: Underlay, carry: Carry) {
    let (bench, a, b) = nodes(underlay, carry);
    let capture = Capture::start(&bench.lab.lan.bridges).expect("a capture");
    all_pass(&bench, &a, &b);
    let seen = capture.finish().expect("what it saw");
    let pods = [a.address(false), a.address(true), b.address(false), b.address(true)];
    let plain = seen.keys().filter(|s| s.inner.is_none() && pods.contains(&s.outer.0)).count();
    let inside = seen.keys().filter(|s| s.inner.is_some_and(|(src, _)| pods.contains(&src))).count();
    assert_eq!((plain, inside), (0, 4), "{seen:?}");
    assert!(bench.stat(0, Stat::ForwardTunnel).expect("a count") > 0);
    assert!(bench.stat(1, Stat::Decapsulated).expect("a count") > 0);
}

#[test]
fn v4_outer_passing() {
    through(Underlay::Passing, Carry::Tunnel4);
}

#[test]
fn v4_outer_segmenting() {
    through(Underlay::Segmenting, Carry::Tunnel4);
}

#[test]
fn v6_outer_passing() {
    through(Underlay::Passing, Carry::Tunnel6);
}

#[test]
fn v6_outer_segmenting() {
    through(Underlay::Segmenting, Carry::Tunnel6);
}

#[test]
fn checksums_finished_by_the_sender_are_kept() {
    for carry in [Carry::Tunnel4, Carry::Tunnel6] {
        let (bench, a, b) = nodes(Underlay::Passing, carry);
        for node in &bench.lab.nodes {
            let mut off = std::process::Command::new("ethtool");
            node.space.output(off.args(["-K", "eth0", "tx", "off"])).expect("ethtool");
        }
        for v6 in [false, true] {
            for proto in Proto::ALL {
                bench.passes(proto, &a.space, &b.space, b.address(v6), a.address(v6));
            }
        }
    }
}

#[test]
fn udp_gso_that_arrives_whole_is_unpacked_by_the_device() {
    let (bench, a, b) = nodes(Underlay::Passing, Carry::Tunnel4);
    let arrived = datagram::segmented(&a.space, &b.space, b.address(false)).expect("sockets");
    assert_eq!(arrived, datagram::SEGMENTS, "{}", bench.story());
    assert!(bench.stat(1, Stat::DecapsulatedDevice).expect("a count") > 0);
}

#[test]
fn a_pods_own_tunnel_goes_by_the_device() {
    for carry in [Carry::Tunnel4, Carry::Tunnel6] {
        let (bench, a, b) = nodes(Underlay::Passing, carry);
        for (this, other, number) in [(&a, &b, 1), (&b, &a, 2)] {
            let lines = format!(
                "link add own type vxlan id 7 local {} remote {} dstport 4790 dev eth0\nlink set own mtu 1300 up\naddress add 172.20.0.{number}/24 dev own\n",
                this.v4, other.v4
            );
            this.space.ip(&lines).expect("a tunnel of the pod's own");
        }
        let (from, to) = ([172, 20, 0, 1], [172, 20, 0, 2]);
        for proto in Proto::ALL {
            bench.passes(proto, &a.space, &b.space, to.into(), from.into());
        }
        assert!(bench.stat(0, Stat::EncapsulatedDevice).expect("a count") > 0, "{}", bench.story());
    }
}

#[test]
fn a_pod_can_not_speak_to_a_nodes_tunnel_port() {
    let (bench, a, _b) = nodes(Underlay::Passing, Carry::Tunnel4);
    for node in 0..2 {
        let before = bench.dropped(0, DropReason::TunnelFromPod).expect("a count");
        let destination = bench.lab.nodes[node].v4().into();
        datagram::send(&a.space, destination, 4789, b"none of yours").expect("a socket");
        let after = bench.dropped(0, DropReason::TunnelFromPod).expect("a count");
        assert_eq!(after, before + 1, "to n{}; {}", node + 1, bench.story());
    }
}

#[test]
fn only_nodes_are_believed_and_only_about_their_own() {
    let (bench, a, b) = nodes(Underlay::Passing, Carry::Tunnel4);
    bench.passes(Proto::Udp, &a.space, &b.space, b.address(false), a.address(false));
    // The outside host writes a tunnel packet of its own; the true node one with a source that is not its own.
    let n2 = bench.lab.nodes[1].v4();
    for (space, inner, reason) in [
        (&bench.lab.lan.outside, a.v4, DropReason::TunnelSpoof),
        (&bench.lab.nodes[0].space, [10, 1, 9, 9].into(), DropReason::TunnelSpoof),
        (&bench.lab.nodes[0].space, b.v4, DropReason::TunnelSpoof),
    ] {
        let before = bench.dropped(1, reason).expect("a count");
        let frame = datagram::inner(inner, b.v4, 4000, 5000, b"forged");
        datagram::send(space, n2.into(), 4789, &datagram::vxlan(1, &frame)).expect("a socket");
        let after = bench.dropped(1, reason).expect("a count");
        assert_eq!(after, before + 1, "{inner} from {}; {}", space.name(), bench.story());
    }
    let before = bench.dropped(1, DropReason::TunnelHeader).expect("a count");
    let frame = datagram::inner(a.v4, b.v4, 4000, 5000, b"another network");
    datagram::send(&bench.lab.nodes[0].space, n2.into(), 4789, &datagram::vxlan(2, &frame)).expect("a socket");
    assert_eq!(bench.dropped(1, DropReason::TunnelHeader).expect("a count"), before + 1);
}

#[test]
fn without_the_other_nodes_row_nothing_passes() {
    let (mut bench, a, b) = nodes(Underlay::Passing, Carry::Tunnel4);
    let row = bench.planes[0].node_row(2).expect("its row");
    bench.planes[0].node(2, &osmia_maps::layout::Node { flags: 0, ..row }).expect("no row");
    let arrival = probe(Proto::Udp, &a.space, &b.space, b.address(false), 1);
    assert!(arrival.nothing_from(a.address(false)), "{arrival:?}");
    assert!(bench.dropped(0, DropReason::NoNode).expect("a count") > 0, "{}", bench.story());
}
