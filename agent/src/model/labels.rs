//! Labels and the selectors over them (meta/v1 LabelSelector).
//!
//! Invariant: neither changes once it is made, and none takes more memory than what it says: a large cluster has tens of thousands.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Sorted;

/// Labels of an object: by key, each once.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
        self.0.get(found).map(|(_, value)| &**value)
    }

    /// Keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Of a key that comes twice the last value counts.
impl FromIterator<(Box<str>, Box<str>)> for Labels {
    fn from_iter<I: IntoIterator<Item = (Box<str>, Box<str>)>>(labels: I) -> Self {
        Self(labels.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect())
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
    }
}

/// A label selector; without requirements it selects everything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Selector(pub Sorted<Requirement>);

/// What one key has to fulfil. `matchLabels` are requirements with one value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Requirement {
    /// The key is there with one of these values.
    In(Box<str>, Sorted<Box<str>>),
    /// The key is missing, or has none of these values.
    NotIn(Box<str>, Sorted<Box<str>>),
    /// The key is there.
    Exists(Box<str>),
    /// The key is missing.
    DoesNotExist(Box<str>),
}

impl Selector {
    /// Whether it selects an object with these labels.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.get(key).is_some(),
            Self::DoesNotExist(key) => labels.get(key).is_none(),
        }
    }
}
