//! Error codes and the error document of the specification.

use serde_json::{Map, Value};

use super::Version;
use crate::protocol::Failure;

/// Codes: 1 to 99 are the specification's, 100 and up ours, 8 and 999 the reference library's.
pub mod code {
    /// The configuration's version is none of ours.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// A field of the configuration that we cannot serve; the text holds key and value.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// A bad or missing environment variable; the text names it.
    pub const ENVIRONMENT: u32 = 4;
    /// Reading or writing failed.
    pub const IO: u32 = 5;
    /// Not JSON, or not of the expected shape.
    pub const DECODE: u32 = 6;
    /// JSON, but not a valid network configuration.
    pub const CONFIG: u32 = 7;
    /// CNI_NETNS is the plugin's own namespace.
    pub const OWN_NAMESPACE: u32 = 8;
    /// Nothing is wrong but the moment.
    pub const TRY_LATER: u32 = 11;
    /// STATUS: an ADD would fail.
    pub const UNAVAILABLE: u32 = 50;
    /// STATUS: an ADD would fail and running pods are in danger.
    pub const LIMITED: u32 = 51;
    /// Building the link failed.
    pub const LINK: u32 = 100;
    /// ADD: the interface exists already.
    pub const EXISTS: u32 = 101;
    /// CHECK: the attachment is not what it should be.
    pub const DIFFERS: u32 = 102;
    /// A fault in the plugin.
    pub const INTERNAL: u32 = 999;
}

impl Failure {
    /// A failure without details.
    #[must_use]
    pub fn new(code: u32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    /// The same with details.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// The error document in the layout of all supported versions: `{cniVersion, code, msg, details}`.
    #[must_use]
    pub fn document(&self, version: Version) -> Value {
        let mut fields = Map::new();
        fields.insert("cniVersion".into(), version.as_str().into());
        fields.insert("code".into(), self.code.into());
        fields.insert("msg".into(), self.message.as_str().into());
        if !self.details.is_empty() {
            fields.insert("details".into(), self.details.as_str().into());
        }
        Value::Object(fields)
    }

    /// The failure as DEL may say it: go-cni reads "not found" and "no such file or directory" in a DEL's error as success, drops its
    /// state, and no DEL comes again.
    #[must_use]
    pub fn for_del(self) -> Self {
        Self { code: self.code, message: soften(&self.message), details: soften(&self.details) }
    }
}

/// Replaces what go-cni takes for success, in any case.
fn soften(text: &str) -> String {
    let mut text = text.to_owned();
    for (phrase, instead) in [("no such file or directory", "missing path"), ("not found", "missing")] {
        // Phrases are ASCII, so lower-casing only ASCII keeps the byte positions.
        while let Some(at) = text.to_ascii_lowercase().find(phrase) {
            text.replace_range(at..at + phrase.len(), instead);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_keys_of_the_specification() {
        let failure = Failure::new(code::TRY_LATER, "later").with_details("why");
        let expected = serde_json::json!({"cniVersion": "0.4.0", "code": 11, "msg": "later", "details": "why"});
        assert_eq!(failure.document(Version::V0_4_0), expected);
        assert!(Failure::new(1, "x").document(Version::V1_1_0).get("details").is_none());
    }

    /// cni.md section 0, take-away 8.
    #[test]
    fn a_del_error_never_reads_as_success() {
        let io = std::io::Error::from_raw_os_error(2);
        let failure = Failure::new(5, format!("opening x: {io}; pod Not Found, nOt fOund"))
            .with_details("not found ÄNOT FOUND")
            .for_del();
        for text in [&failure.message, &failure.details] {
            let lower = text.to_lowercase();
            assert!(!lower.contains("not found") && !lower.contains("no such file"), "{text}");
        }
        assert!(failure.message.starts_with("opening x: "));
    }
}
