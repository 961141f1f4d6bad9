//! Metrics 1 to 7: what traffic costs on the ways between two pods.

use anyhow::Result;

use super::Bench;
use crate::load::{Load, Sample};
use crate::places::Place;
use crate::probe::Kind;
use crate::report::Row;
use crate::stats::{Plan, Rounds, Spread};

/// Some loads of one kind after their bursts in turns.
struct Compared {
    metric: &'static str,
    kind: Kind,
    places: Vec<Place>,
    rounds: Rounds,
}

impl Bench {
    fn compare(&mut self, metric: &'static str, kind: Kind, places: &[Place]) -> Result<Compared> {
        let pairs = places.iter().map(|place| self.places.pair(*place)).collect::<Result<Vec<_>>>()?;
        let mut loads = pairs.iter().map(|pair| Load::start(kind, pair)).collect::<Result<Vec<_>>>()?;
        // A stream has to reach its speed first.
        let stretch = if kind == Kind::Stream { 2 } else { 1 };
        let plan = Plan { length: self.plan.length * stretch, ..self.plan };
        let rounds = Rounds::run(plan, &mut loads)?;
        Ok(Compared { metric, kind, places: places.to_vec(), rounds })
    }
}

impl Compared {
    /// Cost of the load at `index` of the places, against another one.
    fn cost(&self, index: usize, reference: usize, target: f64) -> Result<Row> {
        let what = format!("{}: {}", self.name(index), self.unit());
        let spread = self.rounds.ratio(index, reference, |s| s.cost)?;
        Ok(Row::new(self.metric, what, self.name(reference), spread, target).with(self.absolute(index)?))
    }

    /// As [`Self::cost`], for comparison.
    fn shown(&self, index: usize, reference: usize) -> Result<Row> {
        let what = format!("{}: {}", self.name(index), self.unit());
        let spread = self.rounds.ratio(index, reference, |s| s.cost)?;
        Ok(Row::shown(self.metric, what, self.name(reference), spread).with(self.absolute(index)?))
    }

    fn figure(&self, index: usize, name: &str, figure: fn(&Sample) -> f64, target: f64) -> Result<Row> {
        let what = format!("{}: {name}", self.name(index));
        let absolute = Spread::of(self.rounds.of(index, figure))?.median / 1000.0;
        let row = Row::new(self.metric, what, self.name(0), self.rounds.ratio(index, 0, figure)?, target);
        Ok(row.with(format!("{absolute:.1} µs")))
    }

    fn name(&self, index: usize) -> &'static str {
        self.places.get(index).map_or("", |place| place.name())
    }

    const fn unit(&self) -> &'static str {
        match self.kind {
            Kind::Forward => "CPU a packet",
            Kind::Rr => "CPU a transaction",
            Kind::Crr => "CPU a connection",
            Kind::Stream => "CPU a gigabit",
        }
    }

    fn absolute(&self, index: usize) -> Result<String> {
        let cost = Spread::of(self.rounds.of(index, |s| s.cost))?.median;
        Ok(match self.kind {
            Kind::Forward => format!("{cost:.0} ns"),
            Kind::Rr | Kind::Crr => format!("{:.1} µs", cost / 1e3),
            // ns a byte = 125 ms a Gbit.
            Kind::Stream => format!("{:.1} ms", cost * 125.0),
        })
    }
}

/// Metric 1.
pub(super) fn small(bench: &mut Bench) -> Result<Vec<Row>> {
    let c = bench.compare("1", Kind::Forward, &[Place::Direct, Place::SameNode, Place::RoutedCt, Place::Peer])?;
    Ok(vec![c.cost(1, 0, 1.12)?, c.cost(1, 2, 0.75)?, c.shown(2, 0)?, c.shown(3, 0)?])
}

/// Metric 2.
pub(super) fn rr(bench: &mut Bench) -> Result<Vec<Row>> {
    let c = bench.compare("2", Kind::Rr, &[Place::Direct, Place::SameNode, Place::Peer])?;
    Ok(vec![
        c.cost(1, 0, 1.08)?,
        c.figure(1, "p50 of a transaction", |s| s.p50, 1.12)?,
        c.figure(1, "p99 of a transaction", |s| s.p99, 1.25)?,
        c.shown(2, 0)?,
    ])
}

