//! A plugin as a process: three pipes, a time limit, a kill at a chosen moment.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::space::Space;

/// How a plugin ended.
#[derive(Debug)]
pub struct Ran {
    /// Exit status; of a killed one the signal.
    pub status: ExitStatus,
    /// All of its stdout.
    pub stdout: String,
    /// All of its stderr.
    pub stderr: String,
    /// From before its start to after its end.
    pub took: Duration,
}

impl Ran {
    /// Whether it was killed.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }
}

/// Runs `command` inside `space` with `input` on stdin; kills it `kill_after` its start. Like libcni, waits until it is gone **and**
/// nobody holds its stdout or stderr.
pub(crate) fn run(
    space: &Space,
    mut command: Command,
    input: &str,
    kill_after: Option<Duration>,
    patience: Duration,
) -> Result<Ran> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    space.run(|| {
        let start = Instant::now();
        let mut child = command.spawn().context("start it")?;
        let (mut stdin, mut stdout, mut stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            scope.spawn(move || {
                if let Some(stdin) = &mut stdin {
                    // A plugin that does not read its configuration has closed the pipe: its own answer says why.
                    let _ = stdin.write_all(input.as_bytes());
                }
            });
            let out = scope.spawn(move || drain(stdout.as_mut()));
            let err = scope.spawn(move || drain(stderr.as_mut()));
            let in_time = ends_within(&child, kill_after.unwrap_or(patience))?;
            if !in_time {
                child.kill().context("kill it")?;
            }
            let status = child.wait().context("wait for it")?;
            let stdout = out.join().unwrap_or_default();
            let stderr = err.join().unwrap_or_default();
            if !in_time && kill_after.is_none() {
                bail!("it did not end within {patience:?}; stderr: {}", stderr.trim());
            }
            Ok(Ran { status, stdout, stderr, took: start.elapsed() })
        })
    })?
}

fn drain(pipe: Option<&mut impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // A broken pipe ends the text; what came is kept.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ends_within(child: &Child, time: Duration) -> Result<bool> {
    let fd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context("watch it")?;
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).context("the time limit")?;
        match poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(err) => return Err(err).context("watch it"),
        }
    }
}
