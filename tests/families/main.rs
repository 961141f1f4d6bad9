//! Real agents and plugin with each mix of address families, on a wire that segments, with both ways between nodes, and beside a stack
//! that rewrites. What arrives is judged by who receives it.
//!
//! Needs root and `OSMIA_BIN_DIR`; `cargo xtask test families` sets it.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panic, also in what its functions share")]

mod auto;
mod exchange;
mod family;
mod segmenting;
mod service;
mod stage;
