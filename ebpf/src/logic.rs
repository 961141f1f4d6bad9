//! What is done with a packet: parse → flow → (first packet: policy, route, rewrites) → forward. Generic over the packet and the tables.
//!
//! Invariant: no helper, no clock, no panic. *Now* is an argument. Every way out is a [`Verdict`]; a drop names its reason.

pub mod answer;
pub mod arrival;
pub mod checksum;
pub mod door;
pub mod encap;
pub mod fast;
pub mod flow;
pub mod forward;
pub mod fragment;
pub mod icmp_error;
pub mod key;
pub mod masquerade;
pub mod nat;
pub mod neighbour;
pub mod packet;
pub mod parse;
pub mod pod;
pub mod policy;
pub mod route;
pub mod slow;
pub mod stage;
pub mod tables;
#[cfg(test)]
mod testing;
pub mod time_exceeded;
pub mod too_big;
pub mod uplink;
pub mod verdict;

pub use key::FlowKey;
pub use packet::Packet;
pub use parse::Parsed;
pub use slow::Scratch;
pub use stage::Stage;
pub use tables::{Entry, FlowRef, PolicyTables, Tables};
pub use verdict::Verdict;

/// Where the program sees the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// Ingress of a pod's host-side link: everything a pod sends.
    FromPod,
    /// Egress of a pod's host-side link: nothing of ours comes here but for pods on the slow path.
    ToPod,
    /// Ingress of an uplink.
    FromUplink,
    /// Ingress of the collect-metadata device.
    FromTunnelDevice,
    /// Egress of an uplink: what the node's stack sends.
    ToUplink,
    /// Egress of `osmia0`.
    ToDoor,
    /// Ingress of `osmia1`.
    FromDoor,
}

/// The door rule: who sent a packet that comes out of the node's stack.
///
/// A socket of the node (socket cookie ≠ 0 at the egress of `osmia0`) always reaches the node's own pods. What was only forwarded is
/// judged by its address; of the node's own packets only a closed port's v6 RST and the SYN-ACK of a SYN cookie look like that, and those
/// are replies that pass by their flow's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A socket of this node.
    NodeSocket,
    /// Forwarded by the stack.
    Forwarded,
}

/// What policy says of a flow's first packet, in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Allowed; the cookie names the rule, 0 where the endpoint is not isolated.
    Allow(u32),
    /// Denied; the cookie names what isolates.
    Deny(u32),
}
