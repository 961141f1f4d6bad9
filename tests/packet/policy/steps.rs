//! What an agent does to bring a change into force, one step after the other, and what of it outlives the agent.

use std::net::IpAddr;

use ipnet::IpNet;
use osmia_agent::compile::policy::{CLOSED, Change, Policies, Rules};
use osmia_agent::model::Cluster;
use osmia_maps::catalogue::{Catalogue, Line};
use osmia_maps::layout::{VerdictKey, VerdictRow};

/// A single write into a map.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Verdict(VerdictKey, VerdictRow),
    Rules(u32, Rules),
    Peer(IpAddr, Option<u32>),
    Block(IpNet, Option<u32>),
    Epoch(u32),
    Bury(VerdictKey),
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Line(Line),
    Row(Write),
}

/// The catalogue, as the file holds it.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) catalogue: Catalogue,
    generation: u64,
}

impl Book {
    /// The steps of a change, of which the last remove what nothing leads to any more. `start`: of an agent's start, which says that its
    /// generation is in force also where it writes no row.
    pub(crate) fn change(&mut self, policies: &mut Policies, change: &Change, start: bool) -> Vec<Step> {
        self.generation = self.generation.max(self.catalogue.generation);
        let names: Vec<Line> = policies.take_names().collect();
        let gone = policies.take_gone();
        if change.is_empty() && names.is_empty() && !start {
            return gone.into_iter().map(Step::Line).collect();
        }
        self.generation += 1;
        let begins = Line::Generation { generation: self.generation, last: policies.last() };
        let ends = Line::InForce { generation: self.generation, at_ms: 0, took_us: 0, policies: vec![] };
        let mut steps: Vec<Step> = names.into_iter().chain([begins]).map(Step::Line).collect();
        steps.extend(writes(change).into_iter().map(Step::Row));
        steps.push(Step::Line(ends));
        steps.extend(change.old_verdicts.iter().map(|key| Step::Row(Write::Bury(*key))));
        steps.extend(gone.map(Step::Line));
        steps
    }

    /// The steps of collecting what a change has left.
    pub(crate) fn rest(&mut self, policies: &mut Policies, cluster: &Cluster) -> Vec<Step> {
        let rest = policies.collect(cluster);
        self.change(policies, &rest, false)
    }
}

/// All writes of a change before the barrier; of one map what goes first, as the agent does.
fn writes(change: &Change) -> Vec<Write> {
    let mut writes: Vec<Write> = Vec::new();
    writes.extend(change.verdicts.iter().map(|(key, row)| Write::Verdict(*key, *row)));
    let closed = Rules { egress: CLOSED, ingress: CLOSED };
    writes.extend(change.closing.iter().map(|slot| Write::Rules(*slot, closed)));
    for goes in [true, false] {
        let those = change.peers.iter().filter(|(_, class)| class.is_none() == goes);
        writes.extend(those.map(|(address, class)| Write::Peer(*address, *class)));
    }
    for goes in [true, false] {
        let those = change.blocks.iter().filter(|(_, class)| class.is_none() == goes);
        writes.extend(those.map(|(range, class)| Write::Block(*range, *class)));
    }
    writes.extend(change.endpoints.iter().map(|(slot, rules)| Write::Rules(*slot, *rules)));
    writes.extend(change.epochs.iter().map(|slot| Write::Epoch(*slot)));
    writes
}
