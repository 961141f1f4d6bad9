//! The plugin, killed at each step of ADD and of DEL, against a living agent and against none.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use osmia_cni::protocol::{AttachmentKey, host_link_name};
use osmia_lab::cni_runner::Misbehave;

use crate::held;
use crate::stage::{Garbage, Sandbox, Stage};
use crate::strace::{self, Step};

/// Pods that are worked on at one time.
const WORKERS: usize = 4;

const EMPTY: Misbehave =
    Misbehave { kill_after: None, drop_prev_result: true, empty_netns: true, capitalised_keys: false };

/// The steps of an undisturbed call, those of all threads together: where two threads make the same call as often, the first is meant.
fn steps(stage: &Stage, verb: &str, sandbox: &Sandbox) -> Vec<Step> {
    let trace = stage.lab.folder().join(format!("{verb}.trace"));
    let runtime = stage.runtime_through(strace::watching(&trace));
    let ran = runtime.run(verb, &runtime.plugins[0], &sandbox.attachment, None, Misbehave::default()).unwrap();
    assert!(ran.status.success(), "{verb}: {} {}", ran.stdout, ran.stderr);
    let all: BTreeSet<Step> = strace::steps(&trace).into_values().flatten().collect();
    // The first is strace's own: it becomes the plugin.
    all.into_iter().filter(|step| step.call != "execve").collect()
}

/// Calls the plugin and kills it at a step; says whether it came there.
fn kill(stage: &Stage, verb: &str, sandbox: &Sandbox, step: &Step) -> bool {
    let runtime = stage.runtime_through(strace::killing(step));
    let ran = runtime.run(verb, &runtime.plugins[0], &sandbox.attachment, None, Misbehave::default()).unwrap();
    assert!(ran.was_killed() || ran.status.success(), "{verb}, {step}: {} {} {}", ran.status, ran.stdout, ran.stderr);
    ran.was_killed()
}

fn add(stage: &Stage, sandbox: &Sandbox, when: &str) {
    let added = stage.node().runtime.add(&sandbox.attachment, Misbehave::default());
    added.unwrap_or_else(|err| panic!("ADD {when}: {err:#}\n{}", stage.story()));
}

fn del(stage: &Stage, sandbox: &Sandbox, misbehave: Misbehave, when: &str) {
    let deleted = stage.node().runtime.del(&sandbox.attachment, misbehave);
    deleted.unwrap_or_else(|err| panic!("DEL {when}: {err:#}\n{}", stage.story()));
}

/// No file speaks of the sandbox. What else is held has no name of its own and is looked at when all is over.
fn gone(stage: &Stage, sandbox: &Sandbox, when: &str) {
    let key = AttachmentKey::new(sandbox.attachment.container_id.as_str(), "eth0").unwrap();
    let (link, status) = (host_link_name(&key), format!("default.{}.yaml", sandbox.name));
    let held = held::files_of(stage.node());
    let held: Vec<_> = held.iter().filter(|line| line.contains(&link) || line.contains(&status)).collect();
    assert!(held.is_empty(), "{when}: {held:?}\n{}", stage.story());
}

/// Does it for each step, some at a time. Says how many of the steps the plugin came to.
fn each(steps: &[Step], body: impl Fn(usize, &Step) -> bool + Sync) -> usize {
    let (next, reached) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((index, step)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, steps.get(i)?)))
                {
                    reached.fetch_add(usize::from(body(index, step)), Ordering::Relaxed);
                }
            });
        }
    });
    reached.into_inner()
}

/// Few steps depend on how two threads meet, or on how often something is waited for.
fn most(reached: usize, steps: &[Step]) {
    assert!(10 * reached >= 9 * steps.len() && steps.len() > 30, "{reached} of {} steps", steps.len());
    eprintln!("killed at {reached} of {} steps", steps.len());
}

/// What a runtime does after a call that failed: another DEL, told all or nothing by turns, and then the pod anew.
fn goes_and_comes_again(stage: &Stage, sandbox: &Sandbox, index: usize, when: &str) {
    del(stage, sandbox, if index.is_multiple_of(2) { Misbehave::default() } else { EMPTY }, when);
    gone(stage, sandbox, when);
    add(stage, sandbox, when);
    del(stage, sandbox, Misbehave::default(), when);
    gone(stage, sandbox, when);
}

