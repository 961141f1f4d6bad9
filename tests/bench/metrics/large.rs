//! Metric 10: what the agent costs on a node of a large cluster.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use osmia_lab::feed::Sizes;

use super::Bench;
use super::node::memory;
use crate::cpu;
use crate::report::Row;
use crate::scale::{LARGE, Scale, Teller};
use crate::stats::Spread;

/// What an agent does after its start is over.
const SETTLED: Duration = Duration::from_secs(3);
/// How long the agent is watched, a piece, and pieces.
const PIECE: Duration = Duration::from_secs(4);
const PIECES: usize = 5;
/// Cycles of churn, and steps of one: every thirtieth pod is replaced.
const CYCLES: usize = 10;
const CYCLE: usize = 1_000;

/// Metric 10.
pub(super) fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    let none = at_rest(&Scale::build(Sizes { pods: 0, policies: 0, here: 0, ..LARGE }, Teller::Feed)?)?;
    let policies = at_rest(&Scale::build(Sizes { pods: 0, here: 0, ..LARGE }, Teller::Feed)?)?;
    let scale = bench.places.large()?;
    let all = at_rest(scale)?;
    let pid = scale.pid()?;

    let mut shares = Vec::new();
    for _ in 0..PIECES.min(bench.plan.bursts) {
        let (start, before) = (Instant::now(), cpu::of_process(pid)?);
        scale.churn_for(PIECE)?;
        let used = Duration::from_nanos(cpu::of_process(pid)? - before);
        shares.push(used.as_secs_f64() / start.elapsed().as_secs_f64());
    }

    let steps = CYCLE.min(bench.plan.bursts * CYCLE / 31);
    scale.churn_at_once(steps)?;
    let before = at_rest(scale)?;
    for _ in 0..CYCLES {
        scale.churn_at_once(steps)?;
    }
    let growth = 100.0 * (at_rest(scale)? / before - 1.0);

    let single = |value| Spread::of([value]);
    let megabytes = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
    let each = (all - policies) / LARGE.pods as f64;
    Ok(vec![
        Row::new("10", "resident memory", "MB", single(all / 1e6)?, 150.0),
        Row::new("10", "resident memory", "without pods and policies", single(all / none)?, 3.0).with(megabytes(none)),
        Row::new("10", "memory of a remote pod", "bytes", single(each)?, 1024.0)
            .with(format!("{} without pods", megabytes(policies))),
        Row::new("10", "CPU under churn", "cores", Spread::of(shares)?, 0.03),
        Row::new("10", format!("growth over {CYCLES} cycles of churn"), "%", single(growth)?, 2.0)
            .with(format!("{steps} pods replaced in each")),
    ])
}

/// Bytes in memory when nothing happens any more.
fn at_rest(scale: &Scale) -> Result<f64> {
    thread::sleep(SETTLED);
    memory(scale.pid()?, "VmRSS:")
}
