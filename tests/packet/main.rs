//! Packets through the programs of the object, loaded into the running kernel: what comes out, by test-run.
//!
//! The programs are attached nowhere; the packets arrive at `lo` of a namespace of their own, which no packet leaves.
//!
//! Needs root and `OSMIA_OBJECT`; `cargo xtask test packet` sets it.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests: a panic with its place is the report")]

mod cluster;
mod first;
mod golden;
mod headers;
mod hurt;
mod known;
mod object;
mod policy;
mod receiver;
