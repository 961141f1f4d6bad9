//! Labels that change a hundred times a second.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::{Encap, Node, Proto};
use osmia_maps::catalogue;
use serde_json::Value;

use crate::add::metric;
use crate::stage::{Stage, both};

const FLAPS: u32 = 300;
const PACE: Duration = Duration::from_millis(10);

/// Rows of the policy maps, by map.
fn rows(node: &Node) -> Vec<(String, u64)> {
    let told = node.osmia(&["map", "list", "--json"]).unwrap();
    let list: Value = serde_json::from_str(&told.stdout).unwrap();
    let of = |name: &str| {
        let row = list["maps"].as_array().unwrap().iter().find(|row| row["map"] == name).unwrap();
        (name.to_owned(), row["used"].as_u64().unwrap())
    };
    ["peers", "peer_blocks", "verdicts"].map(of).to_vec()
}

/// Seconds of CPU that the agent has taken.
fn cpu(node: &Node) -> f64 {
    node.agent().as_ref().unwrap().cpu().unwrap().as_secs_f64()
}

/// Changes of policy that the agent brought into force.
fn done(stage: &Stage) -> f64 {
    metric(stage, r#"osmia_policy_changes_total{state="done"}"#)
}

#[test]
fn labels_that_flap_a_hundred_times_a_second_leave_nothing_behind_and_end_right() {
    let stage = Stage::new(Encap::Auto, 1);
    stage.namespace("flap", &[]);
    let db = stage.pod(0, "flap", "db", &[("app", "db")]);
    let web = stage.pod(0, "flap", "web", &[("app", "web")]);
    let tcp = db.serves(Proto::Tcp, 8080);
    stage.policy(
        "flap",
        "in",
        "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}",
    );
    let node = stage.node(0);
    let size = || fs::metadata(catalogue::path(&node.paths.run)).unwrap().len();
    let told = |app: &str| {
        let mut object = web.object.clone();
        object.labels = vec![("app".into(), app.into())];
        stage.tell(&object);
    };
    let label = |n: u32| if n.is_multiple_of(2) { "web" } else { "other" };
    // Two rounds, of which the second leaves no more than the first.
    let mut after = Vec::new();
    for round in 0..2 {
        let (begin, took, changes) = (Instant::now(), cpu(node), done(&stage));
        for n in 0..FLAPS {
            told(label(n + round));
            thread::sleep((begin + PACE * (n + 1)).saturating_duration_since(Instant::now()));
        }
        let took = cpu(node) - took;
        stage.settle();
        // The folder is read a little after a change of it, and both labels may come and go meanwhile.
        let changes = done(&stage) - changes;
        assert!(changes >= f64::from(FLAPS) / 30.0, "of {FLAPS} labels {changes} were brought into force");
        assert!(took < 2.0, "{FLAPS} labels, {changes} changes took {took} s of CPU");
        let arrives = label(FLAPS - 1 + round) == "web";
        stage.expect("the last label counts", both(&db, &tcp, &[("web", web.space(), arrives)]));
        // As at the beginning of a round.
        told("web");
        stage.settle();
        stage.expect("as at first", both(&db, &tcp, &[("web", web.space(), true)]));
        after.push(rows(node));
        assert!(size() < 512 << 10, "a catalogue of {} bytes", size());
        println!(
            "{FLAPS} labels, {changes} changes: {took} s of CPU, a catalogue of {} bytes, {:?}",
            size(),
            after.last()
        );
    }
    assert_eq!(after[0], after[1], "rows that are left");
}
