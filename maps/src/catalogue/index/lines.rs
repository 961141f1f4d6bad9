//! The lines of one kind by the number that they name.
//!
//! Invariant: of lines that name the same number the last one counts. Numbers rise within the file but for what is said again, so that putting
//! them in order is looking that they are.

use super::file::Place;

#[derive(Clone, Copy, Debug)]
struct Found {
    number: u32,
    /// `None`: gone.
    place: Option<Place>,
}

/// The lines.
#[derive(Debug)]
pub(super) struct Lines {
    found: Vec<Found>,
    in_order: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self { found: Vec::new(), in_order: true }
    }
}

impl Lines {
    /// The next line of the file.
    pub(super) fn put(&mut self, number: u32, place: Place) {
        self.in_order &= self.found.last().is_none_or(|last| last.number < number);
        self.found.push(Found { number, place: Some(place) });
    }

    /// What the file said so far of these is history.
    pub(super) fn forget(&mut self, numbers: &[u32]) {
        self.order();
        for number in numbers {
            if let Some(found) = self.position(*number).and_then(|index| self.found.get_mut(index)) {
                found.place = None;
            }
        }
    }

    /// The file is over.
    pub(super) fn end(&mut self) {
        self.order();
        self.found.retain(|found| found.place.is_some());
    }

    fn order(&mut self) {
        if self.in_order {
            return;
        }
        self.found.sort_by_key(|found| found.number);
        self.found.dedup_by(|later, earlier| {
            let same = later.number == earlier.number;
            if same {
                *earlier = *later;
            }
            same
        });
        self.in_order = true;
    }

    /// Which of them it is; after [`Self::end`].
    pub(super) fn position(&self, number: u32) -> Option<usize> {
        // Where none is missing before it, as in a file of one start.
        let straight = number.checked_sub(self.found.first()?.number)? as usize;
        if self.found.get(straight).is_some_and(|found| found.number == number) {
            return Some(straight);
        }
        self.found.binary_search_by_key(&number, |found| found.number).ok()
    }

    pub(super) fn place(&self, position: usize) -> Option<Place> {
        self.found.get(position)?.place
    }

    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    /// All numbers, rising.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.found.iter().map(|found| found.number)
    }
}
