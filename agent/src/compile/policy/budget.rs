//! The budget: how many verdict rows this node's rule sets may have together.
//!
//! Invariant: which rule sets are over it follows from what they would need alone, not from the order of events: the smaller ones come first,
//! among equals the first by their policies. One that is over has its base row alone: whoever has it is isolated, and loudly so.

use std::collections::BTreeSet;

use osmia_maps::{catalogue::PolicyName, layout::maps};

use super::{Change, PodKey, Policies, Rules, verdicts};
use crate::model::policy::Direction;

/// An endpoint that is isolated because its rules need more rows than there is room for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OverBudget {
    /// Its slot.
    pub slot: u32,
    /// Its pod.
    pub pod: Option<PodKey>,
    /// Direction of the rules.
    pub direction: Direction,
    /// The policies they come from.
    pub policies: Vec<PolicyName>,
    /// Rows they would need.
    pub rows: usize,
    /// Rows that all rule sets may have together.
    pub limit: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Rows of all sets together.
    pub(super) limit: usize,
}

impl Default for Budget {
    /// Half of the map: what replaces rows stands beside them until they are buried.
    fn default() -> Self {
        Self { limit: maps::MAX_VERDICTS as usize / 2 }
    }
}

impl Policies {
    /// The endpoints that are isolated for want of room.
    #[must_use]
    pub fn over_budget(&self) -> Vec<OverBudget> {
        let mut over = Vec::new();
        for (slot, rules) in &self.rules {
            for number in [rules.egress, rules.ingress] {
                let Some(set) = self.sets.get(number).filter(|set| set.over) else { continue };
                over.push(OverBudget {
                    slot: *slot,
                    pod: self.locals.get(slot).and_then(|local| local.pod.clone()),
                    direction: set.key.direction,
                    policies: set.key.policies.iter().map(|(policy, _)| policy.clone()).collect(),
                    rows: set.rows,
                    limit: self.budget.limit,
                });
            }
        }
        over
    }

    /// Counts what sets need now, and gives those another number that come under or over the budget.
    pub(super) fn admit(
        &mut self,
        new_sets: &mut BTreeSet<u32>,
        old_sets: &mut BTreeSet<u32>,
        (new_classes, old_classes): (&BTreeSet<u32>, &BTreeSet<u32>),
        change: &mut Change,
    ) {
        self.count(new_sets, new_classes, old_classes);
        let total: usize = self.sets.used().map(|(_, set)| set.rows).sum();
        if total <= self.budget.limit && self.sets.used().all(|(_, set)| !set.over) {
            return;
        }
        for (number, over) in self.moves() {
            let Some(new) = self.sets.renumber(number, over, &mut self.atoms) else { continue };
            let turn = |of: u32| if of == number { new } else { of };
            for (slot, rules) in &mut self.rules {
                let turned = Rules { egress: turn(rules.egress), ingress: turn(rules.ingress) };
                if turned != *rules {
                    *rules = turned;
                    self.sets.take(new);
                    self.sets.release(number);
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
    }

    fn count(&mut self, new_sets: &BTreeSet<u32>, new_classes: &BTreeSet<u32>, old_classes: &BTreeSet<u32>) {
        for number in new_sets {
            let classes = self.classes.with_any(self.sets.atoms(*number));
            let Some(set) = self.sets.get_mut(*number) else { continue };
            let own = classes.difference(old_classes).map(|class| verdicts::count(set, &self.classes, *class));
            set.rows = 1 + verdicts::count(set, &self.classes, 0) + own.sum::<usize>();
        }
        for (classes, come) in [(new_classes, true), (old_classes, false)] {
            for class in classes {
                for number in self.with_class(*class).difference(new_sets) {
                    let Some(set) = self.sets.get_mut(*number) else { continue };
                    let rows = verdicts::count(set, &self.classes, *class);
                    set.rows = if come { set.rows + rows } else { set.rows.saturating_sub(rows) };
                }
            }
        }
    }

    /// Sets that are on the wrong side, and whether the right one is over.
    fn moves(&self) -> Vec<(u32, bool)> {
        let mut sets: Vec<_> = self.sets.used().collect();
        sets.sort_by(|(_, a), (_, b)| (a.rows, &a.key).cmp(&(b.rows, &b.key)));
        // Each has its base row in any case.
        let mut rows = sets.len();
        let mut moves = Vec::new();
        for (number, set) in sets {
            let with = rows + set.rows.saturating_sub(1);
            let over = with > self.budget.limit;
            if !over {
                rows = with;
            }
            if over != set.over {
                moves.push((number, over));
            }
        }
        moves
    }
}
