//! What tells objects of one name apart.

use std::fmt::{self, Debug, Display, Formatter};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `metadata.uid`; empty: none is known. Those of an apiserver are UUIDs, which need no allocation here.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(Is);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Is {
    /// A UUID in the form that Kubernetes writes: lower case, with hyphens.
    Uuid([u8; 16]),
    /// Anything else.
    Text(Box<str>),
}

/// Where the hyphens of a UUID are.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
/// How long it is.
const LENGTH: usize = 36;

impl Uid {
    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Is::Text(text) if text.is_empty())
    }
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    if text.len() != LENGTH {
        return None;
    }
    let mut uuid = [0_u8; 16];
    let mut digits = 0;
    for (at, byte) in text.bytes().enumerate() {
        let digit = match byte {
            b'-' if HYPHENS.contains(&at) => continue,
            _ if HYPHENS.contains(&at) => return None,
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        let pair = uuid.get_mut(digits / 2)?;
        *pair = *pair << 4 | digit;
        digits += 1;
    }
    Some(uuid)
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(uuid(text).map_or_else(|| Is::Text(text.into()), Is::Uuid))
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl Default for Uid {
    fn default() -> Self {
        Self(Is::Text(Box::default()))
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, other: &str) -> bool {
        match &self.0 {
            Is::Uuid(own) => uuid(other).as_ref() == Some(own),
            Is::Text(own) => **own == *other,
        }
    }
}

impl PartialEq<String> for Uid {
    fn eq(&self, other: &String) -> bool {
        *self == **other
    }
}

impl Display for Uid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Is::Text(text) => f.write_str(text),
            Is::Uuid(uuid) => uuid.iter().enumerate().try_for_each(|(at, byte)| {
                let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                write!(f, "{hyphen}{byte:02x}")
            }),
        }
    }
}

impl Debug for Uid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_what_it_was(text: &str) -> Result<(), TestCaseError> {
        let uid = Uid::from(text);
        prop_assert_eq!(uid.to_string(), text);
        prop_assert_eq!(uid.is_empty(), text.is_empty());
        prop_assert!(uid == *text);
        let written = serde_json::to_string(text).unwrap();
        prop_assert_eq!(&serde_json::to_string(&uid).unwrap(), &written);
        prop_assert_eq!(serde_json::from_str::<Uid>(&written).unwrap(), uid);
        Ok(())
    }

    proptest! {
        #[test]
        fn it_says_what_it_was_told(uuid in "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", other in "[0-9a-fA-Fg-]{0,37}") {
            is_what_it_was(&uuid)?;
            prop_assert!(matches!(Uid::from(uuid.as_str()).0, Is::Uuid(_)));
            is_what_it_was(&other)?;
            is_what_it_was(&uuid.to_uppercase())?;
        }
    }

    #[test]
    fn two_are_one_only_if_they_read_the_same() {
        let uid = "00000000-0000-4000-b000-000000000001";
        for other in [
            "",
            "00000000-0000-4000-b000-000000000002",
            "00000000-0000-4000-B000-000000000001",
            "000000000000-4000-b000-00000000000001",
        ] {
            assert_ne!(Uid::from(uid), Uid::from(other), "{other}");
        }
    }
}
