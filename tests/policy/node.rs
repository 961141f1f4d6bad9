//! The node's own sockets, other nodes, and who is outside.

use osmia_lab::{Encap, OUTSIDE_V4, OUTSIDE_V6, Proto};

use crate::stage::{Stage, both};

#[test]
fn a_nodes_own_sockets_reach_its_pods_and_nobody_else_does() {
    let stage = Stage::new(Encap::Native, 2);
    stage.namespace("shut", &[]);
    let pod = stage.pod(0, "shut", "pod", &[]);
    // The way to the pod that a client outside of the cluster would like to have.
    let (n1, router) = (&stage.lab.nodes[0], &stage.lab.lan.router);
    router.ip(&format!("route add 10.244.1.0/24 via {}", n1.v4())).unwrap();
    router.ip(&format!("route add fd00:10:244:1::/64 via {}", n1.v6())).unwrap();
    let servers = [pod.serves(Proto::Tcp, 8080), pod.serves(Proto::Udp, 8080)];
    let expect = |when: &str, other_node: bool, outside: bool| {
        let senders = [
            ("its own node", &stage.lab.nodes[0].space, true),
            ("another node", &stage.lab.nodes[1].space, other_node),
            ("a client outside", &stage.lab.lan.outside, outside),
        ];
        stage.expect(when, servers.iter().flat_map(|server| both(&pod, server, &senders)).collect());
    };
    stage.settle();
    expect("without policy", true, true);
    stage.policy("shut", "deny", "{podSelector: {}, policyTypes: [Ingress, Egress]}");
    expect("default deny", false, false);
    let range = |address: std::net::IpAddr| {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        format!("{{ipBlock: {{cidr: \"{address}/{bits}\"}}}}")
    };
    let outside = [range(OUTSIDE_V4.into()), range(OUTSIDE_V6.into())].join(", ");
    stage.policy("shut", "in", &format!("{{podSelector: {{}}, ingress: [{{from: [{outside}]}}]}}"));
    expect("the client by its address", false, true);
    let n2 = &stage.lab.nodes[1];
    let other = [range(n2.v4().into()), range(n2.v6().into())].join(", ");
    stage.policy("shut", "in", &format!("{{podSelector: {{}}, ingress: [{{from: [{other}]}}]}}"));
    expect("the other node by its address", true, false);
}
