//! NetworkPolicy with the real agents and the real plugin: what a policy lets through, to whom, from when on, and until when. The receiver
//! decides what arrived.
//!
//! Needs root and `OSMIA_BIN_DIR`; `cargo xtask test policy` sets it. All is inside the lab's own namespaces, every load is bounded.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests panic, for the backtrace")]

mod add;
mod allow;
mod errors;
mod flapping;
mod fragments;
mod killed;
mod labels;
mod living;
mod lookups;
mod node;
mod ports;
mod stage;
mod visible;
