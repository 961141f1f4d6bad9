//! Endpoints: the pods of this node, by slot.
//!
//! Invariant: slot 0 is never an endpoint. A slot is reused only after its epoch was raised, and an epoch never repeats a value, so an
//! entry that quotes (slot, epoch) can not be taken for another pod's.

/// `flags`: the slot is in use.
pub const E_PRESENT: u32 = 1 << 0;
/// `flags`: no fast path: every packet goes through the node's stack (chained plugins that need it), which has a route and a neighbour for the
/// pod on its link, and forwards.
pub const E_SLOW_PATH: u32 = 1 << 1;
/// `flags`: committed; before that the pod's packets are dropped with `NOT_READY`.
pub const E_READY: u32 = 1 << 2;

/// A pod of this node. Found by host-side ifindex (`endpoint_if`) or address (`endpoint_addr`), both giving the slot.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Endpoint {
    /// Host-side ifindex.
    pub ifindex: u32,
    /// `E_*`.
    pub flags: u32,
    /// IPv4 address, zero for none.
    pub v4: [u8; 4],
    /// Rule set of the egress direction, 0 for not isolated.
    pub egress_rules: u32,
    /// IPv6 address, zero for none.
    pub v6: [u8; 16],
    /// Rule set of the ingress direction, 0 for not isolated.
    pub ingress_rules: u32,
    /// MAC of the pod's end when it was attached; the dataplane does not depend on it.
    pub mac: [u8; 6],
    /// Zero.
    pub zero: [u8; 2],
    /// Zero: what a next layout could have more.
    #[cfg(feature = "next-layout")]
    pub next: u64,
}

const _: () = assert!(size_of::<Endpoint>() == if cfg!(feature = "next-layout") { 56 } else { 48 });
super::pod!(Endpoint);
