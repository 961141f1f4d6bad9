//! The agent, killed at each step of ADD and of DEL while the real plugin waits, and started again.
//!
//! Steps of its main thread up to the answer and the one behind, and those of the threads that work for it. Calls that change nothing
//! outside the process (waiting, reading, closing, refused ones) are left out, and nothing else: a kill before one of those leaves what a
//! kill before the next that does change something leaves.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::cni_runner::Misbehave;
use osmia_lab::load::Datagrams;
use osmia_lab::{Pod, Space};

use crate::stage::{Garbage, Sandbox, Stage, code, reaches, v4_of};
use crate::strace::{self, Attached, Call, Step, threads};

/// What an agent does to the world.
const CALLS: &[&str] = &[
    "accept4",
    "bpf",
    "openat",
    "write",
    "pwrite64",
    "ftruncate",
    "fsync",
    "fdatasync",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "sendto",
    "sendmsg",
];
/// Where these are in a call, it does nothing to the world after all. The last is how a thread wakes another.
const NOTHING: &[&str] = &[" = -1 ", "O_RDONLY", "BPF_MAP_LOOKUP", "BPF_OBJ_GET", r#""\1\0\0\0\0\0\0\0", 8"#];
/// The thread that serves calls is the process's first.
const MAIN: &str = "osmia-agent";
/// What the main thread does after a manifest or status file changed is over by then.
const SETTLE: Duration = Duration::from_millis(120);
/// Retired links wait this long for others, and some more.
const LINKS: Duration = Duration::from_millis(700);
/// Datagrams a second between pods that were there before.
const RATE: u32 = 500;

/// Two nodes, two pods that talk all the time, and a third pod to talk to.
struct Scene {
    stage: Stage,
    remote: Pod,
    _old: [Pod; 2],
    traffic: Datagrams,
}

impl Scene {
    fn new() -> Self {
        let mut stage = Stage::new(2, Garbage::Never);
        let old = [stage.pod(0, "old-a"), stage.pod(1, "old-b")];
        let remote = stage.pod(1, "remote");
        let to = old[0].address(false).unwrap();
        let traffic = Datagrams::start(&old[1].space, &old[0].space, to, RATE).unwrap();
        thread::sleep(SETTLE);
        stage.remember();
        Self { stage, remote, _old: old, traffic }
    }

    fn pid(&self) -> u32 {
        self.stage.node().agent().as_ref().unwrap().pid()
    }

    /// The id of the agent's thread with this name.
    fn thread(&self, name: &str) -> u32 {
        let pid = self.pid();
        if name == MAIN {
            return pid;
        }
        threads(pid)
            .into_iter()
            .find(|(_, own)| own == name)
            .map(|(id, _)| id)
            .unwrap_or_else(|| panic!("no thread {name}"))
    }

    /// The steps of an undisturbed call, each with the name of its thread.
    fn steps(&self, call: impl FnOnce()) -> Vec<(String, Step)> {
        let (pid, trace) = (self.pid(), self.stage.lab.folder().join("agent.trace"));
        let names = threads(pid);
        let watch = Attached::watch(pid, &trace);
        call();
        thread::sleep(LINKS);
        drop(watch);
        let mut all = Vec::new();
        for (thread, calls) in strace::calls(&trace) {
            let is_answer = |call: &Call| call.step.call == "sendto" && call.text.contains("protocol");
            let last = if thread == pid {
                calls.iter().rposition(is_answer).expect("the agent answered") + 1
            } else {
                usize::MAX
            };
            let name = if thread == pid { MAIN } else { &names[&thread] };
            let mut behind = 0;
            for (index, call) in calls.into_iter().enumerate().filter(|(_, call)| changes(call)) {
                behind += usize::from(index >= last);
                if behind < 2 {
                    all.push((name.to_owned(), call.step));
                }
            }
        }
        all
    }

    /// Whether the agent is gone, or goes within this time.
    fn ends_within(&self, time: Duration) -> bool {
        let since = Instant::now();
        loop {
            if ends(self.pid()) {
                return true;
            }
            if since.elapsed() > time {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn del(&self, sandbox: &Sandbox, when: &str) {
        let deleted = self.stage.node().runtime.del(&sandbox.attachment, Misbehave::default());
        deleted.unwrap_or_else(|err| panic!("DEL {when}: {err:#}\n{}", self.stage.story()));
    }

    fn reaches(&self, from: &Space, own: std::net::IpAddr, when: &str) {
        reaches(from, &self.remote, own).unwrap_or_else(|why| panic!("{when}: {why}\n{}", self.stage.story()));
    }

    /// Makes a call with the agent about to be killed at a step; afterwards an agent serves. Says whether it was killed.
    fn killed_at<T>(&self, (name, step): &(String, Step), call: impl FnOnce() -> T) -> (bool, T) {
        let attached = Attached::kill_at(self.thread(name), step);
        let answer = call();
        let died = self.ends_within(LINKS + LINKS);
        drop(attached);
        if died {
            *self.stage.node().agent() = None;
            self.stage.start_agent();
        }
        (died, answer)
    }

    /// Nothing is left at last, and pods that were there before noticed nothing.
    fn end(self, what: &str, reached: usize, steps: &[(String, Step)]) {
        self.stage.becomes_clean(what);
        let report = self.traffic.finish().unwrap();
        assert!(report.sent > 1000, "{report:?}");
        assert_eq!((report.missing, report.refused), (0, 0), "{report:?}");
        assert!(4 * reached >= 3 * steps.len() && steps.len() > 12, "killed at {reached} of {}", steps.len());
        expedited_goes_off();
        eprintln!("killed at {reached} of {} steps", steps.len());
    }
}

/// Whether a process is gone or on its way: on a busy machine closing what it had open takes seconds.
fn ends(pid: u32) -> bool {
    // `PF_EXITING` of linux/sched.h.
    const EXITING: u64 = 4;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name: state, ppid, pgrp, session, tty_nr, tpgid, flags.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return true };
    let flags = rest.split(' ').nth(6).and_then(|flags| flags.parse::<u64>().ok()).unwrap_or_default();
    rest.starts_with(['Z', 'X']) || flags & EXITING != 0
}

fn changes(call: &Call) -> bool {
    CALLS.contains(&call.step.call.as_str()) && !NOTHING.iter().any(|nothing| call.text.contains(nothing))
}

/// An agent that is killed while grace periods are short leaves the kernel's switch on until the next start. Others on this kernel
/// use it as well, for moments.
fn expedited_goes_off() {
    let since = Instant::now();
    while fs::read_to_string("/sys/kernel/rcu_expedited").unwrap().trim() != "0" {
        assert!(since.elapsed() < Duration::from_secs(10), "/sys/kernel/rcu_expedited stays on");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The caller has its pod whole, or code 11 and after DEL nothing.
#[test]
fn an_agent_killed_in_add_gives_a_pod_with_network_or_none() {
    let scene = Scene::new();
    let add = |sandbox: &Sandbox| scene.stage.node().runtime.add(&sandbox.attachment, Misbehave::default());
    let watched = scene.stage.sandbox("watched");
    thread::sleep(SETTLE);
    let steps = scene.steps(|| drop(add(&watched).unwrap()));
    scene.del(&watched, "undisturbed");
    // All before the first kill: the agent is busy with new manifests for a moment.
    let sandboxes: Vec<_> = (0..steps.len()).map(|index| scene.stage.sandbox(format!("add-{index}"))).collect();
    thread::sleep(SETTLE);
    let mut reached = 0;
    for (step, sandbox) in steps.iter().zip(&sandboxes) {
        let when = format!("with the agent killed at {}: {}", step.0, step.1);
        let (killed, added) = scene.killed_at(step, || add(sandbox));
        reached += usize::from(killed);
        match added {
            Ok(result) => scene.reaches(&sandbox.space, v4_of(&result), &when),
            Err(error) => {
                assert!(killed && code(&error) == Some(11), "{when}: {error:#}\n{}", scene.stage.story());
            }
        }
        scene.del(sandbox, &when);
        scene.stage.nothing_left(&when);
    }
    scene.end("kills in ADD", reached, &steps);
}

/// The caller is told that it is done: by the agent, or since the DEL waits for the next one.
#[test]
fn an_agent_killed_in_del_leaves_nothing() {
    let scene = Scene::new();
    let add = |name: String| {
        let sandbox = scene.stage.sandbox(name);
        let added = scene.stage.node().runtime.add(&sandbox.attachment, Misbehave::default());
        added.unwrap_or_else(|err| panic!("{err:#}\n{}", scene.stage.story()));
        thread::sleep(SETTLE);
        sandbox
    };
    let watched = add("watched".to_owned());
    let steps = scene.steps(|| scene.del(&watched, "undisturbed"));
    let mut reached = 0;
    for (index, step) in steps.iter().enumerate() {
        let when = format!("with the agent killed at {}: {}", step.0, step.1);
        let sandbox = add(format!("del-{index}"));
        reached += usize::from(scene.killed_at(step, || scene.del(&sandbox, &when)).0);
        scene.stage.nothing_left(&when);
        scene.del(&sandbox, "once more");
    }
    scene.end("kills in DEL", reached, &steps);
}
