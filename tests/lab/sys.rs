//! The only unsafe code of the lab.
#![expect(unsafe_code, reason = "unshare and pre_exec have no safe form")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives the calling thread a new network namespace.
pub(crate) fn new_network() -> io::Result<()> {
    // SAFETY: the file descriptor table stays shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(Into::into)
}

/// Gives the calling thread a copy of the mount namespace, and a working directory and root of its own.
pub(crate) fn new_mounts() -> io::Result<()> {
    // SAFETY: the file descriptor table stays shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(Into::into)
}

/// Gives the calling thread a working directory and root of its own, without which it may not enter a mount namespace.
pub(crate) fn own_root() -> io::Result<()> {
    // SAFETY: the file descriptor table stays shared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }.map_err(Into::into)
}

/// The process that `command` starts is killed when the thread that started it ends, whatever ended it.
pub(crate) fn die_with_thread(command: &mut Command) -> &mut Command {
    // SAFETY: one system call, no allocation, no lock.
    unsafe { command.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)) }
}
