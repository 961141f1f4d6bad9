//! Test-runs of the program at a pod's link, as the agent attached it and with policy in force.
//!
//! * Metric 11: a packet of an established flow, against a program that does nothing and one that does one look-up of the same key in the
//!   same table.
//! * Metric 4: the same packet, and a first one, under thousands of policies against one. The first packet is one that its sender may send and
//!   its receiver may not get: both rule sets are asked, the receiver's twice (the class of the sender has rows, but none for the port),
//!   and nothing is written, so that each run is a first packet again.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use aya::Pod;
use osmia_lab::packet::flags::SYN;
use osmia_maps::layout::{FlowEntry, FlowKey4, FlowKey6};
use osmia_maps::{Access, Spec, Table, tables};

use super::Bench;
use crate::hook::{DROPPED, Hook, REDIRECTED};
use crate::places::Place;
use crate::probe::PORT;
use crate::product::{LAST_PORT, Product};
use crate::report::Row;
use crate::stats::Spread;
use crate::{programs as own, sys};

/// Runs a figure is the mean of.
const REPEAT: u32 = 100_000;
/// As many first packets, which cost some ten times as much.
const FIRSTS: u32 = 10_000;
/// UDP.
const UDP: u8 = 17;
/// Source port of the packets. No load has it.
const SOURCE: u16 = 7006;
/// From the first answer on, until a flow is promoted (`docs/architecture.md`).
const PROMOTED: Duration = Duration::from_millis(2200);

/// A datagram from a hook's pod to its peer, or the answer.
fn datagram(hook: &Hook, v6: bool, answers: bool) -> Vec<u8> {
    let (source, destination) = if answers { (PORT, SOURCE) } else { (SOURCE, PORT) };
    hook.frame(&hook.ends(v6).udp(source, destination, &[0; 18]))
}

/// Metric 11.
pub(super) fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    let product = bench.places.same_node(Place::SameNode)?;
    let hooks = product.hooks()?;
    let empty = own::empty()?;
    let bursts = bench.plan.bursts;
    let (sport, dport) = (SOURCE.to_be_bytes(), PORT.to_be_bytes());

    let case = Case { hooks: &hooks, empty: &empty, bursts, v6: false };
    let (src, dst) = (hooks[0].v4(), hooks[1].v4());
    let key = FlowKey4 { src, dst, sport, dport, proto: UDP, ..FlowKey4::default() };
    let back = FlowKey4 { src: dst, dst: src, sport: dport, dport: sport, ..key };
    let bytes = [src.as_slice(), &dst, &sport, &dport, &[UDP, 0, 0, 0]].concat();
    let mut rows = case.rows([key, back], &bytes, &tables::FLOW4, &tables::FLOW4_NEW)?;

    let case = Case { v6: true, ..case };
    let (src, dst) = (hooks[0].v6(), hooks[1].v6());
    let key = FlowKey6 { src, dst, sport, dport, proto: UDP, ..FlowKey6::default() };
    let back = FlowKey6 { src: dst, dst: src, sport: dport, dport: sport, ..key };
    let bytes = [src.as_slice(), &dst, &sport, &dport, &[UDP, 0, 0, 0]].concat();
    rows.extend(case.rows([key, back], &bytes, &tables::FLOW6, &tables::FLOW6_NEW)?);
    Ok(rows)
}

struct Case<'a> {
    /// The opener's and the answerer's.
    hooks: &'a [Hook; 2],
    empty: &'a OwnedFd,
    bursts: usize,
    v6: bool,
}

impl Case<'_> {
    /// Both figures of a family. The flow is in one of the tables at a time.
    fn rows<K: Pod + Send + Sync>(
        &self,
        keys: [K; 2],
        bytes: &[u8],
        established: &Spec<K, FlowEntry>,
        probation: &Spec<K, FlowEntry>,
    ) -> Result<Vec<Row>> {
        let [hook, answers] = self.hooks;
        let pins = &hook.pins;
        let (lookup, established, probation) = hook.inside(|| {
            let map = sys::pinned(&pins.map(established.name))?;
            let open = |spec: &Spec<K, FlowEntry>| spec.open(pins, Access::ReadWrite);
            Ok((own::looks_up(map.as_fd(), bytes)?, open(established)?, open(probation)?))
        })?;
        let (frame, answer) = (datagram(hook, self.v6, false), datagram(answers, self.v6, true));
        let family = if self.v6 { "IPv6" } else { "IPv4" };
        let mut rows = Vec::new();
        for (what, first, target) in [("hit in the first table", true, 2.0), ("after a miss", false, 3.0)] {
            let (mut costs, mut absolutes) = (Vec::new(), Vec::new());
            for _ in 0..self.bursts {
                // As new: on probation it would be promoted after a second.
                for key in &keys {
                    established.remove(key)?;
                    probation.remove(key)?;
                }
                hook.run(&frame, REDIRECTED)?;
                answers.run(&answer, REDIRECTED)?;
                carry(&keys, &probation, &established)?;
                let floor = hook.time_of(self.empty.as_fd(), &frame, 0, REPEAT)?;
                let one = hook.time_of(lookup.as_fd(), &frame, 1, REPEAT)?;
                if !first {
                    carry(&keys, &established, &probation)?;
                }
                let whole = hook.time(&frame, REDIRECTED, REPEAT)?;
                costs.push((whole - floor) / (one - floor));
                absolutes.push(whole - floor);
            }
            let absolute = Spread::of(absolutes)?.median;
            let row = Row::new("11", format!("{family}: {what}"), "one hot look-up", Spread::of(costs)?, target);
            rows.push(row.with(format!("{absolute:.0} ns")));
        }
        Ok(rows)
    }
}

