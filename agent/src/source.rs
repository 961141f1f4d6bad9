//! Where the cluster's objects come from: events in, nothing else.
//!
//! Invariant: a source tells only what it has understood; what it cannot read it says, and keeps what it knew.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::Result;
use tokio::time::Instant;

mod arrival;
mod commons;
mod copy;
mod early;
pub mod folder;
pub mod kube;
#[cfg(test)]
pub(crate) mod logged;
pub mod notice;
pub mod object;
mod saved;
mod waiting;

use crate::model::Event;
use folder::FolderSource;
use kube::{Access, KubeSource, Reporter};

/// `--source`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceSpec {
    /// `folder:DIR`: Kubernetes manifests in a folder.
    Folder(PathBuf),
    /// `kube`: an apiserver.
    Kube,
}

impl FromStr for SourceSpec {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s.split_once(':') {
            None if s == "kube" => Ok(Self::Kube),
            Some(("folder", dir)) if !dir.is_empty() => Ok(Self::Folder(dir.into())),
            _ => {
                Err(format!("{s:?} is no source: write kube, an apiserver, or folder:DIR, a folder of Kubernetes YAML"))
            }
        }
    }
}

/// A source that runs.
pub enum Source {
    /// A folder.
    Folder(Box<FolderSource>),
    /// An apiserver.
    Kube(Box<KubeSource>),
}

impl Source {
    /// Makes it ready; what it knows at first.
    ///
    /// # Errors
    /// It cannot work like this.
    pub async fn start(spec: &SourceSpec, access: Access, state: &Path) -> Result<(Self, Vec<Event>)> {
        match spec {
            SourceSpec::Folder(dir) => {
                let (source, events) = FolderSource::start(dir, state)?;
                Ok((Self::Folder(Box::new(source)), events))
            }
            SourceSpec::Kube => {
                let mut source = KubeSource::open(access, state).await?;
                let events = source.first().await;
                Ok((Self::Kube(Box::new(source)), events))
            }
        }
    }

    /// Waits for changes; they and when the first of them came, before anything was read of it. Cancel-safe.
    pub async fn next(&mut self) -> (Vec<Event>, Instant) {
        match self {
            Self::Folder(source) => source.next().await,
            Self::Kube(source) => source.next().await,
        }
    }

    /// Leaves no room between what is known of what was told: worth it once that was much.
    pub fn pack(&mut self) {
        match self {
            // Keeps the objects by file, of which there are few.
            Self::Folder(_) => {}
            Self::Kube(source) => source.pack(),
        }
    }

    /// Who writes notices of this node to where the objects come from; a folder takes none.
    #[must_use]
    pub fn reporter(&self, node: &str) -> Option<Reporter> {
        match self {
            Self::Folder(_) => None,
            Self::Kube(source) => Some(source.reporter(node)),
        }
    }

    /// What cannot be read, and why.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        match self {
            Self::Folder(source) => source.problems(),
            Self::Kube(source) => source.problems(),
        }
    }

    /// What [`Self::problems`] are about, as a metric says it.
    #[must_use]
    pub fn matter(&self) -> &'static str {
        match self {
            Self::Folder(_) => "manifests",
            Self::Kube(_) => "apiserver",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_kind_and_a_place() {
        assert_eq!("folder:/etc/osmia".parse(), Ok(SourceSpec::Folder("/etc/osmia".into())));
        assert_eq!("kube".parse(), Ok(SourceSpec::Kube));
        for bad in ["", "folder", "folder:", "kube2:x", "kube:", "/etc/osmia"] {
            let error = bad.parse::<SourceSpec>().unwrap_err();
            assert!(error.contains("folder:DIR") && error.contains("kube"), "{bad}");
        }
    }
}
