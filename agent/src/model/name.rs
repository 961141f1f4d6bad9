//! Namespace and name of an object.

use std::{
    cmp::Ordering,
    fmt::{self, Debug, Display, Formatter},
    str,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use triomphe::ThinArc;

/// Namespace and name: one allocation for all who speak of the object, and one word for each of them, since a cluster has tens of thousands.
/// In order of namespace, then name. Written down it is the pair of them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name(
    /// How long the namespace is; both, one behind the other.
    ThinArc<usize, u8>,
);

impl Name {
    /// Of an object.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(ThinArc::from_header_and_slice(namespace.len(), [namespace, name].concat().as_bytes()))
    }

    /// No other in the namespace comes before it.
    #[must_use]
    pub fn first_in(namespace: &str) -> Self {
        Self::new(namespace, "")
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        text(self.halves().0)
    }

    /// Its name in the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        text(self.halves().1)
    }

    /// Whether this is its namespace.
    #[must_use]
    pub fn is_in(&self, namespace: &str) -> bool {
        self.halves().0 == namespace.as_bytes()
    }

    fn halves(&self) -> (&[u8], &[u8]) {
        let both = &self.0.slice;
        both.split_at_checked(self.0.header.header).unwrap_or((both, &[]))
    }
}

/// Half of a [`Name`], which is made of text alone.
fn text(half: &[u8]) -> &str {
    str::from_utf8(half).unwrap_or_default()
}

impl From<(String, String)> for Name {
    fn from((namespace, name): (String, String)) -> Self {
        Self::new(&namespace, &name)
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.halves().cmp(&other.halves())
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace(), self.name())
    }
}

impl Debug for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.namespace(), self.name()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <(String, String)>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_what_a_pair_would_be(a in ("[ab/]{0,3}", "[ab/]{0,3}"), b in ("[ab/]{0,3}", "[ab/]{0,3}")) {
            let own = [&a, &b].map(|(namespace, name)| Name::new(namespace, name));
            prop_assert_eq!(own[0].cmp(&own[1]), a.cmp(&b));
            prop_assert_eq!(own[0] == own[1], a == b);
            prop_assert_eq!((own[0].namespace(), own[0].name()), (a.0.as_str(), a.1.as_str()));
            prop_assert_eq!(own[0].is_in(&b.0), a.0 == b.0);
            let written = serde_json::to_string(&own[0]).unwrap();
            prop_assert_eq!(&written, &serde_json::to_string(&a).unwrap());
            prop_assert_eq!(&serde_json::from_str::<Name>(&written).unwrap(), &own[0]);
        }
    }
}
