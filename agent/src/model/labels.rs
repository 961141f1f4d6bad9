//! Labels and the selectors over them (meta/v1 LabelSelector).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

/// Labels of an object.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// A label selector; without requirements it selects everything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Selector(pub BTreeSet<Requirement>);

/// What one key has to fulfil. `matchLabels` are requirements with one value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Requirement {
    /// The key is there with one of these values.
    In(String, BTreeSet<String>),
    /// The key is missing, or has none of these values.
    NotIn(String, BTreeSet<String>),
    /// The key is there.
    Exists(String),
    /// The key is missing.
    DoesNotExist(String),
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
            Self::In(key, values) => labels.get(key.as_str()).is_some_and(|value| values.contains(&**value)),
            Self::NotIn(key, values) => labels.get(key.as_str()).is_none_or(|value| !values.contains(&**value)),
            Self::Exists(key) => labels.contains_key(key.as_str()),
            Self::DoesNotExist(key) => !labels.contains_key(key.as_str()),
        }
    }
}
