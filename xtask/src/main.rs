//! Set-up and orchestration: installs what the repository needs, builds it with the pinned toolchain, runs tests, demo and bench.
//!
//! Builds with any stable Rust from 1.90 on, since it is what installs the pin. It depends on no member but `ebpf-build`; whatever
//! needs the others is a binary of theirs that it builds and executes.

mod build;
mod lint;
mod process;
mod run;
mod say;
mod setup;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::setup::Scope;
use crate::workspace::Workspace;

/// Set-up, build, test and show Osmia.
///
/// Start with `cargo xtask demo`: it installs what is missing (each step named, with its time), builds everything and shows two
/// nodes with pods and policies. `cargo xtask test` runs every test. Both need root; where something may not be installed, the
/// exact line to run is printed.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", verbatim_doc_comment, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what is missing: system packages, the pinned toolchain, bpf-linker, cargo-deny, cnitool, etcd, kube-apiserver
    ///
    /// What is there is left alone, so a second run takes a second. Released etcd and kube-apiserver in KUBEBUILDER_ASSETS are used
    /// as they are; else both are built once, which takes some 8 minutes. The toolchain and the linker belong together: both are
    /// pinned in the root Cargo.toml, [workspace.metadata.osmia], and a new pin builds a new linker.
    Setup,
    /// Build the BPF object, agent, CLI and plugin into target/bin
    ///
    /// target/bin then has osmia-agent (the object embedded), osmia and osmia-cni (static): what a node needs.
    Build(NoSetup),
    /// Build the BPF object only and print where it is
    ///
    /// `cargo build` of the agent does the same by itself. EBPF_OBJECT, EBPF_TOOLCHAIN and EBPF_LINKER override what is used.
    BuildEbpf(NoSetup),
    /// Check formatting, lints of both halves, licences, duplicate and foreign dependencies
    Lint(NoSetup),
    /// Run every test: unit tests, then those in namespaces and VMs, which need root
    ///
    /// Everything is built once, then each test binary runs with OSMIA_BIN_DIR (folder with osmia-agent, osmia, osmia-cni)
    /// and OSMIA_OBJECT (the BPF object). `cargo xtask test fragment` runs only tests whose name has `fragment` in it.
    Test(test::Options),
    /// Run the kernel matrix: the programs loaded by each supported kernel in a VM. Part of `test`
    Kernels(NoSetup),
    /// Show the main job: nodes, pods added as containerd does, every path and policy probed, a table that ends in pass or fail
    Demo(run::Demo),
    /// Measure against references built here; prints the table and writes target/bench/latest.json
    Bench(run::Bench),
}

#[derive(Args, Clone, Copy)]
struct NoSetup {
    /// Install nothing and check nothing first
    #[arg(long)]
    no_setup: bool,
}

impl NoSetup {
    fn or_setup(self, workspace: &Workspace, scope: Scope) -> Result<()> {
        if self.no_setup { Ok(()) } else { setup::run(workspace, scope) }
    }
}

fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // Not by returning it: a backtrace of xtask tells nobody anything.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<()> {
    let workspace = Workspace::find()?;
    match command {
        Command::Setup => setup::run(&workspace, Scope::Everything),
        Command::Build(setup) => {
            setup.or_setup(&workspace, Scope::Build)?;
            let built = build::all(&workspace)?;
            say::line(format_args!("{}", built.bin_dir.display()));
            Ok(())
        }
        Command::BuildEbpf(setup) => {
            setup.or_setup(&workspace, Scope::Build)?;
            say::line(format_args!("{}", build::object(&workspace)?.display()));
            Ok(())
        }
        Command::Lint(setup) => {
            setup.or_setup(&workspace, Scope::Lint)?;
            lint::all(&workspace)
        }
        Command::Test(options) => test::run_all(&workspace, &options),
        Command::Kernels(setup) => test::run_all(&workspace, &test::Options::kernels(setup)),
        Command::Demo(options) => run::demo(&workspace, &options),
        Command::Bench(options) => run::bench(&workspace, &options),
    }
}
