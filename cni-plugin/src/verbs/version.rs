//! VERSION: answers without stdin, agent, root or any other variable (N1): podman and CRI-O call it often.

use serde_json::{Value, json};

use crate::spec::Version;

/// The version document.
#[must_use]
pub fn version() -> Value {
    json!({"cniVersion": Version::NEWEST.as_str(), "supportedVersions": Version::ALL.map(Version::as_str)})
}
