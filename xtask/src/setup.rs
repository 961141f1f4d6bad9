//! Set-up: steps that each look first, install what is missing, and where they may not, print the line to run.

mod deny;
mod go;
pub(crate) mod kernels;
mod linker;
mod packages;
mod toolchain;

pub(crate) use deny::binary as cargo_deny;

use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::say;
use crate::workspace::Workspace;

/// What a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Compiler, linker.
    Build,
    /// The same, and what checks dependencies.
    Lint,
    /// The same as to build, and the programs that tests, demo and bench run.
    Run,
    /// The same as to run, and what only tests call.
    Test,
    /// All of it.
    Everything,
}

/// One thing that has to be there.
trait Step {
    /// What it is, with its version.
    fn name(&self) -> String;
    /// What is missing, in a few words; `None` if nothing.
    fn missing(&self) -> Result<Option<String>>;
    /// Why we may not install it; `None` if we may.
    fn forbidden(&self) -> Option<String> {
        None
    }
    /// Installs what is missing. Called only after `missing` found something.
    fn install(&self) -> Result<()>;
    /// The line with which a person installs it.
    fn by_hand(&self) -> String;
}

/// Runs the steps of the scope, in the order in which they need each other.
pub(crate) fn run(workspace: &Workspace, scope: Scope) -> Result<()> {
    let mut steps: Vec<Box<dyn Step + '_>> = vec![
        Box::new(packages::Packages { scope }),
        Box::new(toolchain::PinnedToolchain { workspace }),
        Box::new(linker::BpfLinker { workspace }),
    ];
    if matches!(scope, Scope::Lint | Scope::Everything) {
        steps.push(Box::new(deny::CargoDeny { workspace }));
    }
    if matches!(scope, Scope::Test | Scope::Everything) {
        let programs = [go::CNITOOL, go::ETCD, go::APISERVER];
        steps.extend(programs.map(|program| Box::new(go::GoProgram { workspace, program }) as Box<dyn Step>));
    }
    steps.iter().try_for_each(|s| ensure(s.as_ref()))?;
    if scope == Scope::Everything {
        // Not a step: it says itself what is there. `test` runs it only after its build, which has built it.
        say::step("kernels of the matrix", || kernels::build_and_fetch(workspace))?;
    }
    Ok(())
}

fn ensure(step: &dyn Step) -> Result<()> {
    let name = step.name();
    let start = Instant::now();
    let Some(missing) = step.missing().with_context(|| format!("looking for {name}"))? else {
        say::line(format_args!("setup: {name}: there ({:.1} s)", start.elapsed().as_secs_f64()));
        return Ok(());
    };
    if let Some(why) = step.forbidden() {
        bail!("{name}: {missing}, and {why}. Run this, then try again:\n\n    {}\n", step.by_hand());
    }
    say::line(format_args!("setup: {name}: {missing}; installing"));
    let by_hand = || format!("installing {name} failed. By hand:\n\n    {}\n", step.by_hand());
    step.install().with_context(by_hand)?;
    if let Some(still) = step.missing()? {
        bail!("{name}: still {still} after installing it. By hand:\n\n    {}\n", step.by_hand());
    }
    say::line(format_args!("setup: {name}: installed ({:.1} s)", start.elapsed().as_secs_f64()));
    Ok(())
}
