//! Where the cluster's objects come from: events in, nothing else.
//!
//! Invariant: a source tells only what it has understood; what it cannot read it says, and keeps what it knew.

use std::{path::PathBuf, str::FromStr};

pub mod folder;
pub mod object;

/// `--source`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceSpec {
    /// `folder:DIR`: Kubernetes manifests in a folder.
    Folder(PathBuf),
}

impl FromStr for SourceSpec {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s.split_once(':') {
            Some(("folder", dir)) if !dir.is_empty() => Ok(Self::Folder(dir.into())),
            _ => Err(format!("{s:?} is no source: write folder:DIR, a folder of Kubernetes YAML")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_kind_and_a_place() {
        assert_eq!("folder:/etc/osmia".parse(), Ok(SourceSpec::Folder("/etc/osmia".into())));
        for bad in ["", "folder", "folder:", "kube2:x", "/etc/osmia"] {
            assert!(bad.parse::<SourceSpec>().unwrap_err().contains("folder:DIR"), "{bad}");
        }
    }
}
