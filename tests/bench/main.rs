//! `bench`: what packets, connections, pods and an idle node cost, as ratios to references that it builds itself.
//!
//! Invariant: everything is measured against something that takes turns with it in the same run. Absolute times belong to the
//! machine and are judged only where a bound is far off. docs/benchmarks.md says what each metric is and why.

mod cpu;
mod hook;
mod load;
mod metrics;
mod places;
mod probe;
mod product;
mod programs;
mod references;
mod report;
mod rules;
mod scale;
mod stats;
mod svg;
mod sys;

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;

use crate::metrics::{Bench, Metric};
use crate::places::Places;
use crate::report::Row;
use crate::stats::Plan;

#[derive(Parser)]
#[command(about = "Measures what Osmia costs beside a bare veth pair and the kernel's own ways")]
struct Options {
    /// Only these metrics. By default all
    #[arg(long, value_enum, num_args = 1.., value_delimiter = ',')]
    metric: Vec<Metric>,
    /// Bursts of each load, and calls of each plugin
    #[arg(long, default_value_t = 31)]
    bursts: usize,
    /// A few short bursts: shows that all of it runs, says nothing about cost
    #[arg(long)]
    quick: bool,
    /// Without Osmia: the references among themselves, to see how good the method is on this machine
    #[arg(long)]
    references: bool,
    /// Folder for latest.json and latest.svg
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let Some(code) = probe::run(&arguments) {
        return code;
    }
    match bench(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            // Nobody to tell if stderr is closed.
            let _ = writeln!(io::stderr(), "bench: {err:#}");
            ExitCode::from(2)
        }
    }
}

/// Measures; says whether every target was met.
fn bench(options: &Options) -> Result<bool> {
    // Agents, plugins, loads and references alike.
    cpu::go_first()?;
    osmia_lab::clean_up_when_told_to_end()?;
    let plan = if options.quick {
        Plan { bursts: 5, length: Duration::from_millis(100) }
    } else {
        Plan { bursts: options.bursts, length: Duration::from_millis(300) }
    };
    let metrics = if options.references {
        vec![Metric::References]
    } else if options.metric.is_empty() {
        Metric::ALL.to_vec()
    } else {
        options.metric.clone()
    };
    let mut bench = Bench { plan, places: Places::default() };
    let mut rows: Vec<Row> = Vec::new();
    say(&report::head())?;
    for metric in metrics {
        let found = metric.measure(&mut bench).with_context(|| format!("metric {}", metric.name()))?;
        for row in &found {
            say(&report::row(row))?;
        }
        rows.extend(found);
        // What there is so far outlives a failure of the next.
        write(options, &rows)?;
    }
    say(&report::sum(&rows))?;
    Ok(rows.iter().all(|row| row.met != Some(false)))
}

fn write(options: &Options, rows: &[Row]) -> Result<()> {
    let folder = &options.out;
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    for (name, text) in [("latest.json", serde_json::to_string_pretty(rows)?), ("latest.svg", svg::draw(rows))] {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn say(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("write to stdout")
}
