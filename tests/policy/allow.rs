//! Isolation, and what labels, namespaces and ranges of addresses let through, on one node and across.

use osmia_lab::{Encap, Proto};

use crate::stage::{Stage, both};

const DENY: &str = "{podSelector: {}, policyTypes: [Ingress, Egress]}";

fn ingress_and_egress(encap: Encap) {
    let stage = Stage::new(encap, 2);
    stage.namespace("shop", &[]);
    stage.namespace("ops", &[("team", "ops")]);
    stage.namespace("lab", &[]);
    let db = stage.pod(0, "shop", "db", &[("app", "db")]);
    let near = stage.pod(0, "shop", "near", &[("app", "web")]);
    let far = stage.pod(1, "shop", "far", &[("app", "web")]);
    let other = stage.pod(1, "shop", "other", &[("app", "other")]);
    let ops = stage.pod(1, "ops", "ops", &[("app", "web")]);
    let lab = stage.pod(0, "lab", "lab", &[("app", "web")]);
    let senders = |reach: [bool; 5]| {
        let names = [("near", &near), ("far", &far), ("other", &other), ("ops", &ops), ("lab", &lab)];
        names.iter().zip(reach).map(|(&(name, pod), arrives)| (name, pod.space(), arrives)).collect::<Vec<_>>()
    };
    let servers = [db.serves(Proto::Tcp, 8080), db.serves(Proto::Udp, 8080)];
    let expect = |when: &str, reach: [bool; 5]| {
        let cases = servers.iter().flat_map(|server| both(&db, server, &senders(reach)));
        stage.expect(when, cases.collect());
    };
    stage.settle();
    expect("without policy", [true; 5]);

    stage.policy("shop", "deny", "{podSelector: {matchLabels: {app: db}}}");
    expect("default deny", [false; 5]);
    stage.policy(
        "shop",
        "web",
        "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}",
    );
    expect("web of the own namespace", [true, true, false, false, false]);
    stage.policy(
        "shop",
        "ops",
        "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}}]}]}",
    );
    expect("and whoever is in a namespace of team ops", [true, true, false, true, false]);
    stage.no_policy("shop", "web");
    expect("without the first rule again", [false, false, false, true, false]);

    // Egress is the sender's: of those who may enter, who may leave?
    stage.policy("shop", "deny", "{podSelector: {}, policyTypes: [Egress]}");
    stage.policy("shop", "ops", "{podSelector: {matchLabels: {app: far}}}");
    expect("no egress of the own namespace", [false, false, false, true, true]);
    stage.policy(
        "shop",
        "out",
        "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 8080}]}]}",
    );
    let tcp = both(&db, &servers[0], &senders([true, true, false, true, true]));
    let udp = both(&db, &servers[1], &senders([false, false, false, true, true]));
    stage.expect("egress of web to db on a TCP port", tcp.into_iter().chain(udp).collect());
    stage.policy("shop", "deny", DENY);
    expect("both ends have to let it pass", [false; 5]);
}

#[test]
fn policies_decide_who_is_let_in_and_out_natively() {
    ingress_and_egress(Encap::Native);
}

#[test]
fn policies_decide_who_is_let_in_and_out_through_tunnels() {
    ingress_and_egress(Encap::Vxlan);
}

/// Pods of node n1 have 10.244.1.0/24 and fd00:10:244:1::/64, those of n2 10.244.2.0/24 and fd00:10:244:2::/64.
#[test]
fn a_range_lets_its_own_family_in_but_for_its_exceptions() {
    let stage = Stage::new(Encap::Auto, 2);
    stage.namespace("blocks", &[]);
    let server = stage.pod(0, "blocks", "server", &[]);
    let (near, far) = (stage.pod(0, "blocks", "near", &[]), stage.pod(1, "blocks", "far", &[]));
    let udp = server.serves(Proto::Udp, 9000);
    let expect = |when: &str, [near4, far4, near6, far6]: [bool; 4]| {
        let mut cases = both(&server, &udp, &[("near", near.space(), near4), ("far", far.space(), far4)]);
        for (case, arrives) in cases.iter_mut().zip([near4, far4, near6, far6]) {
            case.arrives = arrives;
        }
        stage.expect(when, cases);
    };
    let write = |from: &str| {
        let spec = format!("{{podSelector: {{}}, policyTypes: [Ingress], ingress: [{{from: [{from}]}}]}}");
        stage.policy("blocks", "range", &spec);
    };
    write("{ipBlock: {cidr: 10.244.0.0/16, except: [10.244.2.0/24]}}");
    expect("IPv4 but for n2", [true, false, false, false]);
    write("{ipBlock: {cidr: \"fd00:10:244::/48\", except: [\"fd00:10:244:1::/64\"]}}");
    expect("IPv6 but for n1", [false, false, false, true]);
    write("{ipBlock: {cidr: 10.244.0.0/16, except: [10.244.2.0/24]}}, {ipBlock: {cidr: 10.244.2.0/30}}");
    expect("an exception takes away from its own range alone", [true, true, false, false]);
}
