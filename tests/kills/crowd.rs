//! Fifty ADDs at once, then fifty DELs at once.

use std::collections::BTreeSet;
use std::thread;

use osmia_lab::cni_runner::Misbehave;
use serde_json::Value;

use crate::stage::{Garbage, Stage, reaches};

const PODS: usize = 50;
/// Probes at one time.
const PROBES: usize = 8;

fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().to_owned()).collect()
}

#[test]
fn fifty_at_once_all_get_network_and_leave_nothing() {
    let mut stage = Stage::new(2, Garbage::Never);
    let remote = stage.pod(1, "remote");
    let sandboxes: Vec<_> = (0..PODS).map(|index| stage.sandbox(format!("crowd-{index}"))).collect();
    stage.remember();

    let runtime = &stage.node().runtime;
    let results: Vec<_> = thread::scope(|scope| {
        let add = |attachment| scope.spawn(move || runtime.add(attachment, Misbehave::default()));
        let calls: Vec<_> = sandboxes.iter().map(|sandbox| add(&sandbox.attachment)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let results: Vec<_> = results.into_iter().map(|added| added.unwrap_or_else(|err| panic!("{err:#}"))).collect();
    let all: BTreeSet<String> = results.iter().flat_map(addresses).collect();
    assert_eq!(all.len(), 2 * PODS, "{all:?}");

    let pods: Vec<_> = sandboxes.iter().zip(&results).collect();
    for some in pods.chunks(PROBES) {
        thread::scope(|scope| {
            for (index, (sandbox, result)) in some.iter().enumerate() {
                let own = addresses(result)[index % 2].parse().unwrap();
                let remote = &remote;
                scope.spawn(move || {
                    reaches(&sandbox.space, remote, own).unwrap_or_else(|why| panic!("{}: {why}", sandbox.name));
                });
            }
        });
    }

    thread::scope(|scope| {
        for sandbox in &sandboxes {
            scope.spawn(move || runtime.del(&sandbox.attachment, Misbehave::default()).unwrap());
        }
    });
    stage.nothing_left("fifty DELs");
    stage.becomes_clean("fifty DELs");
}
