//! Nodes of one family, and pods of IPv4 on nodes of IPv6.

use std::net::IpAddr;
use std::time::Duration;

use osmia_lab::{Capture, Encap, Families, Lab, OUTSIDE_V4, OUTSIDE_V6, Options, Pod, Probe, Proto};

use crate::stage::{Stage, mtu};

fn options(families: Families, encap: Encap) -> Options {
    Options { families, encap, ..Options::default() }
}

/// A pod has the family and not the other one.
fn has_only(pod: &Pod, v6: bool) {
    assert_eq!((pod.v4.is_some(), pod.v6.is_some()), (!v6, v6), "{}", pod.result);
}

fn one_family(families: Families, v6: bool, encap: Encap, expected: usize) {
    let stage = Stage::new(options(families, encap));
    let (a, near, b) = (stage.pod(0, "a"), stage.pod(0, "near"), stage.pod(1, "b"));
    for pod in [&a, &near, &b] {
        has_only(pod, v6);
        assert_eq!(mtu(&pod.space), expected);
    }
    stage.between(&a, &near, v6, expected);
    stage.all_pass((&a, &b), v6, expected);
}

#[test]
fn nodes_without_ipv6_carry_packets_as_they_are() {
    one_family(Families::V4, false, Encap::Native, 1500);
}

#[test]
fn nodes_without_ipv6_tunnel() {
    one_family(Families::V4, false, Encap::Vxlan, 1450);
}

#[test]
fn nodes_without_ipv4_carry_packets_as_they_are() {
    one_family(Families::V6, true, Encap::Native, 1500);
}

#[test]
fn nodes_without_ipv4_tunnel() {
    one_family(Families::V6, true, Encap::Vxlan, 1430);
}

#[test]
fn pods_of_ipv4_reach_each_other_over_nodes_of_ipv6_and_nobody_beyond() {
    let stage = Stage::new(options(Families::V4OverV6, Encap::Vxlan));
    let (a, near, b) = (stage.pod(0, "a"), stage.pod(0, "near"), stage.pod(1, "b"));
    for pod in [&a, &near, &b] {
        has_only(pod, false);
        assert_eq!(mtu(&pod.space), 1430);
    }
    let capture = Capture::start(&stage.lab.lan.bridges).expect("a capture");
    stage.between(&a, &near, false, 1430);
    stage.between(&a, &b, false, 1430);
    beyond_gets_nothing(&stage.lab, &a);
    let seen = capture.finish().expect("frames");
    let (pod_a, pod_b) = (a.address(false).expect("IPv4"), b.address(false).expect("IPv4"));
    let (node_a, node_b): (IpAddr, IpAddr) = (stage.lab.nodes[0].v6().into(), stage.lab.nodes[1].v6().into());
    for (pods, nodes) in [((pod_a, pod_b), (node_a, node_b)), ((pod_b, pod_a), (node_b, node_a))] {
        let tunnelled = seen.keys().any(|kind| kind.inner == Some(pods) && kind.outer == nodes);
        assert!(tunnelled, "no packet of {pods:?} between {nodes:?}: {seen:?}");
    }
    let bare = seen.keys().find(|kind| kind.outer.0.is_ipv4());
    assert_eq!(bare, None, "an IPv4 packet on a wire of IPv6");
}

/// The node has no IPv4 address to masquerade with: nothing leaves, least of all with the pod's address.
fn beyond_gets_nothing(lab: &Lab, pod: &Pod) {
    assert!(pod.address(true).is_err(), "no way to {OUTSIDE_V6} either");
    let probe = Probe {
        proto: Proto::Udp,
        from: &pod.space,
        to: &lab.lan.outside,
        destination: OUTSIDE_V4.into(),
        patience: Duration::from_millis(700),
    };
    let arrival = probe.run().expect("sockets");
    assert_eq!(arrival.count, 0, "{arrival:?}");
}
