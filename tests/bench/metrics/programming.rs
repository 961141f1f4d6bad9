//! Metric 9: from an event at the API server to the maps.

use std::io::{self, Write as _};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use osmia_lab::apiserver;

use super::Bench;
use crate::report::Row;
use crate::rules::{BareMap, ENTRIES, Iptables, NftSet};
use crate::scale::{LARGE, MIDDLE, Scale, Teller};
use crate::stats::Spread;

/// Before what is timed: what the one before has left to do is over.
const PAUSE: Duration = Duration::from_millis(40);
/// Before a change that is timed under churn.
const APART: Duration = Duration::from_millis(100);
/// Changes under churn for each burst: with fewer there is no 99th of a hundred.
const A_BURST: usize = 10;

/// Metric 9.
pub(super) fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = alone(bench)?;
    let count = A_BURST * bench.plan.bursts;
    rows.extend(under_churn(bench.places.large()?, count, "")?);
    if apiserver::is_built() {
        let mut scale = Scale::build(LARGE, Teller::Apiserver).context("a real apiserver")?;
        rows.extend(under_churn(&mut scale, count, ", apiserver")?);
    } else {
        let why = "bench: no etcd and kube-apiserver (`cargo xtask setup` builds them): not measured with a real one";
        writeln!(io::stderr(), "{why}").context("write to stderr")?;
    }
    Ok(rows)
}

/// One change, and one that changes ten thousand rows.
fn alone(bench: &Bench) -> Result<Vec<Row>> {
    let mut scale = Scale::build(MIDDLE, Teller::Feed)?;
    let (mut nft, iptables, map) = (NftSet::new()?, Iptables::new()?, BareMap::new()?);
    let (mut elements, mut starts, mut pods, mut policies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for turn in 0..bench.plan.bursts {
        elements.push(rested(|| nft.add())?);
        pods.push(rested(|| scale.pod_change(turn))?);
        starts.push(rested(|| nft.nothing())?);
        policies.push(rested(|| scale.policy_change(turn))?);
    }
    let (mut restores, mut fills, mut sweeps, mut changed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.plan.bursts {
        restores.push(rested(|| iptables.restore())?);
        fills.push(rested(|| map.fill())?);
        let mut rows = 0;
        sweeps.push(rested(|| {
            let (took, count) = scale.sweeping_change()?;
            rows = count;
            Ok(took)
        })?);
        ensure!(rows >= ENTRIES as usize * 9 / 10, "{rows} rows are no {ENTRIES}");
        changed.push(rows as f64);
    }
    // As if each had as many rows.
    let share = f64::from(ENTRIES) / Spread::of(changed.clone())?.median;
    let even: Vec<f64> = sweeps.iter().map(|took| took * share).collect();
    let bare: Vec<f64> = elements.iter().zip(&starts).map(|(whole, start)| whole - start).collect();
    let absolute = |times: &[f64]| anyhow::Ok(format!("{:.2} ms", Spread::of(times.iter().copied())?.median));
    let swept = format!("{}, {:.0} rows", absolute(&sweeps)?, Spread::of(changed)?.median);
    let nft = "nft add element";
    let ratio = Spread::of_ratios;
    Ok(vec![
        Row::new("9", "a pod changed: event to map", nft, ratio(&pods, &elements)?, 0.10).with(absolute(&pods)?),
        Row::new("9", "a policy changed: event to map", nft, ratio(&policies, &elements)?, 0.10)
            .with(absolute(&policies)?),
        Row::shown("9", "nft without its process's start", nft, ratio(&bare, &elements)?).with(absolute(&bare)?),
        Row::new("9", "10,000 rows by one event", "iptables-restore", ratio(&even, &restores)?, 0.15).with(swept),
        Row::new("9", "10,000 rows by one event", "the same map in batches", ratio(&even, &fills)?, 5.0)
            .with(format!("{} bare", absolute(&fills)?)),
    ])
}

/// From event to enforcement, while all the cluster churns: before each change, and while it is waited for.
fn under_churn(scale: &mut Scale, count: usize, whose: &str) -> Result<[Row; 2]> {
    let mut times = Vec::new();
    for turn in 0..count {
        scale.churn_for(APART)?;
        let took = scale.under_churn(|scale| match turn % 2 {
            0 => scale.pod_change(turn / 2),
            _ => scale.policy_change(turn / 2),
        })?;
        times.push(took.as_secs_f64() * 1000.0);
    }
    let middle = Spread::of(times.iter().copied())?;
    let last = percentile(times, 0.99);
    let single = Spread { q1: last, median: last, q3: last };
    Ok([
        Row::new("9", format!("30k pods, policies{whose}: p50"), "ms", middle, 5.0)
            .with(format!("{count} changes under churn")),
        Row::new("9", format!("30k pods, policies{whose}: p99"), "ms", single, 50.0),
    ])
}

/// Milliseconds.
fn rested(call: impl FnOnce() -> Result<Duration>) -> Result<f64> {
    thread::sleep(PAUSE);
    Ok(call()?.as_secs_f64() * 1000.0)
}

fn percentile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (part * values.len() as f64).ceil() as usize;
    values.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
