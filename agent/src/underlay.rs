//! The node's devices and ways, as netlink tells them, and the few devices and routes that are ours.
//!
//! [`Service`] follows netlink events, keeps our devices and routes as they should be, and tells [`Underlay`] whenever it changed.
//!
//! Invariant: every look is a whole one ([`picture`]); an event only says that it is time to look again. So a lost event (ENOBUFS) costs
//! nothing but the look, and what is repaired here is repaired from any state. The one thing changed on devices that are not ours is a
//! missing IPv6 link-local address; `ip_forward` is touched only beside kube-proxy.

mod door;
mod events;
mod mend;
mod picture;
mod routes;
mod service;
mod sysctl;
mod tunnel;
mod uplinks;
mod wanted;
mod ways;

pub use service::{Service, start};
pub use wanted::Wanted;

pub use crate::model::Underlay;

/// The host end of the door, towards which routes lead.
pub const DOOR_HOST: &str = "osmia0";
/// The other end of the door, where our program sees what the node sends.
pub const DOOR_PODS: &str = "osmia1";
/// The collect-metadata VXLAN device.
pub const TUNNEL: &str = "osmia-vx";

/// Whether a device name is one of ours: the three above, and the host ends of pod links.
fn is_ours(name: &str) -> bool {
    [DOOR_HOST, DOOR_PODS, TUNNEL].contains(&name) || is_pod_link(name)
}

/// Whether a device name is one that the plugin gives the host end of a pod's link.
fn is_pod_link(name: &str) -> bool {
    name.len() == 15 && name.starts_with(osmia_cni::protocol::link_name::PREFIX)
}
