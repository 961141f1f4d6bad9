//! The budget: how many verdict rows and ranges this node's rule sets may have together, and how many addresses a class of their own.
//!
//! Invariant: which rule sets are over it follows from what they need, not from the order of events: the smaller ones come first, among
//! equals the first by their policies. One that is over has its head for anybody alone: whoever has it is isolated, and loudly so. Of more addresses
//! than there is room for the lowest have their class; the others count as their range does, as if no pod had them. Rules only allow, so
//! that takes rights from them and gives none.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use osmia_maps::{catalogue::PolicyName, layout::maps};
use serde::{Deserialize, Serialize};

use super::{Change, Policies, Rules, sets::Key, verdicts};
use crate::model::{
    Name,
    policy::{Direction, Peer, Peers},
};

/// An endpoint that is isolated because its rules need more rows than there is room for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OverBudget {
    /// Its slot.
    pub slot: u32,
    /// Its pod.
    pub pod: Option<Name>,
    /// Direction of the rules.
    pub direction: Direction,
    /// The policies they come from.
    pub policies: Vec<PolicyName>,
    /// The map that has no room.
    pub map: &'static str,
    /// Rows they would need in it.
    pub rows: usize,
    /// Rows that all rule sets may have in it together.
    pub limit: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Verdict rows of all sets together.
    pub(super) verdicts: usize,
    /// Ranges of all sets, each counted once.
    pub(super) ranges: usize,
    /// Addresses of which something else is said than of their range.
    pub(super) peers: usize,
}

impl Default for Budget {
    /// Half of two maps: what replaces rows stands beside them until they are buried. A row of an address is changed where it is.
    fn default() -> Self {
        Self {
            verdicts: maps::MAX_VERDICTS as usize / 2,
            ranges: maps::MAX_PEER_BLOCKS as usize / 2,
            peers: maps::MAX_PEERS as usize,
        }
    }
}

#[cfg(test)]
thread_local! {
    /// How often all ranges were counted by this thread.
    pub(super) static COUNTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How much of a rule set there is room for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) enum Room {
    /// All of it.
    Whole,
    /// Not for its verdicts: what isolates is all it has.
    NoVerdicts,
    /// Not even for its ranges: it has no atoms either.
    NoRanges,
}

impl Policies {
    /// The endpoints that are isolated for want of room.
    #[must_use]
    pub fn over_budget(&self) -> Vec<OverBudget> {
        let mut over = Vec::new();
        let totals = self.sets.totals();
        if totals.no_verdicts == 0 && totals.no_ranges == 0 {
            return over;
        }
        for (slot, rules) in &self.rules {
            for number in [rules.egress, rules.ingress] {
                let Some(set) = self.sets.get(number) else { continue };
                let (map, rows, limit) = match set.room {
                    Room::Whole => continue,
                    Room::NoVerdicts => (maps::VERDICTS, set.rows, self.budget.verdicts),
                    Room::NoRanges => (maps::PEER_BLOCKS, set.ranges, self.budget.ranges),
                };
                over.push(OverBudget {
                    slot: *slot,
                    pod: self.locals.get(slot).and_then(|local| local.pod.clone()),
                    direction: set.key.direction,
                    policies: set.key.policies.iter().map(|(policy, _)| policy.clone()).collect(),
                    map,
                    rows,
                    limit,
                });
            }
        }
        over
    }

    /// How many pods' addresses count as their range does for want of room.
    #[must_use]
    pub fn crowded_out(&self) -> usize {
        self.classes.crowded_out().len()
    }

    #[cfg(test)]
    pub(crate) fn limit_peers(&mut self, peers: usize) {
        self.budget.peers = peers;
    }

    /// The lowest of them: no higher address has a class of its own.
    #[must_use]
    pub fn lowest_crowded_out(&self) -> Option<IpAddr> {
        self.classes.crowded_out().first().copied()
    }

    /// Gives sets another number for whose ranges there is no room any more, or again: before their atoms count.
    pub(super) fn admit_ranges(
        &mut self,
        new_sets: &mut BTreeSet<u32>,
        old_sets: &mut BTreeSet<u32>,
        change: &mut Change,
    ) {
        // What there is room for follows from which sets there are.
        if new_sets.is_empty() && old_sets.is_empty() {
            return;
        }
        let at_most = self.sets.totals();
        if at_most.ranges <= self.budget.ranges && at_most.no_ranges == 0 {
            return;
        }
        #[cfg(test)]
        COUNTED.set(COUNTED.get() + 1);
        let mut sets: Vec<_> = self.sets.used().collect();
        sets.sort_by(|(_, a), (_, b)| (a.ranges, &a.key).cmp(&(b.ranges, &b.key)));
        let mut ranges: BTreeSet<IpNet> = BTreeSet::new();
        let mut moves = Vec::new();
        for (number, set) in sets {
            let own: BTreeSet<IpNet> = ranges_of(&set.key).filter(|range| !ranges.contains(range)).collect();
            let fits = ranges.len() + own.len() <= self.budget.ranges;
            if fits {
                ranges.extend(own);
            }
            if fits != (set.room != Room::NoRanges) {
                moves.push((number, if fits { Room::Whole } else { Room::NoRanges }));
            }
        }
        for (number, room) in moves {
            self.replace(number, room, new_sets, old_sets, change);
        }
        self.atoms.drop_unborn();
    }

