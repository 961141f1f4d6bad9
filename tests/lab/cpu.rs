//! CPU time by the scheduler's own accounting.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};

/// Of all threads of a process that live, so far, ns. Exact for those that sleep (a running one is accounted at the next tick).
///
/// # Errors
/// The process is gone.
pub fn of_process(pid: u32) -> Result<u64> {
    let folder = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&folder).with_context(|| format!("read {folder}"))?;
    tasks.map(|task| of_task(&task?.path().join("schedstat"))).sum()
}

/// Of one thread, so far, ns: its `schedstat` in `/proc`. 0 where it has ended.
///
/// # Errors
/// The file cannot be read, or is another.
pub fn of_task(path: &Path) -> Result<u64> {
    let text = match fs::read_to_string(path) {
        // A thread that ended since the folder was listed.
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(0),
        text => text.with_context(|| format!("read {}", path.display()))?,
    };
    // Kernel's Documentation/scheduler/sched-stats: time on the CPU, time waiting, slices.
    let first = text.split_whitespace().next().unwrap_or_default();
    first.parse().with_context(|| format!("{} says {text:?}", path.display()))
}
