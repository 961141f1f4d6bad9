//! Real callers: cnitool, and Debian's containerd with `ctr`, on a node with the real agent. What is asserted is what their users see:
//! the pod's interface, addresses and routes, pings, and that nothing is left after the end, whoever forgot what.
//!
//! Needs root, `OSMIA_BIN_DIR` and `OSMIA_TARGET_DIR`; `cargo xtask test runtimes` sets them. Nothing of the machine's own is touched: network,
//! mounts, processes and the folders with fixed names (`/etc/cni`, `/var/lib/cni`) are private ones.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests panic, for the backtrace")]

mod callers;
mod cgroups;
mod cnitool;
mod containerd;
mod containers;
mod host;
