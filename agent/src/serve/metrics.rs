//! What Prometheus reads. Counters of the dataplane are read from the maps when somebody asks, never kept here.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use osmia_cni::protocol::Answer;
use osmia_maps::layout::maps;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

use crate::{
    attachments::{Counts, RangeUse},
    program::Snapshot,
};

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Call {
    verb: &'static str,
    result: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Named {
    name: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Map {
    map: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Range {
    range: String,
    state: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

type Gauge64 = Gauge<u64, AtomicU64>;

/// All metrics.
pub struct Metrics {
    registry: Mutex<Registry>,
    calls: Family<Call, Histogram, fn() -> Histogram>,
    attachments: Family<State, Gauge64>,
    slots: Gauge64,
    addresses: Family<Range, Gauge64>,
    nodes: Gauge64,
    routes: Gauge64,
    generation: Gauge64,
    problems: Family<State, Gauge64>,
    applies: Family<State, Counter>,
    flows: Gauge64,
    packets: Family<Named, Counter>,
    drops: Family<Reason, Counter>,
    dropped_bytes: Family<Reason, Counter>,
    policies: Family<State, Gauge64>,
    policy_endpoints: Family<State, Gauge64>,
    policy_rows: Family<Map, Gauge64>,
    policy_generation: Gauge64,
    policy_delay: Family<Kind, Histogram, fn() -> Histogram>,
    policy_changes: Family<State, Counter>,
}

/// What policy is made of, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyCounts {
    /// NetworkPolicies.
    pub policies: usize,
    /// Those of them with parts that the API would refuse.
    pub refused_in_part: usize,
    /// Endpoints that no policy selects.
    pub open: usize,
    /// Endpoints that one selects.
    pub isolated: usize,
    /// Endpoints whose Pod was not told yet, isolated until it is.
    pub provisional: usize,
    /// Endpoints that are shut since their rules could not be written.
    pub refused: usize,
    /// Endpoints of which the runtime named no pod.
    pub unmanaged: usize,
    /// Generation of the catalogue.
    pub generation: u64,
    /// A change could not be written and is tried again.
    pub waiting: bool,
    /// Addresses that rules speak of beyond those that there is room for.
    pub crowded_out: usize,
    /// Rows of the maps.
    pub rows: PolicyRows,
}

/// Rows of the policy maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PolicyRows {
    /// Addresses with a class of their own.
    pub peers: usize,
    /// Ranges with a class.
    pub blocks: usize,
    /// Verdicts, old ones that still wait for a barrier among them.
    pub verdicts: usize,
}

/// Seconds: from a tenth of a millisecond, what an ADD takes here, to what kubelet waits.
fn seconds() -> Histogram {
    Histogram::new([0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0])
}

/// Seconds: from what a change of one row takes to what no change should.
fn delays() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let new = Self {
            registry: Mutex::new(Registry::with_prefix("osmia")),
            calls: Family::new_with_constructor(seconds as fn() -> Histogram),
            attachments: Family::default(),
            slots: Gauge64::default(),
            addresses: Family::default(),
            nodes: Gauge64::default(),
            routes: Gauge64::default(),
            generation: Gauge64::default(),
            problems: Family::default(),
            applies: Family::default(),
            flows: Gauge64::default(),
            packets: Family::default(),
            drops: Family::default(),
            dropped_bytes: Family::default(),
            policies: Family::default(),
            policy_endpoints: Family::default(),
            policy_rows: Family::default(),
            policy_generation: Gauge64::default(),
            policy_delay: Family::new_with_constructor(delays as fn() -> Histogram),
            policy_changes: Family::default(),
        };
        let mut registry = new.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let r = &mut *registry;
        r.register("build", "Version of the agent", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        r.register_with_unit("cni_call_duration", "Calls of the plugin", Unit::Seconds, new.calls.clone());
        r.register("attachments", "Attachments of this node", new.attachments.clone());
        r.register("endpoint_slots_free", "Endpoint slots that are free", new.slots.clone());
        r.register("addresses", "Addresses of this node's ranges", new.addresses.clone());
        r.register("nodes", "Other nodes with a row", new.nodes.clone());
        r.register("routes", "Prefixes in the route table", new.routes.clone());
        r.register("route_generation", "Route generation in force", new.generation.clone());
        r.register("problems", "What an operator should mend; the log names it", new.problems.clone());
        r.register("applies", "Attempts to bring the maps to the model", new.applies.clone());
        r.register("flows_established", "Established flows at the last sweep", new.flows.clone());
        r.register("packets", "Packets by what was done with them", new.packets.clone());
        r.register("dropped_packets", "Packets dropped, by reason", new.drops.clone());
        r.register_with_unit("dropped", "Bytes dropped, by reason", Unit::Bytes, new.dropped_bytes.clone());
        r.register("policies", "NetworkPolicies that the source tells", new.policies.clone());
        r.register("policy_endpoints", "Endpoints by what policy makes of them", new.policy_endpoints.clone());
        r.register("policy_rows", "Rows of the policy maps", new.policy_rows.clone());
        r.register("policy_generation", "Generation of the policy rows", new.policy_generation.clone());
        r.register_with_unit(
            "policy_delay",
            "From the arrival of an event to its enforcement, by kind of object",
            Unit::Seconds,
            new.policy_delay.clone(),
        );
        r.register("policy_changes", "Attempts to bring policy into force", new.policy_changes.clone());
        drop(registry);
        new
    }
}

impl Metrics {
    /// A call of the plugin was answered.
    pub fn call(&self, verb: &'static str, answer: &Answer, took: Duration) {
        let result = if matches!(answer, Answer::Failed(_)) { "failed" } else { "done" };
        self.calls.get_or_create(&Call { verb, result }).observe(took.as_secs_f64());
    }

    /// The maps were brought to the model, or not.
    pub fn applied(&self, done: bool) {
        self.applies.get_or_create(&State { state: if done { "done" } else { "failed" } }).inc();
    }

    /// What is in the maps.
    pub fn rows(&self, nodes: usize, routes: usize, generation: u32) {
        self.nodes.set(nodes as u64);
        self.routes.set(routes as u64);
        self.generation.set(u64::from(generation));
    }

    /// How many things of a kind are wrong.
    pub fn problems(&self, kind: &'static str, count: usize) {
        self.problems.get_or_create(&State { state: kind }).set(count as u64);
    }

    /// Flows at a sweep.
    pub fn flows(&self, flows: u64) {
        self.flows.set(flows);
    }

    /// What the attachments count.
    pub fn attachments(&self, counts: Counts, ranges: &[RangeUse]) {
        for (state, count) in [("added", counts.added), ("adding", counts.adding)] {
            self.attachments.get_or_create(&State { state }).set(count as u64);
        }
        self.slots.set(counts.free_slots as u64);
        // Ranges that are gone must not stay at their last value.
        self.addresses.clear();
        for (range, used, resting, capacity) in ranges {
            let states = [("used", *used as u64), ("resting", *resting as u64), ("capacity", *capacity)];
            for (state, count) in states {
                self.addresses.get_or_create(&Range { range: range.to_string(), state }).set(count);
            }
        }
    }

    /// What the programs count.
    pub fn dataplane(&self, snapshot: &Snapshot) {
        for (stat, count) in &snapshot.stats {
            store(&self.packets.get_or_create(&Named { name: stat.name() }), *count);
        }
        for (reason, count) in &snapshot.drops {
            let label = Reason { reason: reason.name() };
            store(&self.drops.get_or_create(&label), count.packets);
            store(&self.dropped_bytes.get_or_create(&label), count.bytes);
        }
    }

    /// A change of policy is in force, so long after the first event of each kind that it follows from.
    pub fn policy_changed(&self, delays: impl IntoIterator<Item = (&'static str, Duration)>) {
        self.policy_changes.get_or_create(&State { state: "done" }).inc();
        for (kind, delay) in delays {
            self.policy_delay.get_or_create(&Kind { kind }).observe(delay.as_secs_f64());
        }
    }

    /// A change of policy could not be brought into force.
    pub fn policy_refused(&self) {
        self.policy_changes.get_or_create(&State { state: "failed" }).inc();
    }

    /// What policy is made of.
    pub fn policy(&self, counts: &PolicyCounts) {
        let PolicyCounts { policies, refused_in_part, open, isolated, provisional, refused, unmanaged, .. } = *counts;
        self.problems("policy", refused + counts.crowded_out + usize::from(counts.waiting));
        for (state, count) in [("known", policies), ("refused_in_part", refused_in_part)] {
            self.policies.get_or_create(&State { state }).set(count as u64);
        }
        let endpoints = [
            ("open", open),
            ("isolated", isolated),
            ("provisional", provisional),
            ("refused", refused),
            ("unmanaged", unmanaged),
        ];
        for (state, count) in endpoints {
            self.policy_endpoints.get_or_create(&State { state }).set(count as u64);
        }
        self.policy_generation.set(counts.generation);
        let PolicyRows { peers, blocks, verdicts } = counts.rows;
        for (map, rows) in [(maps::PEERS, peers), (maps::PEER_BLOCKS, blocks), (maps::VERDICTS, verdicts)] {
            self.policy_rows.get_or_create(&Map { map }).set(rows as u64);
        }
    }

    /// The text that Prometheus reads.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a String never fails.
        let _ = encode(&mut text, &registry);
        text
    }
}

/// The kernel counts; this only repeats it.
fn store(counter: &Counter, value: u64) {
    counter.inner().store(value, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use osmia_maps::layout::{DropReason, Stat, drops::DropCount};

    use super::*;

    /// Names of the samples, those of a histogram by what they have in common.
    fn named(text: &str) -> BTreeSet<String> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let name = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
        let stem = |name: String| {
            let part = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| name.strip_suffix(part));
            part.map_or_else(|| name.clone(), ToOwned::to_owned)
        };
        samples.map(name).map(stem).collect()
    }

    /// The names in the first column of the page's table.
    fn told() -> BTreeSet<String> {
        let page = include_str!("../../../docs/operations.md");
        let cells = page.lines().filter_map(|line| line.strip_prefix("| `osmia_")?.split_once("` |"));
        cells.map(|(cell, _)| format!("osmia_{}", cell.split('{').next().unwrap_or_default())).collect()
    }

    #[test]
    fn the_text_has_what_was_counted() {
        let metrics = Metrics::default();
        metrics.call("delete", &Answer::Done, Duration::from_millis(3));
        metrics.attachments(
            Counts { added: 3, adding: 1, free_slots: 1019 },
            &[("10.0.0.0/24".parse().unwrap(), 3, 1, 252)],
        );
        metrics.dataplane(&Snapshot {
            stats: vec![(Stat::ForwardPeer, 12)],
            drops: vec![(DropReason::SourceGuard, DropCount { packets: 2, bytes: 200 })],
        });
        metrics.policy(&PolicyCounts {
            policies: 5,
            provisional: 1,
            refused: 1,
            crowded_out: 3,
            waiting: true,
            generation: 9,
            rows: PolicyRows { verdicts: 7, ..PolicyRows::default() },
            ..PolicyCounts::default()
        });
        metrics.policy_changed([("policy", Duration::from_millis(3))]);
        metrics.policy_changed([]);
        metrics.policy_refused();
        metrics.problems("manifests", 2);
        metrics.applied(true);
        let text = metrics.text();
        for line in [
            "osmia_cni_call_duration_seconds_count{verb=\"delete\",result=\"done\"} 1",
            "osmia_attachments{state=\"added\"} 3",
            "osmia_addresses{range=\"10.0.0.0/24\",state=\"capacity\"} 252",
            "osmia_packets_total{name=\"forward_peer\"} 12",
            "osmia_dropped_packets_total{reason=\"SOURCE_GUARD\"} 2",
            "osmia_dropped_bytes_total{reason=\"SOURCE_GUARD\"} 200",
            "osmia_problems{state=\"manifests\"} 2",
            "osmia_problems{state=\"policy\"} 5",
            "osmia_policies{state=\"known\"} 5",
            "osmia_policy_endpoints{state=\"provisional\"} 1",
            "osmia_policy_rows{map=\"verdicts\"} 7",
            "osmia_policy_generation 9",
            "osmia_policy_delay_seconds_count{kind=\"policy\"} 1",
            "osmia_policy_delay_seconds_bucket{le=\"0.005\",kind=\"policy\"} 1",
            "osmia_policy_delay_seconds_bucket{le=\"0.002\",kind=\"policy\"} 0",
            "osmia_policy_changes_total{state=\"done\"} 2",
            "osmia_policy_changes_total{state=\"failed\"} 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert_eq!(named(&text), told(), "metrics of docs/operations.md");
        metrics.attachments(Counts::default(), &[]);
        assert!(!metrics.text().contains("10.0.0.0/24"), "a range that is gone leaves no number");
    }
}