/// Metric 3.
pub(super) fn crr(bench: &mut Bench) -> Result<Vec<Row>> {
    let c = bench.compare("3", Kind::Crr, &[Place::Direct, Place::SameNode, Place::RoutedCt, Place::Peer])?;
    Ok(vec![c.cost(1, 0, 1.22)?, c.cost(1, 2, 0.88)?, c.shown(2, 0)?, c.shown(3, 0)?])
}

/// Metric 4, in traffic.
pub(super) fn rules(bench: &mut Bench) -> Result<Vec<Row>> {
    let c = bench.compare("4", Kind::Crr, &[Place::SameNode, Place::Policies, Place::Ranges])?;
    let mut rows = vec![c.cost(1, 0, 1.05)?, c.cost(2, 0, 1.10)?];
    let c = bench.compare("4", Kind::Forward, &[Place::SameNode, Place::Policies])?;
    rows.push(c.cost(1, 0, 1.05)?);
    Ok(rows)
}

/// Metric 5.
pub(super) fn native(bench: &mut Bench) -> Result<Vec<Row>> {
    let c = bench.compare("5", Kind::Forward, &[Place::Direct, Place::Native, Place::TwoRoutedCt, Place::TwoPeer])?;
    let mut rows = vec![c.cost(1, 0, 1.50)?, c.cost(1, 2, 0.68)?, c.shown(2, 0)?, c.shown(3, 0)?];
    let c = bench.compare("5", Kind::Rr, &[Place::Direct, Place::Native])?;
    rows.push(c.cost(1, 0, 1.15)?);
    Ok(rows)
}

/// Metric 6.
pub(super) fn overlay(bench: &mut Bench) -> Result<Vec<Row>> {
    let c = bench.compare("6", Kind::Forward, &[Place::Direct, Place::Overlay, Place::TwoVxlanCt])?;
    let mut rows = vec![c.cost(1, 0, 1.75)?, c.cost(1, 2, 0.45)?, c.shown(2, 0)?];
    let c = bench.compare("6", Kind::Rr, &[Place::Direct, Place::Overlay])?;
    rows.push(c.cost(1, 0, 1.32)?);
    Ok(rows)
}

/// Metric 7.
pub(super) fn bulk(bench: &mut Bench) -> Result<Vec<Row>> {
    let places = [Place::Direct, Place::SameNode, Place::Native, Place::Overlay];
    let c = bench.compare("7", Kind::Stream, &places)?;
    let mut rows = vec![c.cost(1, 0, 1.08)?, c.cost(2, 0, 1.08)?, c.cost(3, 0, 1.15)?];
    let places = [Place::SegmentedRouted, Place::SegmentedNative, Place::SegmentedVxlan, Place::SegmentedOverlay];
    let c = bench.compare("7", Kind::Stream, &places)?;
    rows.extend([c.cost(1, 0, 1.05)?, c.cost(3, 2, 1.00)?, c.shown(2, 0)?]);
    Ok(rows)
}

/// How the references stand to each other: a second veth pair is 1 where the method is good.
pub(super) fn references(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let one = [
        Place::Direct,
        Place::Again,
        Place::Peer,
        Place::TwoPeer,
        Place::RoutedCt,
        Place::TwoRoutedCt,
        Place::TwoVxlanCt,
    ];
    for kind in [Kind::Forward, Kind::Rr, Kind::Crr, Kind::Stream] {
        let c = bench.compare("-", kind, &one)?;
        for index in 1..one.len() {
            rows.push(c.shown(index, 0)?);
        }
    }
    let c = bench.compare("-", Kind::Stream, &[Place::Direct, Place::SegmentedRouted, Place::SegmentedVxlan])?;
    rows.extend([c.shown(1, 0)?, c.shown(2, 0)?]);
    Ok(rows)
}
