//! The kernels of the matrix. What they are and how they are fetched is the business of the tests' package; its fetcher is run
//! here, and leaves alone what is there.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process::run;
use crate::workspace::{Workspace, clean};

/// The fetcher, a binary of the tests' package.
pub(crate) const FETCHER: &str = "osmia-kernel-fetch";

/// Tells fetcher and tests the folder that has `kernels`.
pub(crate) fn tell<'a>(workspace: &Workspace, command: &'a mut Command) -> &'a mut Command {
    command.env("OSMIA_TARGET_DIR", workspace.target())
}

/// Builds the fetcher and runs it.
pub(super) fn build_and_fetch(workspace: &Workspace) -> Result<()> {
    let mut cargo = workspace.cargo("run");
    run(tell(workspace, cargo.args(["--quiet", "--package", "osmia-tests", "--bin", FETCHER])))
}

/// Runs a fetcher that was built with the tests.
pub(crate) fn fetch(workspace: &Workspace, fetcher: &Path) -> Result<()> {
    run(tell(workspace, &mut clean(&fetcher.to_string_lossy())))
}
