//! What a node pays while nothing happens, and what the plugin's start costs.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use osmia_lab::{Encap, Underlay, bin_dir};

use super::Bench;
use crate::cpu;
use crate::report::Row;
use crate::stats::Spread;

/// How long the agent is watched, a piece.
const PIECE: Duration = Duration::from_secs(4);
/// Pieces.
const PIECES: usize = 5;
/// Starts of a program that one figure is the mean of.
const STARTS: u32 = 10;

/// CPU time and memory of an agent with pods that are silent.
pub(super) fn idle(bench: &mut Bench) -> Result<Vec<Row>> {
    let product = bench.places.product(Encap::Native, Underlay::Passing)?;
    let pid = product.lab.node(0)?.agent().as_ref().context("the agent does not run")?.pid();
    // What it does after its start and after ADDs is over.
    thread::sleep(PIECE);
    let mut shares = Vec::new();
    for _ in 0..PIECES.min(bench.plan.bursts) {
        let (start, before) = (Instant::now(), cpu::of_process(pid)?);
        thread::sleep(PIECE);
        let used = Duration::from_nanos(cpu::of_process(pid)? - before);
        shares.push(100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64());
    }
    let memory = Spread::of([memory(pid, "VmRSS:")? / 1e6])?;
    let maps = format!("{:.1} MB of maps beside it", map_memory(pid)? / 1e6);
    Ok(vec![
        Row::new("agent", "idle", "% of a core", Spread::of(shares)?, 0.2),
        Row::new("agent", "resident memory", "MB", memory, 15.0).with(maps),
    ])
}

/// Bytes of the process in memory, by a field of its status (proc(5)): now (`VmRSS:`), at most so far (`VmHWM:`).
pub(super) fn memory(pid: u32, field: &str) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let line = line.with_context(|| format!("no {field} in {path}"))?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse().with_context(|| format!("{field}{line}"))?;
    Ok(kibibytes * 1024.0)
}

/// Bytes that the kernel holds for the maps that the process has open.
fn map_memory(pid: u32) -> Result<f64> {
    let folder = format!("/proc/{pid}/fdinfo");
    let mut bytes = std::collections::BTreeMap::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("read {folder}"))? {
        // A descriptor may be closed by now.
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if let (Some(id), Some(memory)) = (field("map_id:"), field("memlock:")) {
            bytes.insert(id.to_owned(), memory.parse::<f64>().with_context(|| format!("memlock {memory}"))?);
        }
    }
    Ok(bytes.values().sum())
}

/// From start to end of the plugin answering VERSION, against a program that does nothing.
pub(super) fn version(bench: &mut Bench) -> Result<Vec<Row>> {
    let plugin = bin_dir()?.join("osmia-cni");
    let mut plugin = Command::new(plugin);
    plugin.env_clear().env("CNI_COMMAND", "VERSION");
    let mut nothing = Command::new("/bin/true");
    nothing.env_clear();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    starts(&mut plugin)?;
    starts(&mut nothing)?;
    for _ in 0..bench.plan.bursts {
        theirs.push(starts(&mut nothing)?);
        ours.push(starts(&mut plugin)?);
    }
    let absolute = format!("{:.2} ms", Spread::of(ours.clone())?.median);
    Ok(vec![Row::new("plugin", "VERSION", "/bin/true", Spread::of_ratios(&ours, &theirs)?, 1.5).with(absolute)])
}

/// Mean time of a start, ms.
fn starts(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..STARTS {
        let out = command.output().with_context(|| format!("start {}", command.get_program().display()))?;
        ensure!(out.status.success(), "{}: {}", command.get_program().display(), out.status);
    }
    Ok(start.elapsed().as_secs_f64() * 1000.0 / f64::from(STARTS))
}
