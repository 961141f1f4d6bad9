//! Why a map could not be opened, read or written.

use std::{io, path::PathBuf};

/// An error on a map.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// No such pin.
    #[error("{path} is not pinned")]
    Missing {
        /// The pin.
        path: PathBuf,
    },
    /// The pin could not be opened.
    #[error("opening the pin {path}")]
    Open {
        /// The pin.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The pin is a map of another shape.
    #[error("the pinned map {path} has {property} {found}, this build needs {expected}")]
    Shape {
        /// The pin.
        path: PathBuf,
        /// Key size, value size.
        property: &'static str,
        /// What is pinned.
        found: u64,
        /// What this build reads.
        expected: u64,
    },
    /// The map takes no more rows. What was there before is unharmed.
    #[error("map {map} is full: it takes {rows} rows")]
    Full {
        /// The map.
        map: &'static str,
        /// Its size.
        rows: u32,
    },
    /// A call failed.
    #[error("{call} on map {map}")]
    Call {
        /// What was tried.
        call: &'static str,
        /// The map.
        map: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Why the pins below a root cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The root is not on a bpffs.
    #[error("{root} is not on a bpf file system (mount one with: mount -t bpf bpf {mount})", mount = root.parent().unwrap_or(root).display())]
    NotBpffs {
        /// The root.
        root: PathBuf,
    },
    /// No layout at all is pinned there.
    #[error("nothing is pinned below {root}: no agent has loaded its programs since the last boot")]
    Nothing {
        /// The root.
        root: PathBuf,
    },
    /// Only other layouts are pinned.
    #[error("{root} holds layout {}, this build reads layout {expected}: use the build that wrote it", list(found))]
    Other {
        /// The root.
        root: PathBuf,
        /// Layouts found.
        found: Vec<u32>,
        /// [`crate::layout::LAYOUT`].
        expected: u32,
    },
    /// The folder is ours by name, its meta row says otherwise.
    #[error("the meta row in {folder} says {says}, expected layout {expected}: it is not read any further")]
    Meta {
        /// The layout's folder.
        folder: PathBuf,
        /// What it says.
        says: String,
        /// [`crate::layout::LAYOUT`].
        expected: u32,
    },
    /// The meta map could not be read.
    #[error("reading the meta row")]
    Map(#[from] MapError),
    /// The root could not be looked at.
    #[error("looking at {root}")]
    Io {
        /// The root.
        root: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn list(found: &[u32]) -> String {
    found.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
