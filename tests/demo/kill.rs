//! The kill row: agents killed and started again at random moments, half of them inside start-up, under load.
//!
//! Invariant: the load runs between pods of two nodes before, during and after, and only its receivers are asked.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use osmia_lab::load::{Connects, ConnectsReport, Datagrams, DatagramsReport, Stream};
use osmia_lab::{Lab, Node, OUTSIDE_V4, Pod, Probe, Proto, random};

use crate::guests::{Guests, HOME, NEAR, need};
use crate::report::Outcome;

/// Kills of each of the two agents at least; half of all inside start-up.
const CYCLES: usize = 10;
/// No agent is killed more often than this to reach both.
const MOST: usize = 30;
/// An undisturbed stream is measured this long, of each kind of time so much at least.
const UNDISTURBED: Duration = Duration::from_secs(3);
const DATAGRAMS: u32 = 2000;
const CONNECT_EVERY: Duration = Duration::from_millis(5);
/// Bytes a second.
const STREAM: u64 = 50_000_000;
const STREAM_KEEPS: f64 = 0.98;

/// Runs it.
pub(crate) fn row(lab: &Lab, guests: &Guests) -> Outcome {
    let (client, remote) = (need(&guests.client)?, need(&guests.remote)?);
    disturb(lab, client, remote, need(&guests.unlisted)?).map_err(|err| format!("{err:#}"))
}

/// The load between the pods, and beside it a stream over the wire alone: what the machine itself takes from a stream while agents
/// start shows there as well, and only the difference is the dataplane's.
struct Load {
    wire: Stream,
    there: Datagrams,
    back: Datagrams,
    connects: Connects,
    stream: Stream,
}

impl Load {
    fn start(lab: &Lab, client: &Pod, remote: &Pod) -> Result<Self> {
        let (c6, r4, r6) = (client.address(true)?, remote.address(false)?, remote.address(true)?);
        let (client, remote) = (&client.space, &remote.space);
        Ok(Self {
            wire: Stream::start(&lab.lan.router, &lab.lan.outside, OUTSIDE_V4.into(), STREAM)?,
            stream: Stream::start(client, remote, r4, STREAM)?,
            there: Datagrams::start(client, remote, r4, DATAGRAMS)?,
            back: Datagrams::start(remote, client, c6, DATAGRAMS)?,
            connects: Connects::start(client, remote, r6, CONNECT_EVERY)?,
        })
    }
}

/// Bytes that the pods' stream and the one beside it have received, and when.
struct Mark {
    at: Instant,
    stream: u64,
    wire: u64,
}

impl Mark {
    fn now(load: &Load) -> Self {
        Self { at: Instant::now(), stream: load.stream.received(), wire: load.wire.received() }
    }

    /// Bytes a second of both since an earlier mark.
    fn since(&self, before: &Self) -> (f64, f64) {
        let seconds = (self.at - before.at).as_secs_f64();
        let rate = |now: u64, then: u64| (now - then) as f64 / seconds;
        (rate(self.stream, before.stream), rate(self.wire, before.wire))
    }
}

/// The twin: of the same datagrams to a pod whose row is withheld none arrives, and the load says so.
fn lost(client: &Pod, unlisted: &Pod) -> Result<()> {
    let datagrams = Datagrams::start(&client.space, &unlisted.space, unlisted.address(false)?, DATAGRAMS)?;
    thread::sleep(Duration::from_millis(300));
    let DatagramsReport { sent, missing, .. } = datagrams.finish()?;
    if sent == 0 || missing < sent {
        bail!("its twin: {missing} of {sent} datagrams missing at a pod whose row is withheld");
    }
    Ok(())
}

fn disturb(lab: &Lab, client: &Pod, remote: &Pod, unlisted: &Pod) -> Result<String> {
    lost(client, unlisted)?;
    let load = Load::start(lab, client, remote)?;
    // Slow start and flow set-up are no part of it.
    thread::sleep(Duration::from_millis(300));
    let first = Mark::now(&load);
    thread::sleep(UNDISTURBED);
    let second = Mark::now(&load);
    let undisturbed = second.since(&first);
    if load.there.arrived() == 0 || load.back.arrived() == 0 || undisturbed.0 < 1.0 {
        bail!("the load does not even arrive undisturbed");
    }
    let start = Instant::now();
    let cycles = thread::scope(|scope| {
        let agents = [HOME, NEAR].map(|index| scope.spawn(move || cycles(&lab.nodes[index])));
        agents.map(|agent| agent.join().unwrap_or_else(|_| bail!("killing panicked")))
    });
    let disturbed = Mark::now(&load).since(&second);
    let took = start.elapsed();
    let there = load.there.finish()?;
    let back = load.back.finish()?;
    let connects = load.connects.finish()?;
    let (stream, wire) = (load.stream.finish(), load.wire.finish());
    let [home, near] = cycles;
    let (home, near) = (home?, near?);
    stream.context("the stream")?;
    wire.context("the stream beside it")?;
    let counted = Counted {
        kills: home.kills + near.kills,
        inside: home.inside + near.inside,
        took,
        datagrams: [there, back],
        connects,
        stream: disturbed.0 / undisturbed.0,
        wire: disturbed.1 / undisturbed.1,
    };
    counted.judge()?;
    serves_after(lab)?;
    reach(client, unlisted).context("rows that were withheld are not back after a start")?;
    Ok(counted.text())
}

