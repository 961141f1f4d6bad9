//! Debian packages: what building needs, and what tests, demo and bench run.

use std::collections::HashSet;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::{Scope, Step};
use crate::process::{is_root, run};
use crate::say;

/// A C compiler: rustc links with it, and bpf-linker's build compiles a little C++.
const BUILD: &[&str] = &["g++", "gcc", "libc6-dev", "zlib1g-dev"];

/// What tests, demo and bench run beside our own binaries.
const RUN: &[&str] = &[
    "bpftool",                     // dumps what the kernel has, as a second opinion
    "busybox-static",              // the user space of the kernel VMs
    "containerd",                  // a real caller of the plugin
    "containernetworking-plugins", // the ptp plugin, the reference of the bench
    "curl",                        // speaks to the apiserver
    "e2fsprogs",                   // mkfs.ext4: the disk of a node that loses its power
    "ethtool",                     // switches offloads off, so that the underlay segments
    "iperf3",                      // bulk streams
    "iproute2",                    // ip, tc, ss
    "iptables",                    // what other software on a node uses
    "kmod",                        // modprobe
    "nftables",                    // the DNAT of the tests, the references' rules
    "qemu-system-x86",             // the kernel VMs
    "runc",                        // containerd's runtime
    "strace",                      // kills agents and plugins at a chosen system call
    "tcpdump",                     // captures on the LAN
    "xz-utils",                    // modules in kernel packages are compressed
];

/// The step.
pub(super) struct Packages {
    /// Decides which list.
    pub(super) scope: Scope,
}

impl Packages {
    fn wanted(&self) -> impl Iterator<Item = &'static str> {
        let run: &[&str] = match self.scope {
            Scope::Build | Scope::Lint => &[],
            Scope::Run | Scope::Test | Scope::Everything => RUN,
        };
        BUILD.iter().chain(run).copied()
    }

    /// Those that dpkg does not have as installed.
    fn absent(&self) -> Result<Vec<&'static str>> {
        let out = Command::new("dpkg-query")
            .args(["--show", "--showformat", "${db:Status-Status} ${Package}\\n"])
            .args(self.wanted())
            // Of a package it never heard of it says so on stderr and exits with 1: that is the answer, not a failure.
            .stderr(Stdio::null())
            .output()
            .context(
                "running dpkg-query: this set-up knows Debian 12; elsewhere install the tools and use --no-setup",
            )?;
        let text = String::from_utf8_lossy(&out.stdout);
        let there: HashSet<&str> = text.lines().filter_map(|l| l.strip_prefix("installed ")).collect();
        Ok(self.wanted().filter(|p| !there.contains(p)).collect())
    }
}

impl Step for Packages {
    fn name(&self) -> String {
        "system packages".to_owned()
    }

    fn missing(&self) -> Result<Option<String>> {
        let absent = self.absent()?;
        Ok((!absent.is_empty()).then(|| format!("missing {}", absent.join(" "))))
    }

    fn forbidden(&self) -> Option<String> {
        (!is_root()).then(|| "only root may install them".to_owned())
    }

    fn install(&self) -> Result<()> {
        install(&self.absent()?)
    }

    fn by_hand(&self) -> String {
        let packages = self.absent().unwrap_or_else(|_| self.wanted().collect());
        format!("sudo apt-get update && sudo apt-get install -y --no-install-recommends {}", packages.join(" "))
    }
}

/// Installs Debian packages.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    // The lists on the machine are mostly fresh enough. Where they are missing or name versions that are gone, this fails at
    // once and the lists are fetched.
    if run(&mut apt(packages)).is_ok() {
        return Ok(());
    }
    say::line(format_args!("setup: the package lists look old; fetching them"));
    run(Command::new("apt-get").args(["update", "-q"]))?;
    run(&mut apt(packages))
}

fn apt(packages: &[&str]) -> Command {
    let mut apt = Command::new("apt-get");
    apt.args(["install", "-q", "-y", "--no-install-recommends"]).args(packages);
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    apt
}
