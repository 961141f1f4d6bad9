//! Versions of the specification.

use super::error::code;
use crate::protocol::Failure;

/// A supported version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// 0.3.0: lists of interfaces and addresses.
    V0_3_0,
    /// 0.3.1: chains.
    V0_3_1,
    /// 0.4.0: CHECK, prevResult on DEL.
    V0_4_0,
    /// 1.0.0: no `ips[].version`.
    V1_0_0,
    /// 1.1.0: STATUS, GC, MTU in results.
    V1_1_0,
}

impl Version {
    /// All, oldest first.
    pub const ALL: [Self; 5] = [Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// The newest.
    pub const NEWEST: Self = Self::V1_1_0;

    /// As written in `cniVersion`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// The version of a configuration; none given means 0.1.0.
    ///
    /// # Errors
    /// Code 6 if it is no version, code 1 if it is not supported; the details name both sides.
    pub fn of_config(text: Option<&str>) -> Result<Self, Failure> {
        let text = text.filter(|t| !t.is_empty()).unwrap_or("0.1.0");
        if let Some(version) = Self::ALL.into_iter().find(|v| v.as_str() == text) {
            return Ok(version);
        }
        if !well_formed(text) {
            return Err(Failure::new(
                code::DECODE,
                format!("cniVersion {text:?} is no version: write one like \"1.0.0\" into the network configuration"),
            ));
        }
        Err(Failure::new(
            code::INCOMPATIBLE_VERSION,
            format!(
                "cniVersion {text:?} is not supported: set the network configuration's cniVersion to one of {}",
                list()
            ),
        )
        .with_details(format!("configuration: {text}; osmia-cni: {}", list())))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The supported versions in words.
#[must_use]
pub fn list() -> String {
    Version::ALL.map(Version::as_str).join(", ")
}

/// One to three numbers with dots between, as the reference library parses it.
fn well_formed(text: &str) -> bool {
    let parts: Vec<_> = text.split('.').collect();
    parts.len() <= 3 && parts.iter().all(|p| p.parse::<u32>().is_ok() && !p.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_supported_version_is_itself() {
        for version in Version::ALL {
            assert_eq!(Version::of_config(Some(version.as_str())), Ok(version));
        }
    }

    /// C1, C16, C17, R13.
    #[test]
    fn others_are_refused_by_what_is_wrong_with_them() {
        for text in [None, Some(""), Some("0.1.0"), Some("0.2.0"), Some("1.2.0"), Some("2.0"), Some("1")] {
            let failure = Version::of_config(text).unwrap_err();
            assert_eq!(failure.code, code::INCOMPATIBLE_VERSION, "{text:?}");
            assert!(
                failure.details.contains("1.1.0")
                    && failure.details.contains(text.filter(|t| !t.is_empty()).unwrap_or("0.1.0"))
            );
        }
        for text in ["abc", "1.0.0.0", "1..0", "1.x", "-1.0", "+1.0.0", " 1.0.0", "99999999999.0.0"] {
            assert_eq!(Version::of_config(Some(text)).unwrap_err().code, code::DECODE, "{text:?}");
        }
    }
}
