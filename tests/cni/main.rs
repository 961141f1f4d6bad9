//! The real plugin against an agent that follows a script, in namespaces of its own. Items of the CNI facts (E1, C1, V1, R1, X1, A1, D1,
//! K1, T1, G1, N1) are cited by the tests that prove them.
//!
//! Needs root and `OSMIA_BIN_DIR`. Every test makes its namespaces, nobody else sees them, and the kernel removes them.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests panic, for the backtrace")]

mod add;
mod check;
mod config;
mod del;
mod environment;
mod fake_agent;
mod faults;
mod gc;
mod kernel;
mod node;
mod parallel;
mod speed;
mod status;
mod version;
