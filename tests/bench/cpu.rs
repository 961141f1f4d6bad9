//! CPU time by the scheduler's own accounting, in nanoseconds, and where load runs.
//!
//! A veth's receive softirq runs in the context of the task that sends, so what the dataplane costs is in the CPU time of the load. What
//! is deferred lands on `ksoftirqd`. Neither moves when other jobs take the CPU, as wall-clock rates do.

use std::fs;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result};
pub(crate) use osmia_lab::cpu::of_process;
use osmia_lab::cpu::of_task;
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Of the calling thread, so far.
pub(crate) fn of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// The threads on which the kernel runs deferred softirqs.
pub(crate) struct Softirqs {
    paths: Vec<PathBuf>,
}

impl Softirqs {
    /// Finds them.
    pub(crate) fn find() -> Result<Self> {
        let mut paths = Vec::new();
        for process in fs::read_dir("/proc").context("read /proc")? {
            let path = process?.path();
            // A process may be gone by now.
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            if name.starts_with("ksoftirqd/") {
                paths.push(path.join("schedstat"));
            }
        }
        anyhow::ensure!(!paths.is_empty(), "no ksoftirqd is visible: deferred work would not be counted");
        Ok(Self { paths })
    }

    /// Their CPU time so far, ns.
    pub(crate) fn time(&self) -> Result<u64> {
        self.paths.iter().map(|path| of_task(path)).sum()
    }
}

/// A CPU for load.
#[derive(Clone, Copy)]
pub(crate) enum Cpu {
    /// The last one: interrupts tend to the first.
    Main,
    /// Another one where there is one.
    Other,
}

/// Puts the calling thread, and all that it starts from now on, before other jobs of the machine.
pub(crate) fn go_first() -> Result<()> {
    setpriority_process(None, -15).context("raise the priority of what is measured")
}

/// Moves the calling thread, and the threads it starts, to one CPU.
pub(crate) fn settle(cpu: Cpu) -> Result<()> {
    let count = available_parallelism().context("count CPUs")?.get();
    let number = match cpu {
        Cpu::Main => count - 1,
        Cpu::Other => count.saturating_sub(2),
    };
    let mut set = CpuSet::new();
    set.set(number);
    sched_setaffinity(None, &set).with_context(|| format!("move to CPU {number}"))
}
