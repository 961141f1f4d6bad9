//! A place for tests that need root: own network and mount namespace of the calling thread, with a bpffs of its own. All of it goes with
//! the thread, whatever happens.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::UnshareFlags,
};

/// Where the bpffs of the namespace is.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";

/// Puts the calling thread, and what it starts, into namespaces of their own; the loopback is up.
pub(crate) fn enter() {
    unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS);
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    // sysfs shows the network namespace it was mounted from.
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).unwrap();
    mount("bpf", BPFFS, "bpf", MountFlags::empty(), None).unwrap();
    ip("link set lo up");
}

/// Puts the calling thread into a network namespace of its own.
pub(crate) fn own_network() {
    unshare(UnshareFlags::NEWNET);
}

fn unshare(flags: UnshareFlags) {
    #[expect(unsafe_code, reason = "the thread gives up sharing its file system attributes")]
    // SAFETY: nothing in these tests relies on a working directory or umask shared between threads.
    unsafe {
        rustix::thread::unshare_unsafe(flags).expect("root is needed");
    }
}

/// Root of the pins in the namespace.
pub(crate) fn root() -> PathBuf {
    Path::new(BPFFS).join("osmia")
}

/// Runs `ip` in the namespace and gives back what it wrote.
#[track_caller]
pub(crate) fn ip(arguments: &str) -> String {
    run("ip", arguments)
}

/// Runs a program and gives back what it wrote; panics where it fails.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &str) -> String {
    let out = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {arguments}: {error}");
    String::from_utf8(out.stdout).unwrap()
}

/// Ifindex of a device in the namespace.
#[track_caller]
pub(crate) fn ifindex(name: &str) -> u32 {
    run("cat", &format!("/sys/class/net/{name}/ifindex")).trim().parse().unwrap()
}

/// As [`ifindex`], 0 where there is no such device.
pub(crate) fn ifindex_or_0(name: &str) -> u32 {
    std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).map_or(0, |text| text.trim().parse().unwrap())
}
