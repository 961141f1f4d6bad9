//! Runs every test: builds all once, then each test binary by itself, unit tests first, then those that need root.

mod binaries;

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use self::binaries::TestBinary;
use crate::NoSetup;
use crate::build::{self, Built};
use crate::process::{is_root, run};
use crate::say;
use crate::setup::{Scope, kernels};
use crate::workspace::{Workspace, clean};

/// Options of `test`.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    setup: NoSetup,
    /// Only tests whose name, or whose test binary's name, contains this
    filter: Option<String>,
    /// For the test binaries, after `--`, such as `-- --nocapture`
    #[arg(last = true, value_name = "ARGS")]
    rest: Vec<String>,
}

impl Options {
    /// The kernel matrix alone.
    pub(crate) fn kernels(setup: NoSetup) -> Self {
        Self { setup, filter: Some(binaries::KERNELS.to_owned()), rest: Vec::new() }
    }
}

/// Builds and runs; fails if any test failed or none ran.
pub(crate) fn run_all(workspace: &Workspace, options: &Options) -> Result<()> {
    options.setup.or_setup(workspace, Scope::Test)?;
    let built = build::all(workspace)?;
    let binaries = say::step("test binaries", || binaries::build(workspace))?;
    let filter = options.filter.as_deref();

    let (mut ran, mut failed) = (0, Vec::new());
    if filter.is_none() {
        ran += 1;
        let documentation = say::step("examples in the documentation", || {
            run(workspace.cargo("test").args(["--quiet", "--workspace", "--doc"]))
        });
        if documentation.is_err() {
            failed.push("examples in the documentation".to_owned());
        }
    }
    for binary in &binaries.tests {
        let Some(arguments) = selected(binary, &built, filter)? else { continue };
        ran += 1;
        if binary.needs_kernels() && !options.setup.no_setup {
            say::step("kernels of the matrix", || kernels::fetch(workspace, &binaries.kernel_fetcher))?;
        }
        if binary.needs_next_agent() {
            build::next_agent(workspace, &built)?;
        }
        if binary.needs_root && !is_root() {
            failed.push(format!("{} (needs root)", binary.label));
            continue;
        }
        say::line(format_args!("==> {}", binary.label));
        let start = Instant::now();
        let mut command = clean(&binary.path.to_string_lossy());
        command.current_dir(&binary.folder).args(arguments).args(&options.rest).stdin(Stdio::null());
        kernels::tell(workspace, &mut command);
        let status =
            built.tell(&mut command).status().with_context(|| format!("starting {}", binary.path.display()))?;
        let outcome = if status.success() { "passed" } else { "FAILED" };
        say::line(format_args!("    {}: {outcome} ({:.1} s)", binary.label, start.elapsed().as_secs_f64()));
        if !status.success() {
            failed.push(binary.label.clone());
        }
    }
    if let Some(filter) = filter.filter(|_| ran == 0) {
        bail!("no test has `{filter}` in its name");
    }
    say::line(format_args!("programs: {} passed, {} failed", ran - failed.len(), failed.len()));
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Arguments with which the binary runs what the filter selects; `None` if that is nothing.
fn selected<'a>(binary: &TestBinary, built: &Built, filter: Option<&'a str>) -> Result<Option<Vec<&'a str>>> {
    let Some(filter) = filter else { return Ok(Some(Vec::new())) };
    if binary.label.contains(filter) {
        return Ok(Some(Vec::new()));
    }
    let mut list = clean(&binary.path.to_string_lossy());
    list.current_dir(&binary.folder).args(["--list", "--format", "terse", filter]).stdin(Stdio::null());
    let out = built.tell(&mut list).output().with_context(|| format!("listing the tests of {}", binary.label))?;
    let any = String::from_utf8_lossy(&out.stdout).lines().any(|l| l.ends_with(": test"));
    Ok(any.then(|| vec![filter]))
}
