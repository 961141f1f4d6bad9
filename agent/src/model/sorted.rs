//! A set that does not change: in memory no larger than what is in it, and shared by its copies.

use std::{borrow::Borrow, ops::Deref, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Values in order, each once. Written down it is their sequence.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sorted<T>(Arc<[T]>);

impl<T> Sorted<T> {
    /// Whether this is in it.
    pub fn contains<Q: Ord + ?Sized>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.binary_search_by(|own| own.borrow().cmp(value)).is_ok()
    }

    /// How many copies of it there are.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Ord> FromIterator<T> for Sorted<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut values: Vec<T> = values.into_iter().collect();
        values.sort_unstable();
        values.dedup();
        Self(if values.is_empty() { Arc::default() } else { values.into() })
    }
}

impl<T> Deref for Sorted<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a Sorted<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Serialize> Serialize for Sorted<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de> + Ord> Deserialize<'de> for Sorted<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_what_a_tree_would_be(a: Vec<u8>, b: Vec<u8>, asked: u8) {
            let trees = [&a, &b].map(|values| values.iter().copied().collect::<BTreeSet<u8>>());
            let own = [&a, &b].map(|values| values.iter().copied().collect::<Sorted<u8>>());
            prop_assert_eq!(own[0].contains(&asked), trees[0].contains(&asked));
            prop_assert_eq!(own[0].cmp(&own[1]), trees[0].cmp(&trees[1]));
            let written = serde_json::to_string(&own[0]).unwrap();
            prop_assert_eq!(&written, &serde_json::to_string(&trees[0]).unwrap());
            prop_assert_eq!(&serde_json::from_str::<Sorted<u8>>(&serde_json::to_string(&a).unwrap()).unwrap(), &own[0]);
        }
    }
}