    /// Counts what sets need now, and gives those another number for whose verdicts there is no room any more, or again.
    pub(super) fn admit(
        &mut self,
        new_sets: &mut BTreeSet<u32>,
        old_sets: &mut BTreeSet<u32>,
        (new_classes, old_classes): (&BTreeSet<u32>, &BTreeSet<u32>),
        change: &mut Change,
    ) {
        self.count(new_sets, new_classes, old_classes);
        let total = self.sets.totals();
        if total.rows <= self.budget.verdicts && total.no_verdicts == 0 {
            return;
        }
        for (number, room) in self.moves() {
            self.replace(number, room, new_sets, old_sets, change);
        }
    }

    /// The same rules under another number, with more or less of them in the maps.
    fn replace(
        &mut self,
        number: u32,
        room: Room,
        new_sets: &mut BTreeSet<u32>,
        old_sets: &mut BTreeSet<u32>,
        change: &mut Change,
    ) {
        let Some(new) = self.sets.renumber(number, room, &mut self.atoms) else { return };
        let turn = |of: u32| if of == number { new } else { of };
        for (slot, rules) in &mut self.rules {
            let turned = Rules { egress: turn(rules.egress), ingress: turn(rules.ingress) };
            if turned != *rules {
                *rules = turned;
                self.sets.take(new, *slot);
                self.sets.release(number, *slot);
                change.endpoints.insert(*slot, turned);
                change.epochs.insert(*slot);
                change.closing.insert(*slot);
            }
        }
        self.sets.release_atoms(number, &mut self.atoms);
        match new_sets.remove(&number) {
            // It never had a row.
            true => self.sets.forget(number),
            false => {
                old_sets.insert(number);
            }
        }
        new_sets.insert(new);
    }

    fn count(&mut self, new_sets: &BTreeSet<u32>, new_classes: &BTreeSet<u32>, old_classes: &BTreeSet<u32>) {
        for number in new_sets {
            let classes = self.classes.with_any(self.sets.atoms(*number));
            let Some(set) = self.sets.get(*number) else { continue };
            let own = classes.difference(old_classes).map(|class| verdicts::count(set, &self.classes, *class));
            let rows = verdicts::count(set, &self.classes, 0) + own.sum::<usize>();
            self.sets.set_rows(*number, rows);
        }
        for (classes, come) in [(new_classes, true), (old_classes, false)] {
            for class in classes {
                for number in self.with_class(*class).difference(new_sets) {
                    let Some(set) = self.sets.get(*number) else { continue };
                    let rows = verdicts::count(set, &self.classes, *class);
                    self.sets.set_rows(*number, if come { set.rows + rows } else { set.rows.saturating_sub(rows) });
                }
            }
        }
    }

    /// Sets that are on the wrong side, and what there is room for.
    fn moves(&self) -> Vec<(u32, Room)> {
        let mut sets: Vec<_> = self.sets.used().collect();
        sets.sort_by(|(_, a), (_, b)| (a.rows, &a.key).cmp(&(b.rows, &b.key)));
        // Each says in any case what isolates.
        let mut rows = sets.len();
        let mut moves = Vec::new();
        for (number, set) in sets.into_iter().filter(|(_, set)| set.room != Room::NoRanges) {
            let with = rows + set.rows.saturating_sub(1);
            let room = if with > self.budget.verdicts { Room::NoVerdicts } else { Room::Whole };
            if room == Room::Whole {
                rows = with;
            }
            if room != set.room {
                moves.push((number, room));
            }
        }
        moves
    }
}

/// Ranges and exceptions that a rule set speaks of, some more than once.
pub(super) fn ranges_of(key: &Key) -> impl Iterator<Item = IpNet> {
    let rules = key.policies.iter().flat_map(|(_, rules)| rules.iter());
    let peers = rules.flat_map(|rule| match &rule.peers {
        Peers::Anyone => [].as_slice(),
        Peers::Of(peers) => peers,
    });
    peers
        .filter_map(|peer| match peer {
            Peer::Block { cidr, except } => Some(except.iter().chain([cidr])),
            Peer::Pods { .. } | Peer::Refused => None,
        })
        .flatten()
        .copied()
}
