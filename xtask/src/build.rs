//! Builds what a node runs and gathers it in one folder.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use osmia_ebpf_build::{Layout, Object};

use crate::process::run;
use crate::say;
use crate::workspace::Workspace;

/// Where things are after a build; tests, demo and bench get it by [`Built::tell`].
pub(crate) struct Built {
    /// Folder with `osmia-agent`, `osmia` and `osmia-cni`.
    pub(crate) bin_dir: PathBuf,
    /// The BPF object, as the agent embeds it.
    pub(crate) object: PathBuf,
}

impl Built {
    /// Tells a program of ours where the binaries are: `OSMIA_BIN_DIR` and `OSMIA_OBJECT`.
    pub(crate) fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("OSMIA_BIN_DIR", &self.bin_dir).env("OSMIA_OBJECT", &self.object)
    }
}

/// The BPF object.
pub(crate) fn object(workspace: &Workspace) -> Result<PathBuf> {
    match osmia_ebpf_build::object(&workspace.root, Layout::Ours)? {
        Object::Built(path) | Object::Given(path) => Ok(path),
        Object::Skipped => bail!("EBPF_SKIP is set: there is no object to build or test"),
    }
}

/// Object, agent, CLI and plugin.
pub(crate) fn all(workspace: &Workspace) -> Result<Built> {
    let object = say::step("BPF object", || object(workspace))?;
    let bin_dir = workspace.target().join("bin");
    fs::create_dir_all(&bin_dir).with_context(|| format!("making {}", bin_dir.display()))?;

    say::step("agent and CLI", || {
        run(workspace.cargo("build").args(["--quiet", "--release", "-p", "osmia-agent", "-p", "osmia", "--bins"]))
    })?;
    let release = workspace.target().join("release");
    for name in ["osmia-agent", "osmia"] {
        place(&release.join(name), &bin_dir.join(name))?;
    }

    let target = plugin_target();
    say::step("plugin", || {
        let arguments = ["--quiet", "--release", "-p", "osmia-cni", "--bins", "--target", &target];
        run(workspace.cargo("build").args(arguments))
    })?;
    place(&workspace.target().join(target).join("release").join("osmia-cni"), &bin_dir.join("osmia-cni"))?;
    Ok(Built { bin_dir, object })
}

/// The agent of the next layout, for the tests of an upgrade; unoptimised, as the test programs are, whose dependencies it shares.
pub(crate) fn next_agent(workspace: &Workspace, built: &Built) -> Result<()> {
    say::step("agent of the next layout", || {
        let features = ["--features", "next-layout"];
        run(workspace.cargo("build").args(["--quiet", "-p", "osmia-agent", "--bin", "osmia-agent"]).args(features))
    })?;
    place(&workspace.target().join("debug").join("osmia-agent"), &built.bin_dir.join("osmia-agent-next"))
}

/// What the plugin is built for. Static: no libc version to meet on the host it is copied to. And not with glibc, static or not: it asks
/// the CPU for the sizes of its caches each time a process starts, and in a virtual machine the hypervisor answers each of those
/// questions. That was 0.7 ms of the 1 ms that a call of the plugin took beside its work (tried).
pub(crate) fn plugin_target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Copies under a new name first: the old file may be running.
fn place(from: &PathBuf, to: &PathBuf) -> Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new).with_context(|| format!("copying {} to {}", from.display(), new.display()))?;
    fs::rename(&new, to).with_context(|| format!("renaming {} to {}", new.display(), to.display()))
}
