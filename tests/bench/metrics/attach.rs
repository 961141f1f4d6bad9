//! Metric 8: ADD and DEL, one after the other and fifty at once, of pods that a policy isolates: their rules are chosen and their addresses
//! become peers before ADD is answered.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::Bench;
use super::plugins::{self, Floor, Plugin};
use crate::report::Row;
use crate::stats::Spread;

const NETLINK: &str = "netlink alone, ADD";
/// Before a call that is timed alone.
const PAUSE: Duration = Duration::from_millis(40);
/// Callers at once.
const CROWD: usize = 50;
/// Crowds of each plugin; fewer than there are bursts, since fifty `ptp` take a second.
const CROWDS: usize = 7;

/// Metric 8.
pub(super) fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    let lab = plugins::osmia()?;
    let osmia = Plugin::of(&lab.node(0)?.runtime)?;
    let ptp = plugins::ptp(lab.folder())?;
    let ptp = Plugin::of(&ptp)?;
    let mut floor = Floor::new()?;
    let calls = bench.plan.bursts;

    // What is first called is read from disk.
    for pod in &mut plugins::sandboxes(&lab, 1)? {
        osmia.add(pod)?;
        plugins::ensure_isolated(&lab)?;
        osmia.del(pod)?;
    }
    for pod in &mut plugins::loose(1)? {
        ptp.add(pod)?;
        ptp.del(pod)?;
    }

    let mut ours = plugins::sandboxes(&lab, calls)?;
    let (mut theirs, bare) = (plugins::loose(calls)?, plugins::loose(calls)?);
    let (mut add, mut del, mut syncs) = (Times::default(), Times::default(), Vec::new());
    let mut links = Vec::new();
    for ((our, their), bare) in ours.iter_mut().zip(&mut theirs).zip(&bare) {
        add.osmia.push(alone(|| osmia.add(our))?);
        add.ptp.push(alone(|| ptp.add(their))?);
        let (link, took) = alone(|| floor.add(bare))?;
        links.push(link);
        add.floor.push(took);
        syncs.push(sync(lab.folder())?);
    }
    for ((our, their), link) in ours.iter_mut().zip(&mut theirs).zip(&links) {
        del.osmia.push(alone(|| osmia.del(our))?);
        del.ptp.push(alone(|| ptp.del(their))?);
        del.floor.push(alone(|| floor.del(link))?);
    }

    let parts = plugins::sandboxes(&lab, calls)?;
    let parts = parts.iter().map(|pod| alone(|| plugins::agent_part(&lab, pod))).collect::<Result<Vec<_>>>();
    let parts = parts.context("the agent's part")?;

    let (mut adds, mut dels) = (Times::default(), Times::default());
    for _ in 0..CROWDS.min(calls) {
        let (mut ours, mut theirs) = (plugins::sandboxes(&lab, CROWD)?, plugins::loose(CROWD)?);
        adds.osmia.push(osmia.at_once(&mut ours, Plugin::add)?);
        adds.ptp.push(ptp.at_once(&mut theirs, Plugin::add)?);
        dels.osmia.push(osmia.at_once(&mut ours, Plugin::del)?);
        dels.ptp.push(ptp.at_once(&mut theirs, Plugin::del)?);
    }

    let floor = milliseconds(&add.floor);
    let agent = Spread::of_ratios(&milliseconds(&parts), &floor)?;
    Ok(vec![
        add.against_ptp("ADD", 0.25)?,
        del.against_ptp("DEL", 0.10)?,
        adds.against_ptp("50 ADD at once", 0.25)?,
        dels.against_ptp("50 DEL at once", 0.25)?,
        Row::new("8", "ADD: the agent's part", NETLINK, agent, 2.0).with(absolute(&parts)?),
        add.floor("netlink alone: ADD")?,
        del.floor("netlink alone: DEL")?,
        Row::shown(
            "8",
            "a line synced to the journal's disk",
            NETLINK,
            Spread::of_ratios(&milliseconds(&syncs), &floor)?,
        )
        .with(absolute(&syncs)?),
    ])
}

/// A call after a pause: what the one before has left to the kernel (links that go, namespaces that change) holds the lock that every
/// change of a link takes, and would be counted to the wrong one.
fn alone<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    thread::sleep(PAUSE);
    call()
}

/// What the disk takes of every answer that has to be on it.
fn sync(folder: &Path) -> Result<Duration> {
    let path = folder.join("sync");
    let mut file = File::options().create(true).append(true).open(&path);
    let file = file.as_mut().map_err(|e| anyhow!("open {}: {e}", path.display()))?;
    let start = Instant::now();
    file.write_all(&[b'x'; 256]).and_then(|()| file.sync_data()).with_context(|| format!("sync {}", path.display()))?;
    Ok(start.elapsed())
}

#[derive(Default)]
struct Times {
    osmia: Vec<Duration>,
    ptp: Vec<Duration>,
    floor: Vec<Duration>,
}

impl Times {
    fn against_ptp(&self, what: &str, target: f64) -> Result<Row> {
        let spread = Spread::of_ratios(&milliseconds(&self.osmia), &milliseconds(&self.ptp))?;
        Ok(Row::new("8", what, "ptp plugin", spread, target).with(absolute(&self.osmia)?))
    }

    fn floor(&self, what: &str) -> Result<Row> {
        let spread = Spread::of_ratios(&milliseconds(&self.floor), &milliseconds(&self.ptp))?;
        Ok(Row::shown("8", what, "ptp plugin", spread).with(absolute(&self.floor)?))
    }
}

fn milliseconds(times: &[Duration]) -> Vec<f64> {
    times.iter().map(|t| t.as_secs_f64() * 1000.0).collect()
}

fn absolute(times: &[Duration]) -> Result<String> {
    Ok(format!("{:.2} ms", Spread::of(milliseconds(times))?.median))
}
