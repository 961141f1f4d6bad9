//! Why the dataplane could not be opened or written.

use std::{io, path::PathBuf};

use osmia_maps::{LayoutError, MapError};

/// Why [`super::Dataplane::open`] failed. Programs that ran before go on running.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The agent was built with `EBPF_SKIP`.
    #[error("this agent was built without its BPF object (EBPF_SKIP); build it again without that variable")]
    NoObject,
    /// No bpffs, or the pins are not of this layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A folder or file below the pins.
    #[error("{what} {path}")]
    Folder {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A pinned map has another shape although its layout number is ours.
    #[error(
        "the pinned map {map} has {property} {actual}, this build needs {expected}; nothing was changed. Remove its pin when no pod needs it"
    )]
    Incompatible {
        /// The map.
        map: String,
        /// What differs.
        property: &'static str,
        /// What is pinned.
        actual: u64,
        /// What the object declares.
        expected: u64,
    },
    /// The object is not the one this agent was written for.
    #[error("the BPF object has no {kind} {name}: agent and object are not of one build")]
    Lacks {
        /// Program, map or global.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The object could not be read, or a map not be made.
    #[error("loading the BPF object")]
    Load(#[source] Box<aya::EbpfError>),
    /// The verifier refused a program, or it could not be test-run.
    #[error("program {name}")]
    Program {
        /// Its name.
        name: String,
        /// The kernel's answer, with the verifier's log.
        source: Box<aya::programs::ProgramError>,
    },
    /// The jump table could not be filled.
    #[error("writing row {row} of the jump table")]
    JumpTable {
        /// Row.
        row: u32,
        /// The kernel's answer.
        source: Box<aya::maps::MapError>,
    },
    /// The kernel's tick makes no sense.
    #[error("cannot tell how long a jiffy is: {0}")]
    Clock(String),
    /// A map.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A hook.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Why a program is not on a hook.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The device is gone.
    #[error("no device {ifindex} for program {program} any more")]
    Gone {
        /// Program.
        program: &'static str,
        /// Ifindex.
        ifindex: u32,
    },
    /// Attaching, replacing or pinning failed.
    #[error("{what} program {program} on device {ifindex}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// Program.
        program: String,
        /// Ifindex.
        ifindex: u32,
        /// The kernel's answer.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The folder of links.
    #[error("{what} {path}")]
    Folder {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Why rows were not written. What was in force before still is, but for the rows that `Map` errors name.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// More rows than the map takes; nothing was written.
    #[error("{rows} rows do not fit into map {map}, which takes {capacity}; the rows of before stay in force")]
    TooMany {
        /// The map.
        map: &'static str,
        /// Rows wanted.
        rows: usize,
        /// Rows it takes.
        capacity: u32,
    },
    /// No such slot.
    #[error("endpoint slot {slot} is not between 1 and {last}")]
    Slot {
        /// The slot.
        slot: u32,
        /// The last one.
        last: u32,
    },
    /// A program that ought to be loaded.
    #[error("looking at program {name}")]
    Program {
        /// Its name.
        name: String,
        /// The kernel's answer.
        source: Box<aya::programs::ProgramError>,
    },
    /// A map.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A hook.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Why policy rows were not written. What was in force before still is, but where `Map` tells of a write in the middle: then endpoints whose
/// rules were being changed are shut until a write succeeds.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// More rows than the map takes; nothing was written.
    #[error("{rows} rows do not fit into map {map}, which takes {capacity}; the policies of before stay in force")]
    TooMany {
        /// The map.
        map: &'static str,
        /// Rows there would be.
        rows: usize,
        /// Rows it takes.
        capacity: u32,
    },
    /// A map.
    #[error(transparent)]
    Map(#[from] MapError),
}
