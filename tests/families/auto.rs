//! Two subnets: as they are inside one, in the tunnel across.

use std::collections::BTreeMap;

use osmia_lab::{Capture, Encap, Options, Pair, Seen, Subnet, Underlay};

use crate::stage::{Stage, mtu};

/// How many packets between these two went as they are, and how many in VXLAN between these nodes.
fn counts(seen: &BTreeMap<Seen, usize>, pods: Pair, nodes: Pair) -> (usize, usize) {
    let sum = |wanted: &dyn Fn(&Seen) -> bool| seen.iter().filter(|(kind, _)| wanted(kind)).map(|(_, n)| n).sum();
    (sum(&|kind| kind.outer == pods), sum(&|kind| kind.inner == Some(pods) && kind.outer == nodes))
}

#[test]
fn a_subnet_sees_plain_packets_and_the_router_tunnelled_ones() {
    let nodes = vec![Subnet::Near, Subnet::Near, Subnet::Far];
    let stage = Stage::new(Options { encap: Encap::Auto, nodes, underlay: Underlay::Segmenting, ..Options::default() });
    let pods = [stage.pod(0, "a"), stage.pod(1, "near"), stage.pod(2, "far")];
    let capture = Capture::start(&stage.lab.lan.bridges).expect("a capture");
    for v6 in [false, true] {
        for other in [1, 2] {
            let mtu = mtu(&pods[0].space);
            assert_eq!(mtu, 1450, "room for the header of {}", pods[other].name);
            stage.between(&pods[0], &pods[other], v6, mtu);
        }
    }
    let seen = capture.finish().expect("frames");
    let node = |index: usize| stage.lab.nodes[index].address(false);
    for v6 in [false, true] {
        let pod = |index: usize| pods[index].address(v6).expect("an address");
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
            let (plain, tunnelled) = counts(&seen, (pod(from), pod(to)), (node(from), node(to)));
            let across = from == 2 || to == 2;
            let (right, wrong) = if across { (tunnelled, plain) } else { (plain, tunnelled) };
            assert!(right > 0 && wrong == 0, "{from} to {to}, v6={v6}: {plain} plain, {tunnelled} tunnelled");
        }
    }
}
