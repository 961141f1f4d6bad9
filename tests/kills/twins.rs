//! Two ADDs for one attachment at the same moment, which no runtime may send and some do.

use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use osmia_cni::spec::error::code::{EXISTS, TRY_LATER};
use osmia_lab::Pod;
use osmia_lab::cni_runner::{CniRunner, Misbehave};
use serde_json::Value;

use crate::held;
use crate::stage::{Garbage, Sandbox, Stage, code, reaches, v4_of};
use crate::strace::{self, Step};

/// Rounds in which both start at once; in the others one waits at a step.
const PLAIN: usize = 6;
const WAITS: Duration = Duration::from_millis(40);

/// One of the two succeeds, and what is there is what it was told; the other is refused (A2) and has changed nothing.
fn round(stage: &Stage, remote: &Pod, sandbox: &Sandbox, first: &CniRunner, when: &str) {
    let barrier = Barrier::new(2);
    let call = |runtime: &CniRunner| {
        barrier.wait();
        runtime.add(&sandbox.attachment, Misbehave::default())
    };
    let second = &stage.node().runtime;
    let answers =
        thread::scope(|scope| [first, second].map(|runtime| scope.spawn(|| call(runtime))).map(|c| c.join().unwrap()));
    let told: Vec<&Value> = answers.iter().flatten().collect();
    let [told] = told[..] else { panic!("{when}: {answers:?}\n{}", stage.story()) };
    for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert!([u64::from(EXISTS), u64::from(TRY_LATER)].map(Some).contains(&code(error)), "{when}: {error:#}");
    }

    let devices = sandbox.space.output(Command::new("ip").args(["-o", "link", "show", "type", "veth"])).unwrap();
    assert_eq!(devices.lines().count(), 1, "{when}: {devices}");
    let own = v4_of(told);
    let addresses =
        sandbox.space.output(Command::new("ip").args(["-o", "-4", "address", "show", "dev", "eth0"])).unwrap();
    assert_eq!(addresses.lines().count(), 1, "{when}: {addresses}");
    assert!(addresses.contains(&format!("inet {own}/")), "{when}: told {own}, has {addresses}");
    reaches(&sandbox.space, remote, own).unwrap_or_else(|why| panic!("{when}: {why}\n{}", stage.story()));
}

#[test]
fn two_adds_of_one_attachment_at_once_make_one_interface() {
    let mut stage = Stage::new(2, Garbage::Never);
    let remote = stage.pod(1, "remote");
    stage.remember();
    let watched = stage.sandbox("watched");
    let trace = stage.lab.folder().join("add.trace");
    let runtime = stage.runtime_through(strace::watching(&trace));
    runtime.add(&watched.attachment, Misbehave::default()).unwrap();
    stage.node().runtime.del(&watched.attachment, Misbehave::default()).unwrap();
    let talks = ["connect", "sendmsg", "sendto", "recvfrom", "write"];
    let steps = strace::steps(&trace).into_values().flatten().filter(|step| talks.contains(&step.call.as_str()));
    let mut steps: Vec<Step> = steps.collect();
    steps.sort();
    steps.dedup();
    assert!(steps.len() > 5, "{steps:?}");

    let rounds: Vec<Option<&Step>> = (0..PLAIN).map(|_| None).chain(steps.iter().map(Some)).collect();
    let sandboxes: Vec<_> = (0..rounds.len()).map(|index| stage.sandbox(format!("twin-{index}"))).collect();
    thread::scope(|scope| {
        for (step, sandbox) in rounds.iter().zip(&sandboxes) {
            let (stage, remote) = (&stage, &remote);
            scope.spawn(move || {
                let when = step.map_or_else(|| "both at once".to_owned(), |step| format!("one waits at {step}"));
                let first = stage.runtime_through(step.map_or_else(Vec::new, |step| strace::delaying(step, WAITS)));
                round(stage, remote, sandbox, &first, &when);
            });
        }
    });
    let rows = held::now(stage.node()).into_iter().filter(|line| line.starts_with("row of endpoints:"));
    assert_eq!(rows.count(), rounds.len(), "a row for each of the pods: {:#?}", held::now(stage.node()));
    assert_eq!(held::links(stage.node()).len(), rounds.len());
    for sandbox in &sandboxes {
        stage.node().runtime.del(&sandbox.attachment, Misbehave::default()).unwrap();
    }
    stage.nothing_left("a DEL each");
    stage.becomes_clean("a DEL each");
}
