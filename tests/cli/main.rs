//! The CLI: the real binary on a private bpffs with known rows. What it prints, what it refuses, that it only reads.
//!
//! Needs root, `OSMIA_BIN_DIR` and `OSMIA_OBJECT`; `cargo xtask test cli` sets them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests: a panic with its place is the report")]

mod commands;
mod explain;
mod fixture;
mod flows;
mod large;
mod policy;
mod reading;
mod refusals;
mod status;
