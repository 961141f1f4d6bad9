//! Demo and bench: binaries of the tests' package, built with the pin and executed in our place.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::NoSetup;
use crate::build::{self, Built};
use crate::process::{is_root, run, text};
use crate::say;
use crate::setup::Scope;
use crate::workspace::{Workspace, clean};

/// Options of `demo`.
#[derive(Args)]
pub(crate) struct Demo {
    #[command(flatten)]
    setup: NoSetup,
    /// Way between nodes: native, vxlan or auto. By default all three
    #[arg(long, value_name = "WAY")]
    encap: Option<String>,
    /// Leave nodes and pods up at the end, and say how to enter them
    #[arg(long)]
    keep: bool,
    /// More for the demo itself, after `--`; `-- --help` shows its own help
    #[arg(last = true, value_name = "ARGS")]
    rest: Vec<String>,
}

/// Options of `bench`.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    setup: NoSetup,
    /// More for the bench itself, after `--`; `-- --help` shows its own help
    #[arg(last = true, value_name = "ARGS")]
    rest: Vec<String>,
}

/// Builds and becomes the demo.
pub(crate) fn demo(workspace: &Workspace, options: &Demo) -> Result<()> {
    let mut arguments: Vec<OsString> = Vec::new();
    if let Some(encap) = &options.encap {
        arguments.extend(["--encap".into(), encap.into()]);
    }
    if options.keep {
        arguments.push("--keep".into());
    }
    arguments.extend(options.rest.iter().map(Into::into));
    become_binary(workspace, options.setup, "demo", |command| command.args(arguments))
}

/// Builds and becomes the bench.
pub(crate) fn bench(workspace: &Workspace, options: &Bench) -> Result<()> {
    become_binary(workspace, options.setup, "bench", |command| command.args(&options.rest))
}

fn become_binary(
    workspace: &Workspace,
    setup: NoSetup,
    name: &str,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<()> {
    if !is_root() {
        bail!("the {name} makes network namespaces and loads BPF programs: run it as root");
    }
    setup.or_setup(workspace, Scope::Run)?;
    let built: Built = build::all(workspace)?;
    say::step(name, || {
        run(workspace.cargo("build").args(["--quiet", "--release", "-p", "osmia-tests", "--bin", name]))
    })?;
    let path = workspace.target().join("release").join(name);
    let mut command = clean(&path.to_string_lossy());
    command.current_dir(&workspace.root);
    command.env("OSMIA_TARGET_DIR", workspace.target());
    built.tell(arguments(&mut command));
    // In our place, so that Ctrl-C and kill reach the one that has to clean up.
    let error = command.exec();
    Err(error).with_context(|| format!("starting `{}`", text(&command)))
}
