//! What to write so that a table holds the wanted rows.

use std::collections::BTreeMap;

/// Rows to write and keys to remove.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Diff<K, V> {
    /// New or changed.
    pub(super) put: Vec<(K, V)>,
    /// Not wanted any more.
    pub(super) remove: Vec<K>,
}

impl<K: Ord + Copy, V: PartialEq + Copy> Diff<K, V> {
    /// From the rows that are there to the rows wanted.
    pub(super) fn new(there: &BTreeMap<K, V>, wanted: &BTreeMap<K, V>) -> Self {
        let changed = wanted.iter().filter(|(key, value)| there.get(key) != Some(value));
        let gone = there.keys().filter(|key| !wanted.contains_key(key));
        Self { put: changed.map(|(k, v)| (*k, *v)).collect(), remove: gone.copied().collect() }
    }

    /// Rows that differ.
    pub(super) fn rows(&self) -> usize {
        self.put.len() + self.remove.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(u32, char)]) -> BTreeMap<u32, char> {
        rows.iter().copied().collect()
    }

    #[test]
    fn only_what_differs_is_written() {
        let diff = Diff::new(&rows(&[(1, 'a'), (2, 'b'), (3, 'c')]), &rows(&[(2, 'b'), (3, 'x'), (4, 'd')]));
        assert_eq!(diff, Diff { put: vec![(3, 'x'), (4, 'd')], remove: vec![1] });
        assert_eq!(diff.rows(), 3);
    }

    #[test]
    fn equal_tables_need_nothing() {
        let same = rows(&[(1, 'a')]);
        assert_eq!(Diff::new(&same, &same).rows(), 0);
    }
}
