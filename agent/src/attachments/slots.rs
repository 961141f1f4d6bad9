//! Slots of the endpoint tables.
//!
//! Invariant: a slot has one owner; it is freed only after its rows are gone and its epoch was raised, and comes again last of all.

use std::collections::{BTreeSet, VecDeque};

use osmia_maps::layout::maps::MAX_ENDPOINTS;

/// Free slots, longest unused first.
#[derive(Debug)]
pub(super) struct Slots {
    free: VecDeque<u32>,
}

impl Slots {
    /// All but those in use. Slot 0 is the route generation's.
    #[must_use]
    pub(super) fn new(used: &BTreeSet<u32>) -> Self {
        Self { free: (1..MAX_ENDPOINTS).filter(|slot| !used.contains(slot)).collect() }
    }

    /// A free one.
    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop_front()
    }

    /// Its rows are gone and its epoch was raised, or it was never written.
    pub(super) fn give_back(&mut self, slot: u32) {
        debug_assert!(!self.free.contains(&slot), "slot {slot} given back twice");
        self.free.push_back(slot);
    }

    /// How many are free.
    #[must_use]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_once_and_a_returned_one_last() {
        let mut slots = Slots::new(&BTreeSet::from([1, 3]));
        assert_eq!(slots.take(), Some(2));
        slots.give_back(2);
        let all: Vec<u32> = std::iter::from_fn(|| slots.take()).collect();
        assert_eq!(all.len(), MAX_ENDPOINTS as usize - 3);
        assert_eq!((all[0], all[all.len() - 1]), (4, 2));
        assert!(!all.contains(&0));
    }
}
