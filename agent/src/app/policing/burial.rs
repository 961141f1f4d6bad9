//! Old rows, until no packet under way can ask for them.
//!
//! Invariant: rows go after a barrier that began when nothing led to them any more, and their names after them. What everything compiled anew
//! may lead to again is never buried.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use osmia_maps::{catalogue::Line, layout::VerdictKey};

use super::{Policing, Rows, tally};
use crate::compile::policy::{CLOSED, Pinned};

/// Old rows and their names, until no packet under way can ask for them.
pub(in crate::app) struct Grave<G> {
    /// Of another than the present one it is void: the rows may be in use again.
    pub(super) era: u64,
    pub(super) garbage: G,
    pub(super) names: Option<Line>,
}

impl<R: Rows> Policing<R> {
    /// What a barrier has to be waited for.
    pub(in crate::app) fn graves(&mut self) -> Vec<Grave<R::Garbage>> {
        std::mem::take(&mut self.graves)
    }

    /// Removes old rows and their names, after a barrier.
    pub(in crate::app) fn bury(&mut self, dataplane: &mut R, graves: Vec<Grave<R::Garbage>>) {
        let result = self.try_bury(dataplane, graves);
        self.settle(result);
    }

    fn try_bury(&mut self, dataplane: &mut R, graves: Vec<Grave<R::Garbage>>) -> Result<()> {
        let mut names = Vec::new();
        for grave in graves.into_iter().filter(|grave| grave.era == self.era) {
            let gone = dataplane.bury_policy(grave.garbage).context("old policy rows cannot be removed")?;
            tally::buried(&mut self.rows, gone);
            names.extend(grave.names);
        }
        if !names.is_empty() {
            self.catalogue.append(&names).context("the catalogue cannot be written")?;
        }
        // Not while others wait for a barrier: their old rule sets may still be asked about what is collected.
        if let (Some(policies), None, true) = (&mut self.policies, self.retry, self.graves.is_empty()) {
            let change = policies.collect(&self.cluster);
            if !change.is_empty() {
                self.enforce(dataplane, &change, Vec::new())?;
            }
        }
        Ok(())
    }

    /// Nothing was written for want of room: what no pointer leads to goes before it is tried again, since the graves of before are void.
    pub(super) fn make_room(&mut self, pinned: &Pinned) {
        let sets: BTreeSet<u32> = pinned.rules.values().flat_map(|rules| [rules.egress, rules.ingress]).collect();
        let classes: BTreeSet<u32> = pinned.peers.values().chain(pinned.blocks.values()).copied().collect();
        let led_to = |key: &VerdictKey| {
            let (set, class) = (key.asked.set, key.asked.class);
            (set == CLOSED || sets.contains(&set)) && (class == 0 || classes.contains(&class))
        };
        let rows: BTreeSet<VerdictKey> = pinned.verdicts.keys().filter(|key| !led_to(key)).copied().collect();
        if !rows.is_empty() {
            tracing::warn!(rows = rows.len(), "policy rows that nothing leads to are in the way: removed");
            self.graves.push(Grave { era: self.era, garbage: rows.into(), names: None });
            self.work.notify_one();
        }
    }
}
