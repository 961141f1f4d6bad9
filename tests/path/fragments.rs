//! Datagrams longer than the pod's link, so that its kernel cuts them.

use std::net::Ipv4Addr;

use osmia_lab::packet::{Injector, Ip};
use osmia_lab::{OUTSIDE_V4, OUTSIDE_V6, Space, Underlay};
use osmia_maps::layout::{DropReason, Stat};

use crate::bench::{Bench, Carry};
use crate::datagram;

/// More than two pieces.
const LENGTH: usize = 5000;

fn arrive(underlay: Underlay, carry: Carry) {
    let mut bench = Bench::new(underlay, carry).expect("a bench");
    let a = bench.pod(0, "a").expect("pod a");
    let near = bench.pod(0, "near").expect("a pod beside it");
    let far = bench.pod(1, "far").expect("a pod far away");
    for v6 in [false, true] {
        let outside = if v6 { OUTSIDE_V6.into() } else { OUTSIDE_V4.into() };
        let node = bench.lab.nodes[0].address(v6);
        for (to, destination, seen) in [
            (&near.space, near.address(v6), a.address(v6)),
            (&far.space, far.address(v6), a.address(v6)),
            (&bench.lab.nodes[0].space, node, a.address(v6)),
            (&bench.lab.nodes[1].space, bench.lab.nodes[1].address(v6), a.address(v6)),
            (&bench.lab.lan.outside, outside, node),
        ] {
            let (arrived, peer) = datagram::long(&a.space, to, destination, LENGTH, 5).expect("sockets");
            assert_eq!((arrived, peer), (5, Some(seen)), "to {destination}; {}", bench.story());
        }
        let node_to_far =
            datagram::long(&bench.lab.nodes[0].space, &far.space, far.address(v6), LENGTH, 5).expect("sockets");
        assert_eq!(node_to_far.0, 5, "node to {}; {}", far.address(v6), bench.story());
    }
    assert!(bench.stat(0, Stat::FragmentFollowed).expect("a count") > 0);
}

#[test]
fn natively() {
    arrive(Underlay::Passing, Carry::Native);
}

#[test]
fn in_tunnels() {
    arrive(Underlay::Segmenting, Carry::Tunnel4);
    arrive(Underlay::Passing, Carry::Tunnel6);
}

#[test]
fn a_later_fragment_before_its_first_passes_where_no_port_is_rewritten() {
    let mut bench = Bench::new(Underlay::Passing, Carry::Tunnel4).expect("a bench");
    let a = bench.pod(0, "a").expect("pod a");
    let near = bench.pod(0, "near").expect("a pod beside it");
    let far = bench.pod(1, "far").expect("a pod far away");
    let later = |destination: Ipv4Addr| {
        let mut packet = Ip::new(a.v4, destination).packet(17, &[7; 64]);
        // The last fragment of some datagram: identification 0x4321, offset 1480.
        packet[4..8].copy_from_slice(&[0x43, 0x21, 0, 185]);
        Injector::inside(&a.space).and_then(|i| i.send(&packet, destination.into())).expect("sent");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    for pod in [&near, &far] {
        let (loose, got) = (bench.stat(0, Stat::FragmentLoose).expect("a count"), reassembling(&pod.space));
        later(pod.v4);
        assert_eq!(bench.stat(0, Stat::FragmentLoose).expect("a count"), loose + 1, "{}", bench.story());
        assert_eq!(reassembling(&pod.space), got + 1, "the pod's kernel waits for the rest; {}", bench.story());
    }
    later(OUTSIDE_V4);
    assert_eq!(bench.dropped(0, DropReason::FragNoFirst).expect("a count"), 1, "{}", bench.story());
}

/// Fragments that a namespace was asked to put together.
fn reassembling(space: &Space) -> u64 {
    let text = space.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).expect("inside").expect("a file");
    let mut lines = text.lines().filter(|l| l.starts_with("Ip:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.split(' ').position(|n| n == "ReasmReqds").expect("a counter of that name");
    values.split(' ').nth(at).and_then(|v| v.parse().ok()).expect("a number")
}
