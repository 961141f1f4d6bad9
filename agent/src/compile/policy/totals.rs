//! What the rule sets that endpoints have need together: kept as they come, grow and go, so that no change adds up all of them.

use super::{budget::Room, sets::Set};

/// Sums over the sets in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    /// Verdict rows.
    pub(super) rows: usize,
    /// Ranges and exceptions as they are written down, some more than once.
    pub(super) ranges: usize,
    /// Sets without room for their verdicts.
    pub(super) no_verdicts: usize,
    /// Sets without room for their ranges.
    pub(super) no_ranges: usize,
}

impl Totals {
    /// A set is in use.
    pub(super) fn add(&mut self, set: &Set) {
        self.rows += set.rows;
        self.ranges += set.ranges;
        if let Some(sets) = self.without(set.room) {
            *sets += 1;
        }
    }

    /// A set is in use no more.
    pub(super) fn remove(&mut self, set: &Set) {
        self.rows -= set.rows;
        self.ranges -= set.ranges;
        if let Some(sets) = self.without(set.room) {
            *sets -= 1;
        }
    }

    fn without(&mut self, room: Room) -> Option<&mut usize> {
        match room {
            Room::Whole => None,
            Room::NoVerdicts => Some(&mut self.no_verdicts),
            Room::NoRanges => Some(&mut self.no_ranges),
        }
    }
}
