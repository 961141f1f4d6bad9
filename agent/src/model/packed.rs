//! Large maps without room between their entries.

use std::{collections::BTreeMap, mem};

/// Lays a map anew: of one that grew entry by entry nearly half is empty.
pub fn pack<K: Ord, V>(map: &mut BTreeMap<K, V>) {
    *map = mem::take(map).into_iter().collect();
}
