//! Both families on a wire that segments when sending and merges when receiving.

use osmia_lab::{Encap, Options, Underlay};

use crate::stage::{Stage, mtu};

fn all_pass(encap: Encap, expected: usize) {
    let stage = Stage::new(Options { encap, underlay: Underlay::Segmenting, ..Options::default() });
    let (a, b) = (stage.pod(0, "a"), stage.pod(1, "b"));
    assert_eq!((mtu(&a.space), mtu(&b.space)), (expected, expected));
    for v6 in [false, true] {
        stage.all_pass((&a, &b), v6, expected);
    }
}

#[test]
fn everything_passes_a_segmenting_wire_as_it_is() {
    all_pass(Encap::Native, 1500);
}

#[test]
fn everything_passes_a_segmenting_wire_in_the_tunnel() {
    all_pass(Encap::Vxlan, 1450);
}
