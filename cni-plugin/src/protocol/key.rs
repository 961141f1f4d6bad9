//! The key of everything: (container id, interface name). Pod names, addresses, namespace paths and earlier results are reused, renamed,
//! absent or stale in practice.

use serde::{Deserialize, Serialize};

/// An attachment: one interface of one container.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "RawKey")]
pub struct AttachmentKey {
    container_id: String,
    ifname: String,
}

/// Why a key was refused; the text names the variable (CNI 1.1.0, error code 4).
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// CNI_CONTAINERID does not follow the specification.
    #[error("CNI_CONTAINERID {0:?} must start with an ASCII letter or digit and hold only those, '_', '.' and '-'")]
    ContainerId(String),
    /// CNI_IFNAME cannot name a Linux interface.
    #[error("CNI_IFNAME {0:?} must be 1 to 15 bytes without '/', ':' or white space, and neither '.' nor '..'")]
    Ifname(String),
}

#[derive(Deserialize)]
struct RawKey {
    container_id: String,
    ifname: String,
}

impl TryFrom<RawKey> for AttachmentKey {
    type Error = KeyError;

    fn try_from(raw: RawKey) -> Result<Self, KeyError> {
        Self::new(raw.container_id, raw.ifname)
    }
}

impl AttachmentKey {
    /// Checks both parts by the rules of the specification and of the reference library.
    ///
    /// # Errors
    /// The part that breaks its rule.
    pub fn new(container_id: impl Into<String>, ifname: impl Into<String>) -> Result<Self, KeyError> {
        let (container_id, ifname) = (container_id.into(), ifname.into());
        if !valid_identifier(&container_id) {
            return Err(KeyError::ContainerId(container_id));
        }
        let bad = |c: char| c == '/' || c == ':' || c.is_whitespace();
        if ifname.is_empty() || ifname.len() > 15 || ifname == "." || ifname == ".." || ifname.contains(bad) {
            return Err(KeyError::Ifname(ifname));
        }
        Ok(Self { container_id, ifname })
    }

    /// CNI_CONTAINERID.
    #[must_use]
    pub fn container_id(&self) -> &str {
        &self.container_id
    }

    /// CNI_IFNAME.
    #[must_use]
    pub fn ifname(&self) -> &str {
        &self.ifname
    }
}

impl std::fmt::Display for AttachmentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.container_id, self.ifname)
    }
}

/// The rule for container ids and network names: alphanumeric ASCII first, then also `_`, `.`, `-` (CNI 1.1.0).
#[must_use]
pub fn valid_identifier(s: &str) -> bool {
    let mut bytes = s.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_runtimes_send() {
        for id in ["a", "default-t1", "0123456789abcdef", "a_b.c-d"] {
            assert!(AttachmentKey::new(id, "eth0").is_ok(), "{id}");
        }
        for name in ["eth0", "net1", "fifteen-bytes-x"] {
            assert!(AttachmentKey::new("a", name).is_ok(), "{name}");
        }
    }

    #[test]
    fn refuses_what_the_specification_refuses() {
        for id in ["", "-a", ".a", "a/b", "a b", "ä"] {
            assert!(matches!(AttachmentKey::new(id, "eth0"), Err(KeyError::ContainerId(_))), "{id}");
        }
        for name in ["", ".", "..", "a/b", "a:b", "a b", "a\u{a0}b", "sixteen-bytes-xx"] {
            assert!(matches!(AttachmentKey::new("a", name), Err(KeyError::Ifname(_))), "{name}");
        }
    }

    #[test]
    fn a_stored_key_is_checked_again() {
        let bad = r#"{"container_id":"../x","ifname":"eth0"}"#;
        assert!(serde_json::from_str::<AttachmentKey>(bad).is_err());
        let key = AttachmentKey::new("c1", "eth0").unwrap();
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<AttachmentKey>(&text).unwrap(), key);
    }
}