/// Take-away 4 of the facts on runtimes: a time-out is SIGKILL, then DEL comes, with the namespace or without. Nothing of the ADD is
/// left for anybody else to collect, and the same container can be added again at once.
#[test]
fn after_a_plugin_killed_in_add_del_takes_all_back_and_add_succeeds() {
    let stage = Stage::new(1, Garbage::Never);
    let steps = steps(&stage, "ADD", &stage.sandbox("watched"));
    let mut stage = stage;
    stage.remember();
    let reached = each(&steps, |index, step| {
        let sandbox = stage.sandbox(format!("add-{index}"));
        let killed = kill(&stage, "ADD", &sandbox, step);
        let when = format!("after ADD was killed at {step}");
        goes_and_comes_again(&stage, &sandbox, index, &when);
        killed
    });
    stage.becomes_clean("kills in ADD");
    most(reached, &steps);
}

#[test]
fn after_a_plugin_killed_in_del_another_del_takes_all_back_and_add_succeeds() {
    let stage = Stage::new(1, Garbage::Never);
    let sandbox = stage.sandbox("watched");
    add(&stage, &sandbox, "first");
    let steps = steps(&stage, "DEL", &sandbox);
    let reached = each(&steps, |index, step| {
        let sandbox = stage.sandbox(format!("del-{index}"));
        let when = format!("after DEL was killed at {step}");
        add(&stage, &sandbox, "before");
        let killed = kill(&stage, "DEL", &sandbox, step);
        goes_and_comes_again(&stage, &sandbox, index, &when);
        killed
    });
    stage.becomes_clean("kills in DEL");
    most(reached, &steps);
}

/// The plugin queues the DEL itself then.
#[test]
fn after_a_plugin_killed_in_del_without_an_agent_another_del_is_kept_for_the_next_agent() {
    let stage = Stage::new(1, Garbage::Never);
    let watched = stage.sandbox("watched");
    add(&stage, &watched, "first");
    let pods = Mutex::new(Vec::new());
    let names: Vec<Step> = (0..90).map(|nth| Step { call: "pod".into(), nth }).collect();
    each(&names, |index, _| {
        let sandbox = stage.sandbox(format!("queued-{index}"));
        add(&stage, &sandbox, "before");
        pods.lock().unwrap().push(sandbox);
        true
    });
    let pods = pods.into_inner().unwrap();
    stage.node().stop_agent().unwrap();
    let mut steps = steps(&stage, "DEL", &watched);
    assert!(steps.iter().any(|step| step.call == "fsync"), "{steps:?}");
    // Those that are left are deleted without a kill.
    steps.truncate(pods.len());
    let reached = each(&steps, |index, step| {
        let killed = kill(&stage, "DEL", &pods[index], step);
        let when = format!("after DEL without an agent was killed at {step}");
        del(&stage, &pods[index], if index.is_multiple_of(2) { Misbehave::default() } else { EMPTY }, &when);
        killed
    });
    for sandbox in pods.iter().skip(steps.len()) {
        del(&stage, sandbox, Misbehave::default(), "without an agent");
    }
    stage.start_agent();
    stage.becomes_clean("kills in DEL without an agent");
    most(reached, &steps);
}

/// Runtimes lose DELs. The namespace goes, and the agent finds out.
#[test]
fn what_a_killed_plugin_leaves_goes_as_garbage_where_no_del_comes() {
    let stage = Stage::new(1, Garbage::AfterASecond);
    let watched = stage.sandbox("watched");
    let adds = steps(&stage, "ADD", &watched);
    let dels = steps(&stage, "DEL", &watched);
    stage.drop_sandbox(watched);
    let mut reached = each(&adds, |index, step| {
        let sandbox = stage.sandbox(format!("add-{index}"));
        let killed = kill(&stage, "ADD", &sandbox, step);
        stage.drop_sandbox(sandbox);
        killed
    });
    reached += each(&dels, |index, step| {
        let sandbox = stage.sandbox(format!("del-{index}"));
        add(&stage, &sandbox, "before");
        let killed = kill(&stage, "DEL", &sandbox, step);
        stage.drop_sandbox(sandbox);
        killed
    });
    stage.becomes_clean("kills that no DEL followed");
    most(reached, &[adds, dels].concat());
}
