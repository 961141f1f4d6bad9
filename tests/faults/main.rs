//! Faults and bad input on nodes with the real agent and the real plugin: floods, full tables, forgers, nodes that lack or change something, reboots,
//! another layout of the maps.
//! What is asserted is what a user sees: flows that go on, packets that arrive nowhere and are counted, messages that say what is wrong.
//!
//! Needs root and `OSMIA_BIN_DIR`; `cargo xtask test faults` sets it. All is inside the lab's own namespaces, every load is bounded.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests panic, for the backtrace")]

mod check;
mod exchange;
mod floods;
mod forged;
mod full;
mod idle;
mod lacking;
mod layouts;
mod link_local;
mod moving;
mod one_instance;
mod program_log;
mod reboot;
mod stage;
mod tunnel;
mod uplinks;
