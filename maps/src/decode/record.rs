//! Named values in an order.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Cell;

/// Named values, in the order in which they are shown; JSON keeps it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Record(Vec<(&'static str, Cell)>);

impl Record {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(8)
    }

    /// Nothing yet, with room for so many.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// With one more at the end.
    #[must_use]
    pub fn with(mut self, name: &'static str, cell: Cell) -> Self {
        self.0.push((name, cell));
        self
    }

    /// With all of another at the end.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Without a name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|(n, _)| *n != name);
        self
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Cell> {
        self.iter().find(|(n, _)| *n == name).map(|(_, cell)| cell)
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Cell)> {
        self.0.iter().map(|(name, cell)| (*name, cell))
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (name, cell) in self.iter().filter(|(_, cell)| !cell.is_absent()) {
            write!(f, "{}{name}={cell}", if first { "" } else { " " })?;
            first = false;
        }
        Ok(())
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.iter())
    }
}
