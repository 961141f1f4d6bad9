//! `demo`: two nodes and a third across, an agent on each, pods by the plugin, and a table of what gets through.
//!
//! Every row is decided by the receiver and has a twin that must fail: the same probe with the agent's row withheld, or, of policy, what the
//! same policy keeps out.

mod guests;
mod kill;
mod maps;
mod packets;
mod policy;
mod report;
mod rows;
mod run;
mod stories;
mod table;
mod wire;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use osmia_lab::Encap;

use crate::report::Report;
use crate::run::Stage;

#[derive(Parser)]
#[command(about = "Shows pods of several nodes talking, and what must not get through")]
struct Options {
    /// Way between nodes
    #[arg(long, value_enum, default_value_t = Way::All)]
    encap: Way,
    /// Leave everything up at the end, until Ctrl-C, and say how to enter
    #[arg(long)]
    keep: bool,
    /// Print the names of all rows and end
    #[arg(long)]
    list: bool,
    /// Write a line for each row as well: its name, `pass` or `fail`, and why
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    Native,
    Vxlan,
    Auto,
    All,
}

impl Way {
    fn encaps(self) -> Vec<Encap> {
        match self {
            Self::Native => vec![Encap::Native],
            Self::Vxlan => vec![Encap::Vxlan],
            Self::Auto => vec![Encap::Auto],
            Self::All => Encap::ALL.to_vec(),
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match demo(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            // Nobody to tell if stderr is closed.
            let _ = writeln!(io::stderr(), "demo: {err:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs it; says whether every row passed.
fn demo(options: &Options) -> Result<bool> {
    let encaps = options.encap.encaps();
    if options.list {
        say(&encaps.iter().flat_map(|e| rows::ids(*e)).fold(String::new(), |text, id| text + &id + "\n"))?;
        return Ok(true);
    }
    osmia_lab::clean_up_when_told_to_end()?;
    let (mut report, mut kept, mut shown) = (Report::default(), Vec::new(), String::new());
    for encap in encaps {
        let stage = run::encap(encap, &mut report, &mut shown, say)?;
        say(&table::of(encap, &report))?;
        kept.extend(stage.filter(|_| options.keep));
    }
    if let Some(path) = &options.results {
        fs::write(path, report.lines()).with_context(|| format!("write {}", path.display()))?;
    }
    say(&shown)?;
    let sum = report.sum();
    say(&table::end(&report, sum))?;
    if options.keep {
        stay(&kept)?;
    }
    Ok(sum.failed == 0)
}

/// Leaves everything up until a signal ends the process, which cleans up.
fn stay(stages: &[Stage]) -> Result<()> {
    let osmia = osmia_lab::bin_dir()?.join("osmia");
    let mut text = String::new();
    for Stage { lab, guests, cast } in stages {
        let _ = writeln!(text, "\n--encap {} is still up, in {}:", lab.options().encap.name(), lab.folder().display());
        for node in &lab.nodes {
            let paths = &node.paths;
            let (osmia, bpffs, run) = (osmia.display(), paths.bpffs.display(), paths.run.display());
            let _ = writeln!(text, "  {:12}{}", node.name, node.enter_line());
            let _ = writeln!(text, "{:14}there: {osmia} --bpffs {bpffs} --run {run} status", "");
            let _ = writeln!(text, "{:14}log: {}", "", paths.log.display());
            let _ = writeln!(text, "{:14}manifests, also policies: {}", "", paths.manifests.display());
        }
        let pods = guests.iter().flat_map(|g| g.present()).chain(cast.iter().flat_map(|cast| cast.present()));
        let pods = pods.map(|pod| &pod.space);
        for space in pods.chain([&lab.lan.outside, &lab.lan.router, &lab.lan.bridges]) {
            let _ = writeln!(text, "  {:12}nsenter --net={}", space.name(), space.net_path().display());
        }
    }
    say(&(text + "\nCtrl-C here ends and removes everything.\n"))?;
    loop {
        thread::park();
    }
}

fn say(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("write to stdout")
}
