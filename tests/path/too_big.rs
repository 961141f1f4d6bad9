//! A path that takes less than the pod's link: the pod is told, and sends what passes.

use std::net::IpAddr;

use osmia_lab::packet::Ip;
use osmia_lab::{Proto, Underlay, packet::Injector};
use osmia_maps::layout::{DropReason, Stat};

use crate::bench::{Bench, Carry, Pod};
use crate::datagram;
use crate::icmp_listener::IcmpListener;

/// Pods whose links take 1500 bytes, over a way that takes 1400.
fn narrow(underlay: Underlay, carry: Carry) -> (Bench, Pod, Pod) {
    let mut bench = Bench::new(underlay, carry).expect("a bench");
    let a = bench.pod(0, "a").expect("pod a");
    let b = bench.pod(1, "b").expect("pod b");
    for (pod, node) in [(&a, 0), (&b, 1)] {
        bench.lab.nodes[node].space.ip(&format!("link set {} mtu 1500\n", pod.link)).expect("a larger MTU");
        pod.space.ip("link set eth0 mtu 1500\n").expect("a larger MTU");
        let row = bench.planes[node].node_row(2).expect("its row");
        bench.planes[node].node(2, &osmia_maps::layout::Node { mtu: 1400, ..row }).expect("a narrow way");
    }
    (bench, a, b)
}

fn learns(underlay: Underlay, carry: Carry) {
    let (bench, a, b) = narrow(underlay, carry);
    for v6 in [false, true] {
        // Datagrams first: the first one is too long, those after it come in pieces.
        let (arrived, peer) = datagram::long(&a.space, &b.space, b.address(v6), 1460, 4).expect("sockets");
        assert!(
            (3..=4).contains(&arrived) && peer == Some(a.address(v6)),
            "{arrived} from {peer:?}; {}",
            bench.story()
        );
        bench.passes(Proto::Tcp, &a.space, &b.space, b.address(v6), a.address(v6));
        let mut get = std::process::Command::new("ip");
        let route = a.space.output(get.args(["route", "get", &b.address(v6).to_string()])).expect("ip");
        assert!(route.contains("mtu 1400"), "{route}");
    }
    assert!(bench.stat(0, Stat::TooBigSent).expect("a count") >= 2);
}

#[test]
fn passing_wire() {
    learns(Underlay::Passing, Carry::Tunnel4);
}

#[test]
fn segmenting_wire() {
    learns(Underlay::Segmenting, Carry::Tunnel6);
}

#[test]
fn natively() {
    learns(Underlay::Segmenting, Carry::Native);
}

/// The node's own sockets, and what its stack forwards, are no pods: they are told through the door.
#[test]
fn the_node_learns_as_its_pods_do() {
    for (underlay, carry) in [(Underlay::Passing, Carry::Tunnel4), (Underlay::Segmenting, Carry::Native)] {
        let (bench, _, b) = narrow(underlay, carry);
        let node = &bench.lab.nodes[0];
        for v6 in [false, true] {
            let (arrived, peer) = datagram::long(&node.space, &b.space, b.address(v6), 1390, 4).expect("sockets");
            assert!(
                (3..=4).contains(&arrived) && peer == Some(node.address(v6)),
                "{arrived} from {peer:?}; {}",
                bench.story()
            );
            bench.passes(Proto::Tcp, &node.space, &b.space, b.address(v6), node.address(v6));
            let mut get = std::process::Command::new("ip");
            let route = node.space.output(get.args(["route", "get", &b.address(v6).to_string()])).expect("ip");
            assert!(route.contains("mtu 1400"), "{route}");
        }
        assert_eq!(bench.dropped(0, DropReason::TooBig).expect("a count"), 0, "{}", bench.story());
    }
}

/// Without DF as well: what does not pass must not vanish without a word.
#[test]
fn the_answer_quotes_the_packet_and_comes_from_the_gateway() {
    let (bench, a, b) = narrow(Underlay::Passing, Carry::Tunnel4);
    for v6 in [false, true] {
        let listener = IcmpListener::inside(&a.space, v6).expect("a socket");
        let packet = Ip::new(a.address(v6), b.address(v6)).udp(4000, 5000, &[7; 1440]);
        Injector::inside(&a.space).and_then(|i| i.send(&packet, b.address(v6))).expect("sent");
        let (kind, code) = if v6 { (2, 0) } else { (3, 4) };
        let message = listener.wait(kind, code).unwrap_or_else(|| panic!("no answer; {}", bench.story()));
        assert_eq!(message[4..8], 1400_u32.to_be_bytes());
        let header = if v6 { 40 } else { 20 };
        // The kernel fills identification and checksum of what it is handed raw, so addresses on are compared.
        let from = if v6 { 8 } else { 12 };
        assert_eq!(message[8 + from..8 + header + 20], packet[from..header + 20]);
    }
}

#[test]
fn a_pod_gets_its_share_a_second() {
    let (bench, a, b) = narrow(Underlay::Passing, Carry::Tunnel4);
    let packet = Ip::new(a.v4, b.v4).udp(4000, 5000, &[7; 1440]);
    let injector = Injector::inside(&a.space).expect("a socket");
    for _ in 0..200 {
        injector.send(&packet, IpAddr::V4(b.v4)).expect("sent");
    }
    let sent = bench.stat(0, Stat::TooBigSent).expect("a count");
    let limited = bench.dropped(0, DropReason::TooBigLimited).expect("a count");
    // The 200 may fall into two seconds, or three on a machine that is busy.
    assert!((10..=30).contains(&sent) && sent + limited == 200, "{sent} sent, {limited} limited");
}
