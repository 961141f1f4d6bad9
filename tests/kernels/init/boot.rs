//! What process 1 owes to its machine: mounts, limits, modules, an end.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::system::{RebootCommand, finit_module, reboot};

/// Mounts proc, sysfs, bpffs and the cgroup tree. The folders below `/sys` are the kernel's own.
pub(crate) fn mounts() -> Result<String> {
    for (kind, at) in [("proc", "/proc"), ("sysfs", "/sys"), ("bpf", "/sys/fs/bpf"), ("cgroup2", "/sys/fs/cgroup")] {
        mount(kind, at, kind, MountFlags::empty(), None).with_context(|| format!("mount {kind} at {at}"))?;
    }
    Ok("proc sysfs bpf cgroup2".into())
}

/// Before 5.11 the memory of maps and programs counts against the locked memory of the process.
pub(crate) fn limits() -> Result<String> {
    setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).context("lift the limit of locked memory")?;
    Ok("locked memory unlimited".into())
}

/// Inserts a module.
pub(crate) fn insert(module: &Path) -> Result<String> {
    let file = File::open(module).with_context(|| format!("open {}", module.display()))?;
    finit_module(file, c"", 0).context("insert")?;
    Ok(String::new())
}

/// Ends the machine. Restart and not power-off: with `-no-reboot` qemu leaves at once, and no ACPI is needed.
pub(crate) fn end() {
    if let Err(err) = reboot(RebootCommand::Restart) {
        // Returning from process 1 makes the kernel panic, which ends qemu too.
        eprintln!("restart: {err}");
    }
}
