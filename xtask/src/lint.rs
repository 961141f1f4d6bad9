//! Formatting, lints of both halves, which folder may use which, and what the dependencies are.

mod dependencies;
mod folders;

use anyhow::{Result, bail};

use crate::process::run;
use crate::say;
use crate::workspace::Workspace;

type Check = fn(&Workspace) -> Result<()>;

/// Every check. All run, so that one look shows all that is wrong.
pub(crate) fn all(workspace: &Workspace) -> Result<()> {
    let checks: [(&str, Check); 5] = [
        ("formatting", formatting),
        ("clippy", clippy),
        ("clippy of the BPF half", clippy_bpf),
        ("which folder uses which", folders::check),
        ("dependencies", dependencies::check),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        if let Err(error) = say::step(name, || check(workspace)) {
            say::line(format_args!("    {error:#}"));
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("lint failed: {}", failed.join(", "));
    }
    Ok(())
}

fn formatting(workspace: &Workspace) -> Result<()> {
    run(workspace.cargo("fmt").args(["--all", "--check"]))
}

fn clippy(workspace: &Workspace) -> Result<()> {
    run(workspace.cargo("clippy").args(["--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// The entry points: no host build sees them.
fn clippy_bpf(workspace: &Workspace) -> Result<()> {
    let mut clippy = osmia_ebpf_build::nested_cargo(&workspace.root, osmia_ebpf_build::Layout::Ours, "clippy")?;
    run(clippy.args(["--quiet", "--release", "--", "-D", "warnings"]))
}
