//! The agent of a node as a process: started, waited for, killed.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::cpu;
use crate::space::Space;
use crate::sys;

/// How long an agent may take to serve, on a busy machine.
const START: Duration = Duration::from_secs(20);
/// How long one may take to end after SIGTERM.
const STOP: Duration = Duration::from_secs(10);

/// A thread inside a node that starts processes: they die when it ends, that is with the node and with the lab, however that ends.
#[derive(Debug)]
pub(crate) struct Starter {
    jobs: Sender<Job>,
}

type Job = (Command, Sender<std::io::Result<Child>>);

impl Starter {
    pub(crate) fn inside(space: Space) -> Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let (entered, answer) = channel();
        let body = move || {
            let inside = space.enter();
            let go_on = inside.is_ok();
            if entered.send(inside).is_err() || !go_on {
                return;
            }
            // Holding no descriptor of the namespaces from here on.
            drop(space);
            for (mut command, reply) in queue {
                // Who asked is gone: the child is dropped, and dies with this thread.
                let _ = reply.send(sys::die_with_thread(&mut command).spawn());
            }
        };
        thread::Builder::new().name("starter".into()).spawn(body).context("start a thread")?;
        answer.recv().context("the thread that starts processes ended")??;
        Ok(Self { jobs })
    }

    pub(crate) fn spawn(&self, command: Command) -> Result<Child> {
        let program = command.get_program().display().to_string();
        let (reply, answer) = channel();
        self.jobs.send((command, reply)).map_err(|_| anyhow!("the thread that starts processes ended"))?;
        answer.recv().context("the thread that starts processes ended")?.with_context(|| format!("start {program}"))
    }
}

/// A running agent. Dropped, it is killed.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    node: String,
    started: Instant,
}

impl Agent {
    /// Starts `command`, appending its output to `log`. It serves on `socket` some time later: see [`Self::wait_ready`].
    pub(crate) fn start(
        starter: &Starter,
        mut command: Command,
        node: &str,
        socket: &Path,
        log: &Path,
    ) -> Result<Self> {
        let out =
            File::options().create(true).append(true).open(log).with_context(|| format!("open {}", log.display()))?;
        let err = out.try_clone()?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        // A socket that a killed agent left behind must not be taken for the new one's.
        match fs::remove_file(socket) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).context("remove the old socket"),
            _ => {}
        }
        let started = Instant::now();
        let child = starter.spawn(command)?;
        Ok(Self { child, socket: socket.to_owned(), log: log.to_owned(), node: node.to_owned(), started })
    }

    /// Whether it serves by now.
    ///
    /// # Errors
    /// It ended.
    pub fn is_ready(&mut self) -> Result<bool> {
        if let Some(status) = self.child.try_wait().context("look after the agent")? {
            bail!("the agent of {} ended ({status}) before it served{}", self.node, self.last_words());
        }
        Ok(UnixStream::connect(&self.socket).is_ok())
    }

    /// Waits until it serves; gives the time since its start.
    ///
    /// # Errors
    /// It ended, or took longer than 20 s.
    pub fn wait_ready(&mut self) -> Result<Duration> {
        while !self.is_ready()? {
            if self.started.elapsed() > START {
                bail!("the agent of {} does not serve after {START:?}{}", self.node, self.last_words());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(self.started.elapsed())
    }

    /// Waits until it has ended without our doing; says how.
    pub(crate) fn wait_end(mut self) -> Result<ExitStatus> {
        loop {
            match self.child.try_wait().context("look after the agent")? {
                Some(status) => return Ok(status),
                None if self.started.elapsed() > START => {
                    bail!("the agent of {} still runs after {START:?}{}", self.node, self.last_words())
                }
                None => thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU that it has taken so far.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn cpu(&self) -> Result<Duration> {
        Ok(Duration::from_nanos(cpu::of_process(self.pid())?))
    }

    /// Kills it (SIGKILL) and waits for its end.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill().context("kill the agent")?;
        self.child.wait().context("wait for the killed agent")?;
        Ok(())
    }

    /// Ends it with SIGTERM.
    ///
    /// # Errors
    /// It did not end within 10 s, or not with success.
    pub fn stop(mut self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).context("send SIGTERM to the agent")?;
        let since = Instant::now();
        loop {
            match self.child.try_wait().context("look after the agent")? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the agent of {} ended with {status}{}", self.node, self.last_words()),
                None if since.elapsed() > STOP => bail!("the agent of {} goes on {STOP:?} after SIGTERM", self.node),
                None => thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// The last lines of its log, for a message.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(3);
        match lines.get(from..) {
            Some([]) | None => String::from("; it wrote nothing"),
            Some(last) => format!("; its last lines: {}", last.join(" | ")),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Both fail only where it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
