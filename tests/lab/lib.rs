//! The lab: nodes on a LAN in namespaces, agents and plugins as processes, probes decided by the receiver.
//!
//! ```no_run
//! use std::time::Duration;
//! use osmia_lab::{Lab, Options, Probe, Proto};
//!
//! let lab = Lab::two_nodes(Options::default())?;
//! let (a, b) = (lab.add_pod(0, "a")?, lab.add_pod(1, "b")?);
//! let probe = Probe {
//!     proto: Proto::Udp,
//!     from: &a.space,
//!     to: &b.space,
//!     destination: b.address(false)?,
//!     patience: Duration::from_secs(2),
//! };
//! probe.run()?.complete(a.address(false)?).map_err(anyhow::Error::msg)?;
//! # Ok::<_, anyhow::Error>(())
//! ```
//!
//! Invariant: nothing outside the lab's own namespaces and its run folder is touched, but for a switch of the kernel that agents turn on for
//! milliseconds, which is off again at the end; and several labs live side by side.

mod agent;
pub mod apiserver;
mod capture;
mod cluster;
pub mod cni_runner;
pub mod cpu;
pub mod feed;
mod folder;
mod lan;
pub mod load;
pub mod manifest;
mod node;
mod options;
pub mod packet;
mod plugin_process;
mod probe;
mod reboot;
mod server;
mod signals;
mod space;
mod switch;
mod sys;
mod withhold;
mod world;

pub use agent::Agent;
pub use capture::{Capture, Pair, Seen};
pub use folder::random;
pub use lan::{Lan, OUTSIDE_V4, OUTSIDE_V6, Subnet, UPLINK};
pub use node::{Node, Paths, bin_dir};
pub use options::{Encap, Families, Options, Underlay};
pub use plugin_process::Ran;
pub use probe::{Arrival, Probe, Proto};
pub use server::Server;
pub use signals::clean_up_when_told_to_end;
pub use space::{Ended, Space};
pub use world::{Lab, POD_NAMESPACE, Pod};
