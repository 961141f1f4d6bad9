//! Maps that remember, and that refuse when they are told to.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use anyhow::{Result, bail, ensure};
use osmia_maps::layout::{Endpoint, VerdictKey};

use crate::{
    app::policing::Rows,
    compile::policy::{Change, Pinned, Rules},
    program::PolicyError,
};

/// Maps.
#[derive(Default)]
pub(super) struct Maps {
    pub(super) pinned: Pinned,
    pub(super) rows: BTreeMap<u32, Endpoint>,
    pub(super) generation: u64,
    pub(super) epochs: BTreeSet<u32>,
    pub(super) full: bool,
    /// Nothing can be written.
    pub(super) stuck: bool,
    /// How many verdict rows there is room for, where it is not all.
    pub(super) room: Option<usize>,
    pub(super) unreadable: bool,
    /// How often all of it was read.
    pub(super) reads: Cell<usize>,
}

impl Rows for Maps {
    type Garbage = BTreeSet<VerdictKey>;

    fn pinned_policy(&self) -> Result<Pinned> {
        self.reads.set(self.reads.get() + 1);
        ensure!(!self.unreadable, "the map cannot be read");
        let rules = |row: &Endpoint| Rules { egress: row.egress_rules, ingress: row.ingress_rules };
        let rules = self.rows.iter().map(|(slot, row)| (*slot, rules(row))).collect();
        Ok(Pinned { rules, ..self.pinned.clone() })
    }

    fn name_rows(&mut self, generation: u64) -> Result<()> {
        self.generation = generation;
        Ok(())
    }

    fn write_policy(&mut self, change: &Change) -> Result<Self::Garbage> {
        if self.stuck || self.full && !change.verdicts.is_empty() {
            bail!("the map is full");
        }
        let new = change.verdicts.keys().filter(|key| !self.pinned.verdicts.contains_key(key)).count();
        let rows = self.pinned.verdicts.len() + new;
        if let Some(room) = self.room.filter(|room| rows > *room) {
            return Err(PolicyError::TooMany { map: "verdicts", rows, capacity: room as u32 }.into());
        }
        self.pinned.verdicts.extend(&change.verdicts);
        for (address, class) in &change.peers {
            match class {
                Some(class) => self.pinned.peers.insert(*address, *class),
                None => self.pinned.peers.remove(address),
            };
        }
        for (range, class) in &change.blocks {
            match class {
                Some(class) => self.pinned.blocks.insert(*range, *class),
                None => self.pinned.blocks.remove(range),
            };
        }
        for (slot, rules) in &change.endpoints {
            if let Some(row) = self.rows.get_mut(slot) {
                (row.egress_rules, row.ingress_rules) = (rules.egress, rules.ingress);
            }
        }
        self.epochs.extend(&change.epochs);
        Ok(change.old_verdicts.clone())
    }

    fn bury_policy(&mut self, garbage: Self::Garbage) -> Result<usize> {
        let before = self.pinned.verdicts.len();
        self.pinned.verdicts.retain(|key, _| !garbage.contains(key));
        Ok(before - self.pinned.verdicts.len())
    }

    fn endpoint(&self, slot: u32) -> Result<Option<Endpoint>> {
        Ok(self.rows.get(&slot).copied())
    }

    fn put_endpoint(&mut self, slot: u32, endpoint: Endpoint) -> Result<()> {
        self.rows.insert(slot, endpoint);
        Ok(())
    }

    fn remove_endpoint(&mut self, slot: u32) -> Result<()> {
        self.rows.remove(&slot);
        Ok(())
    }
}
