//! The node's own stack and pods, here and there, with rp_filter on and forwarding off.

use osmia_lab::{Proto, Underlay};

use crate::bench::{Bench, Carry};
use crate::datagram;

fn both_ways(underlay: Underlay, carry: Carry) {
    let mut bench = Bench::new(underlay, carry).expect("a bench");
    let near = bench.pod(0, "near").expect("a pod of n1");
    let far = bench.pod(1, "far").expect("a pod of n2");
    let filter = std::fs::read_to_string;
    let strict = bench.lab.nodes[0].space.run(|| filter("/proc/sys/net/ipv4/conf/osmia0/rp_filter"));
    assert_eq!(strict.expect("inside").expect("a file").trim(), "1", "else nothing is proved");
    for v6 in [false, true] {
        let [n1, n2] = [0, 1].map(|i| bench.lab.nodes[i].address(v6));
        let [s1, s2] = [0, 1].map(|i| &bench.lab.nodes[i].space);
        for proto in Proto::ALL {
            bench.passes(proto, &near.space, s1, n1, near.address(v6));
            bench.passes(proto, s1, &near.space, near.address(v6), n1);
            bench.passes(proto, &near.space, s2, n2, near.address(v6));
            bench.passes(proto, s1, &far.space, far.address(v6), n1);
        }
        // As long as the pods' MTU lets through in one piece, and longer.
        for length in [1500 - carry.overhead() as usize - if v6 { 48 } else { 28 }, 4000] {
            let (arrived, peer) = datagram::long(s1, &far.space, far.address(v6), length, 3).expect("sockets");
            assert_eq!((arrived, peer), (3, Some(n1)), "{length} bytes to {}; {}", far.address(v6), bench.story());
        }
        for proto in [Proto::Tcp, Proto::Udp] {
            bench.passes(proto, s2, &near.space, near.address(v6), n2);
        }
    }
}

#[test]
fn natively() {
    both_ways(Underlay::Passing, Carry::Native);
    both_ways(Underlay::Segmenting, Carry::Native);
}

#[test]
fn in_v4_tunnels() {
    both_ways(Underlay::Passing, Carry::Tunnel4);
    both_ways(Underlay::Segmenting, Carry::Tunnel4);
}

#[test]
fn in_v6_tunnels() {
    both_ways(Underlay::Passing, Carry::Tunnel6);
    both_ways(Underlay::Segmenting, Carry::Tunnel6);
}