/// Moves both directions of a flow, as the programs wrote them.
fn carry<K: Pod>(keys: &[K; 2], from: &Table<K, FlowEntry>, to: &Table<K, FlowEntry>) -> Result<()> {
    for key in keys {
        let entry = from.get(key)?.context("the programs did not write the flow")?;
        to.put(key, &entry)?;
        from.remove(key)?;
    }
    Ok(())
}

/// Metric 4, by test-run.
pub(super) fn rules(bench: &mut Bench) -> Result<Vec<Row>> {
    let places = [Place::SameNode, Place::Policies, Place::Ranges];
    let products: Vec<Rc<Product>> =
        places.map(|place| bench.places.same_node(place)).into_iter().collect::<Result<_>>()?;
    let hooks = products.iter().map(|product| product.hooks()).collect::<Result<Vec<_>>>()?;
    let empty = own::empty()?;
    let mut sides = hooks.iter().map(Side::new).collect::<Result<Vec<_>>>()?;
    thread::sleep(PROMOTED);
    sides.iter().try_for_each(|side| side.hook.run(&side.known, REDIRECTED))?;
    for round in 0..=bench.plan.bursts {
        let mut turns: Vec<_> = sides.iter_mut().collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for side in turns {
            side.measure(&empty)?;
        }
        if round == 0 {
            // Nothing of it was warm.
            sides.iter_mut().for_each(Side::forget);
        }
    }
    let [one, policies, ranges] = sides.as_slice() else { return Ok(Vec::new()) };
    let name = |place: Place, what: &str| format!("{}: {what}", place.name());
    let (first, known) = ("first packet, test-run", "known packet, test-run");
    let reference = Place::SameNode.name();
    let ratio = Spread::of_ratios;
    let (p, r) = (Place::Policies, Place::Ranges);
    let ns = |costs: &[f64]| Ok::<_, anyhow::Error>(format!("{:.0} ns", Spread::of(costs.to_vec())?.median));
    Ok(vec![
        Row::new("4", name(p, first), reference, ratio(&policies.firsts, &one.firsts)?, 1.03)
            .with(ns(&policies.firsts)?),
        Row::new("4", name(p, known), reference, ratio(&policies.knowns, &one.knowns)?, 1.03)
            .with(ns(&policies.knowns)?),
        Row::shown("4", name(r, first), reference, ratio(&ranges.firsts, &one.firsts)?).with(ns(&ranges.firsts)?),
    ])
}

/// A node of metric 4: what a packet of an established flow costs, and a first one, ns without the empty program.
struct Side<'a> {
    hook: &'a Hook,
    known: Vec<u8>,
    first: Vec<u8>,
    knowns: Vec<f64>,
    firsts: Vec<f64>,
}

impl<'a> Side<'a> {
    /// Opens the flow and answers.
    fn new([hook, answers]: &'a [Hook; 2]) -> Result<Self> {
        let known = datagram(hook, false, false);
        hook.run(&known, REDIRECTED)?;
        answers.run(&datagram(answers, false, true), REDIRECTED)?;
        let first = hook.frame(&hook.ends(false).tcp(SOURCE, LAST_PORT, SYN, 1, 0));
        Ok(Self { hook, known, first, knowns: Vec::new(), firsts: Vec::new() })
    }

    fn measure(&mut self, empty: &OwnedFd) -> Result<()> {
        let floor = self.hook.time_of(empty.as_fd(), &self.known, 0, REPEAT)?;
        self.knowns.push(self.hook.time(&self.known, REDIRECTED, REPEAT)? - floor);
        self.firsts.push(self.hook.time(&self.first, DROPPED, FIRSTS)? - floor);
        Ok(())
    }

    fn forget(&mut self) {
        self.knowns.clear();
        self.firsts.clear();
    }
}
