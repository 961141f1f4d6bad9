//! The pod's veth: building it, removing it by its host name, reading it back.
//!
//! Invariant: the whole plugin's kernel work is here, over blocking netlink sockets, and the calling thread never leaves its network
//! namespace. A socket belongs to the namespace in which it was opened, so a thread of its own enters the pod's only for that and ends.

pub mod build;
pub mod gateway;
pub mod message;
pub mod namespace;
pub mod netlink;
pub mod read;
pub mod remove;

pub use build::{BuildError, Plan, build};
pub use namespace::Namespace;
pub use netlink::{Netlink, NetlinkError};
