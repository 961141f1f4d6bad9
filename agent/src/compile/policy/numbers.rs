//! The numbers of one kind of thing: each is given once, and the catalogue is told which came and which went.

use std::collections::BTreeSet;

use osmia_maps::catalogue::Last;

/// Nobody is given a number above this one: [`used_up`] is asked before a change is compiled, and none needs as many as are left then.
const HIGHEST: u32 = u32::MAX - (1 << 28);

/// Whether of some kind too few numbers are left to go on.
pub(super) fn used_up(last: Last) -> bool {
    let Last { atom, class, set, cookie } = last;
    [atom, class, set, cookie].into_iter().any(|last| last > HIGHEST)
}

#[derive(Debug, Default)]
pub(super) struct Numbers {
    last: u32,
    came: BTreeSet<u32>,
    went: BTreeSet<u32>,
}

impl Numbers {
    /// The next are above this one.
    pub(super) fn after(last: u32) -> Self {
        Self { last, ..Self::default() }
    }

    /// The highest that was given.
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    /// One that nothing had before.
    pub(super) fn next(&mut self) -> u32 {
        self.last = self.last.saturating_add(1);
        self.came.insert(self.last);
        self.last
    }

    /// Nothing has this one any more.
    pub(super) fn leave(&mut self, number: u32) {
        if !self.came.remove(&number) {
            self.went.insert(number);
        }
    }

    /// The catalogue knows these, and those in use are `live`.
    pub(super) fn told<'a>(&mut self, live: BTreeSet<u32>, known: impl Iterator<Item = &'a u32>) {
        let known: BTreeSet<u32> = known.copied().collect();
        self.went = &known - &live;
        self.came = &live - &known;
    }

    /// Those that came since the last time and are still had.
    pub(super) fn take_came(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.came)
    }

    /// Those that were told of and went since the last time.
    pub(super) fn take_went(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.went).into_iter().collect()
    }
}
