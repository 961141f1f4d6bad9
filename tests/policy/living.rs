//! Connections that live while policies change.

use std::thread;

use osmia_lab::load::Writing;
use osmia_lab::{Encap, Proto};

use crate::stage::{Stage, both};

const ALLOW: &str = "{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}";
const DENY: &str = "{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress]}";

fn flows((what, writing): &(String, Writing)) {
    writing.flows().unwrap_or_else(|err| panic!("{what}: {err:#}"));
}

fn stands((what, writing): &(String, Writing)) {
    writing.stands().unwrap_or_else(|err| panic!("{what}: {err:#}"));
}

#[test]
fn connections_end_with_their_permission_and_replies_do_not_need_one() {
    let stage = Stage::new(Encap::Auto, 2);
    stage.namespace("live", &[]);
    let server = stage.pod(0, "live", "server", &[("app", "server")]);
    let (near, far) =
        (stage.pod(0, "live", "near", &[("app", "client")]), stage.pod(1, "live", "far", &[("app", "client")]));
    // The server itself may open nothing; that it answers needs no rule.
    stage.policy("live", "server", ALLOW);
    let mut all = Vec::new();
    for (name, client) in [("near", &near), ("far", &far)] {
        for v6 in [false, true] {
            for server_writes in [false, true] {
                let what = format!("{name}, IPv{}, server writes: {server_writes}", if v6 { 6 } else { 4 });
                let (client, address) = (client.space(), server.address(v6));
                all.push((what, Writing::start(client, server.space(), address, server_writes).unwrap()));
            }
        }
    }
    // Policies come and change, these connections are allowed all the time.
    stage.policy(
        "live",
        "more",
        "{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}",
    );
    stage.policy("live", "more", "{podSelector: {matchLabels: {app: nobody}}}");
    all.iter().for_each(flows);
    stage.policy("live", "server", DENY);
    thread::scope(|scope| {
        for one in &all {
            scope.spawn(|| stands(one));
        }
    });
    // Allowed again, they go on: nobody has told the two ends that they were cut.
    stage.policy("live", "server", ALLOW);
    all.iter().for_each(flows);
    // The client's label is its permission.
    let mut object = far.object.clone();
    object.labels.clear();
    stage.tell(&object);
    stage.settle();
    for one in &all {
        if one.0.starts_with("far") { stands(one) } else { flows(one) }
    }
    let client = near.serves(Proto::Tcp, 8080);
    stage.expect("the server opens nothing", both(&near, &client, &[("server", server.space(), false)]));
}
