//! A network namespace, with or without a mount namespace beside it, held by file descriptors alone.
//!
//! Invariant: nothing of it has a name outside this process. The kernel removes namespaces, links, mounts and pins when the last
//! descriptor and the last process in them are gone, so a crash of the lab leaves none behind. Nobody but threads that end enters one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::sys;

/// A place to run things in.
#[derive(Debug)]
pub struct Space {
    name: String,
    net: OwnedFd,
    mounts: Option<OwnedFd>,
}

impl Space {
    /// A new network namespace with `lo` up, in the host's mounts.
    ///
    /// # Errors
    /// The kernel refused (no root).
    pub fn network(name: impl Into<String>) -> Result<Self> {
        Self::create(name.into(), || {
            sys::new_network()?;
            Ok((current("net")?, None))
        })
    }

    /// A new network namespace in mounts of its own, where /sys is the new namespace's and `bpffs` a file system for pins.
    ///
    /// # Errors
    /// The kernel refused (no root, no bpffs).
    pub fn machine(name: impl Into<String>, bpffs: &Path) -> Result<Self> {
        let bpffs = bpffs.to_owned();
        Self::create(name.into(), move || {
            sys::new_network()?;
            sys::new_mounts()?;
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            mount("sysfs", "/sys", "sysfs", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
            mount("bpf", &bpffs, "bpf", MountFlags::empty(), None)?;
            Ok((current("net")?, Some(current("mnt")?)))
        })
    }

    /// A new network namespace, bound to the file `path` inside the mounts of `machine`: what a runtime makes for a pod.
    ///
    /// # Errors
    /// The kernel refused; `path` is there already.
    pub fn pod(name: impl Into<String>, machine: &Self, path: &Path) -> Result<Self> {
        let (name, path) = (name.into(), path.to_owned());
        machine.run(move || {
            sys::new_network().context("a network namespace for the pod")?;
            File::create_new(&path).with_context(|| format!("create {}", path.display()))?;
            mount_bind("/proc/thread-self/ns/net", &path).with_context(|| format!("bind {}", path.display()))?;
            loopback_up()?;
            Ok::<_, anyhow::Error>(Self { name, net: current("net")?, mounts: None })
        })?
    }

    fn create(name: String, f: impl FnOnce() -> io::Result<(OwnedFd, Option<OwnedFd>)> + Send) -> Result<Self> {
        thread::scope(|scope| {
            let made = scope.spawn(|| {
                let made = f()?;
                loopback_up()?;
                Ok::<_, anyhow::Error>(made)
            });
            made.join().map_err(|_| anyhow!("the thread that made it panicked"))?
        })
        .map(|(net, mounts)| Self { name: name.clone(), net, mounts })
        .with_context(|| format!("make the namespaces of {name} (needs root)"))
    }

    /// Name for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `f` inside, on a thread that then ends. Threads and processes that `f` starts are inside as well.
    ///
    /// # Errors
    /// The namespaces could not be entered, or `f` panicked.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let thread = thread::Builder::new()
                .name(self.name.clone())
                .spawn_scoped(scope, || self.enter().map(|()| f()))
                .context("start a thread")?;
            thread.join().map_err(|_| anyhow!("panicked in {}", self.name))?
        })
    }

    /// Moves the calling thread inside, for good.
    pub(crate) fn enter(&self) -> Result<()> {
        let into = |fd: &OwnedFd, kind| move_into_link_name_space(fd.as_fd(), Some(kind));
        into(&self.net, LinkNameSpaceType::Network).with_context(|| format!("enter the network of {}", self.name))?;
        if let Some(mounts) = &self.mounts {
            sys::own_root()?;
            into(mounts, LinkNameSpaceType::Mount).with_context(|| format!("enter the mounts of {}", self.name))?;
        }
        Ok(())
    }

    /// A path that other processes can open as this network namespace while the lab lives.
    #[must_use]
    pub fn net_path(&self) -> PathBuf {
        path_of(&self.net)
    }

    /// As [`Self::net_path`], the mount namespace.
    #[must_use]
    pub fn mounts_path(&self) -> Option<PathBuf> {
        self.mounts.as_ref().map(path_of)
    }

    /// A second handle on the same namespaces.
    ///
    /// # Errors
    /// No file descriptor left.
    pub fn try_clone(&self) -> Result<Self> {
        let mounts = self.mounts.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok(Self { name: self.name.clone(), net: self.net.try_clone()?, mounts })
    }

    /// Runs `ip -batch` inside.
    ///
    /// # Errors
    /// A line that `ip` refused, with its text.
    pub fn ip(&self, lines: &str) -> Result<()> {
        let out = self.feed(Command::new("ip").args(["-batch", "-"]), lines)?;
        if out.status.success() { Ok(()) } else { bail!("ip in {}: {}\n{lines}", self.name, out.text()) }
    }

    /// Runs a command inside to its end and gives what it wrote to stdout.
    ///
    /// # Errors
    /// It could not be started, or failed: with what it wrote.
    pub fn output(&self, command: &mut Command) -> Result<String> {
        let out = self.feed(command, "")?;
        if out.status.success() {
            Ok(out.stdout)
        } else {
            bail!("{} in {}: {}: {}", command.get_program().display(), self.name, out.status, out.text())
        }
    }

    /// Runs a command inside to its end with `input` on its stdin.
    ///
    /// # Errors
    /// It could not be started.
    pub fn feed(&self, command: &mut Command, input: &str) -> Result<Ended> {
        let program = command.get_program().display().to_string();
        self.run(|| {
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                // Who does not read its input has closed the pipe: not our concern.
                let _ = stdin.write_all(input.as_bytes());
            }
            child.wait_with_output()
        })?
        .map(|out| Ended {
            status: out.status,
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        })
        .with_context(|| format!("start {program} in {}", self.name))
    }

    /// Writes a network sysctl, such as `net/ipv4/ip_forward`.
    ///
    /// # Errors
    /// The kernel has no such setting, or refused the value.
    pub fn sysctl(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.run(|| {
            for (name, value) in settings {
                let path = Path::new("/proc/sys").join(name);
                fs::write(&path, value).with_context(|| format!("set {} to {value}", path.display()))?;
            }
            Ok(())
        })?
    }
}

/// What a process said.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub status: std::process::ExitStatus,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl Ended {
    /// Both outputs in one line for a message.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{} {}", self.stderr.trim(), self.stdout.trim()).trim().to_owned()
    }
}

fn current(kind: &str) -> io::Result<OwnedFd> {
    Ok(File::open(format!("/proc/thread-self/ns/{kind}"))?.into())
}

fn path_of(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()))
}

fn loopback_up() -> Result<()> {
    let status = Command::new("ip").args(["link", "set", "lo", "up"]).status().context("start ip (iproute2)")?;
    if status.success() { Ok(()) } else { bail!("ip link set lo up: {status}") }
}
