//! Steps of a process, by strace: which system calls it makes, and its death at one of them.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A system call of a thread: the `nth` of its name, from 1.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Step {
    pub(crate) call: String,
    pub(crate) nth: usize,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.call, self.nth)
    }
}

/// `strace` in front of a command that is only watched.
pub(crate) fn watching(trace: &Path) -> Vec<String> {
    ["strace", "-f", "-qq", "-o"].map(str::to_owned).into_iter().chain([trace.display().to_string()]).collect()
}

/// `strace` in front of a command that is killed at a step, in whichever of its threads comes to it first.
pub(crate) fn killing(step: &Step) -> Vec<String> {
    let Step { call, nth } = step;
    let inject = format!("inject={call}:signal=SIGKILL:when={nth}");
    let trace = format!("trace={call}");
    ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject].map(str::to_owned).to_vec()
}

/// `strace` in front of a command that waits before a step.
pub(crate) fn delaying(step: &Step, time: Duration) -> Vec<String> {
    let Step { call, nth } = step;
    let inject = format!("inject={call}:delay_enter={}:when={nth}", time.as_micros());
    let trace = format!("trace={call}");
    ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject].map(str::to_owned).to_vec()
}

/// The steps of each thread in a trace, in their order.
pub(crate) fn steps(trace: &Path) -> BTreeMap<u32, Vec<Step>> {
    let calls = calls(trace).into_iter();
    calls.map(|(thread, calls)| (thread, calls.into_iter().map(|call| call.step).collect())).collect()
}

/// A step, and what strace wrote of it.
pub(crate) struct Call {
    pub(crate) step: Step,
    /// With its result, unless another thread's call came between.
    pub(crate) text: String,
}

/// The calls of each thread in a trace, in their order. One that another thread interrupts counts where it begins.
pub(crate) fn calls(trace: &Path) -> BTreeMap<u32, Vec<Call>> {
    let text = fs::read_to_string(trace).unwrap_or_default();
    let (mut calls, mut counts) = (BTreeMap::<u32, Vec<Call>>::new(), HashMap::new());
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((call, _)) = rest.trim_start().split_once('(') else { continue };
        let Ok(thread) = thread.parse::<u32>() else { continue };
        if call.is_empty() || !call.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            continue;
        }
        let nth = counts.entry((thread, call.to_owned())).or_insert(0);
        *nth += 1;
        let step = Step { call: call.to_owned(), nth: *nth };
        calls.entry(thread).or_default().push(Call { step, text: rest.to_owned() });
    }
    calls
}

/// strace on a process that runs already. Dropped, it lets go of it.
pub(crate) struct Attached {
    strace: Child,
}

impl Attached {
    /// Watches all threads of a process, or kills it when a thread comes to a step.
    pub(crate) fn watch(pid: u32, trace: &Path) -> Self {
        let trace = trace.display().to_string();
        Self::start(&["-f", "-qq", "-o", &trace, "-p", &pid.to_string()], &threads(pid).into_keys().collect::<Vec<_>>())
    }

    /// Kills the process when this thread of it comes to a step.
    pub(crate) fn kill_at(thread: u32, step: &Step) -> Self {
        let Step { call, nth } = step;
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=SIGKILL:when={nth}"));
        let arguments = ["-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject, "-p", &thread.to_string()];
        Self::start(&arguments, &[thread])
    }

    fn start(arguments: &[&str], threads: &[u32]) -> Self {
        let strace = Command::new("strace").args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let attached = Self { strace };
        let own = format!("TracerPid:\t{}", attached.strace.id());
        let since = Instant::now();
        let is_held = |thread: &u32| {
            let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
            status.lines().any(|line| line == own)
        };
        while !threads.iter().all(is_held) {
            assert!(since.elapsed() < Duration::from_secs(10), "strace does not attach to {threads:?}");
            thread::sleep(Duration::from_millis(1));
        }
        // Attached is not stopped for the first time yet.
        thread::sleep(Duration::from_millis(5));
        attached
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // On SIGTERM it detaches, so that its process goes on. Both fail only where it is gone.
        let _ = kill_process(Pid::from_child(&self.strace), Signal::TERM);
        let _ = self.strace.wait();
    }
}

/// Threads of a process and their names.
pub(crate) fn threads(pid: u32) -> BTreeMap<u32, String> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let name =
        |id: &u32| fs::read_to_string(format!("/proc/{pid}/task/{id}/comm")).unwrap_or_default().trim().to_owned();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(|id| (id, name(&id))).collect()
}
