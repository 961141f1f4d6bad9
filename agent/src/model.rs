//! Typed state that `compile` reads: the cluster as the source told it, the underlay as netlink told it, and the agent's settings.
//!
//! Invariant: blind to where an object came from; plain data, comparable, no I/O.

pub mod cluster;
pub mod event;
pub mod labels;
pub mod name;
pub mod numbers;
pub mod packed;
pub mod policy;
pub mod settings;
pub mod sorted;
pub mod uid;
pub mod underlay;

pub use cluster::{Cluster, NamespaceObject, NodeObject, PodObject};
pub use event::{Event, Kind};
pub use labels::{Labels, Requirement, Selector};
pub use name::Name;
pub use numbers::Numbers;
pub use policy::{NamedPort, PolicyObject};
pub use settings::{Encap, Settings};
pub use sorted::Sorted;
pub use uid::Uid;
pub use underlay::{Exit, Underlay, UplinkState, Way};
