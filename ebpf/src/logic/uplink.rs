//! The hooks of an uplink: other nodes as they are or inside our tunnel, the world outside, and what the node's stack sends.
//!
//! Invariant: what is not of pods passes unchanged and cheaply: the node's own packets cost one lookup of their source on arrival (is it a
//! pod's?) and a comparison when they leave.

mod arriving;
mod leaving;

pub use arriving::{from, from_tunnel_device, inner, slow, slow_tunnel};
pub use leaving::{slow_out, to};

#[cfg(test)]
mod tests;
