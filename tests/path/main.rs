//! Packets through the loaded programs on real devices: nodes and LAN of the lab, but rows and links written by the test, without agent
//! and plugin. What is proved here is the dataplane's alone.
//!
//! Needs root, `OSMIA_OBJECT` and `OSMIA_BIN_DIR`; `cargo xtask test path` sets them.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panic, also in what its functions share")]

mod bench;
mod datagram;
mod dataplane;
mod door;
mod errors;
mod fragments;
mod icmp_listener;
mod masquerade;
mod node;
mod slow_path;
mod stack;
mod too_big;
mod tunnel;