struct Counted {
    kills: usize,
    inside: usize,
    took: Duration,
    datagrams: [DatagramsReport; 2],
    connects: ConnectsReport,
    /// Disturbed by undisturbed, of the pods' stream and of the one beside it.
    stream: f64,
    wire: f64,
}

impl Counted {
    fn text(&self) -> String {
        let sent: u64 = self.datagrams.iter().map(|d| d.sent).sum();
        let missing: u64 = self.datagrams.iter().map(|d| d.missing).sum();
        let mut text =
            format!("{} kills, {} inside start-up, in {:.0} s: ", self.kills, self.inside, self.took.as_secs_f64());
        let _ = write!(text, "{missing} of {sent} datagrams missing, ");
        let _ = write!(text, "{} of {} connects failed, ", self.connects.failed, self.connects.tried);
        let _ = write!(text, "stream {:.3} of undisturbed, one on the bare wire {:.3}", self.stream, self.wire);
        text
    }

    fn judge(&self) -> Result<()> {
        let text = self.text();
        for datagrams in &self.datagrams {
            if datagrams.missing > 0 || datagrams.refused > 0 {
                bail!(
                    "{text} (longest gap {}, refused by the sender's kernel {})",
                    datagrams.longest,
                    datagrams.refused
                );
            }
        }
        if self.connects.failed > 0 || self.connects.served < self.connects.tried {
            bail!("{text} ({})", self.connects.first.as_deref().unwrap_or("the server served fewer"));
        }
        if self.stream < STREAM_KEEPS * self.wire.min(1.0) {
            bail!("{text}");
        }
        // Load that the machine could not keep up proves nothing.
        let seconds = self.took.as_secs_f64();
        let least = 0.5 * seconds * f64::from(DATAGRAMS);
        if self.datagrams.iter().any(|d| (d.sent as f64) < least) || (self.connects.tried as f64) < 20.0 * seconds {
            bail!("{text} (the machine could not keep up the load)");
        }
        Ok(())
    }
}

#[derive(Default)]
struct Cycles {
    kills: usize,
    inside: usize,
}

/// Kills and starts one agent until there are enough kills and half of them were inside start-up; leaves one that serves.
fn cycles(node: &Node) -> Result<Cycles> {
    let mut done = Cycles::default();
    let mut start_up = Duration::from_millis(200);
    let below = |limit: Duration| Duration::from_nanos(random() % (limit.as_nanos() as u64).max(1));
    while (done.kills < CYCLES || 2 * done.inside < done.kills) && done.kills < MOST {
        if node.agent().is_none() {
            node.start_agent()?;
        }
        let early = 2 * done.inside <= done.kills;
        if early {
            // Somewhere between fork and the open socket, if the last start is a measure.
            thread::sleep(below(start_up));
        } else {
            start_up = node.wait_ready()?.max(Duration::from_millis(5));
            thread::sleep(below(Duration::from_millis(300)));
        }
        let served = node.kill_agent()?;
        if early && served {
            // It starts faster than the last time.
            start_up /= 2;
        }
        done.kills += 1;
        done.inside += usize::from(!served);
        thread::sleep(below(Duration::from_millis(100)));
    }
    if done.kills < CYCLES || 2 * done.inside < done.kills {
        bail!("{} was killed {} times and only {} of them inside start-up", node.name, done.kills, done.inside);
    }
    node.start_agent()?;
    node.wait_ready()?;
    Ok(done)
}

/// The last agents still do what agents are for.
fn serves_after(lab: &Lab) -> Result<()> {
    let pods = [lab.add_pod(HOME, "late-a")?, lab.add_pod(NEAR, "late-b")?];
    let [a, b] = &pods;
    reach(a, b).context("pods added after the kills")?;
    for pod in pods {
        lab.delete_pod(pod).context("delete a pod after the kills")?;
    }
    Ok(())
}

fn reach(from: &Pod, to: &Pod) -> Result<()> {
    for v6 in [false, true] {
        let patience = Duration::from_secs(3);
        let (from_space, to_space, destination) = (&from.space, &to.space, to.address(v6)?);
        let probe = Probe { proto: Proto::Udp, from: from_space, to: to_space, destination, patience };
        probe.run()?.complete(from.address(v6)?).map_err(anyhow::Error::msg)?;
    }
    Ok(())
}
