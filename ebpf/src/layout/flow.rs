//! Flow tables: the key of a direction and what is done with its packets.
//!
//! Invariant: a flow is two entries, one a direction, in the same table (probation or established). The opposite of an entry is found by
//! applying its rewrites to its key and swapping ends. An entry never holds what a node, next hop or header is, only its index, but for
//! outside destinations, whose next hop is kept here. What leaves the node's stack by an uplink is in zone 1 of the key, everything else in
//! zone 0, since the same packet may have been a flow of its pod's link before it entered the stack.

/// A direction of an IPv4 flow. Ports are network order. Of an ICMP query and its answer, who asks has the identifier for its port, and who
/// answers the number after it; other protocols carry 0.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FlowKey4 {
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
    /// Source port.
    pub sport: [u8; 2],
    /// Destination port.
    pub dport: [u8; 2],
    /// IP protocol number.
    pub proto: u8,
    /// `ZONE_*`.
    pub zone: u8,
    /// Zero.
    pub zero: [u8; 2],
}

/// A direction of an IPv6 flow; fields as in [`FlowKey4`].
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FlowKey6 {
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
    /// Source port.
    pub sport: [u8; 2],
    /// Destination port.
    pub dport: [u8; 2],
    /// IP protocol number: the first upper-layer header after the extension headers.
    pub proto: u8,
    /// `ZONE_*`.
    pub zone: u8,
    /// Zero.
    pub zero: [u8; 2],
}

/// `zone`: packets of the node's stack at an uplink's egress ([`HOOK_UPLINK_OUT`]).
pub const ZONE_OUT: u8 = 1 << 0;
/// `zone`: later fragments whose first was not seen, known by their addresses and protocol alone. Apart, so that what was allowed to them
/// because some port is does not become leave for port 0.
pub const ZONE_LOOSE: u8 = 1 << 1;

/// What is done with a packet of a flow. Values are stable within a layout.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowAction {
    /// `redirect_peer` to the host-side ifindex in `target`.
    Peer = 1,
    /// To node number `target` as it is: `redirect_neigh` with the node's next hop.
    Native = 2,
    /// To node number `target` inside VXLAN.
    Tunnel = 3,
    /// Out of uplink ifindex `target` to the entry's next hop.
    Uplink = 4,
    /// To the node's own stack: `redirect(osmia0, BPF_F_INGRESS)`.
    Stack = 5,
    /// Go on where it is (after rewrites): packets of the node's stack at an uplink's egress.
    Pass = 6,
}

impl FlowAction {
    /// The action of a stored byte; `None` for a byte no program writes.
    #[inline(always)]
    #[must_use]
    pub const fn from_byte(b: u8) -> Option<Self> {
        match b {
            1 => Some(Self::Peer),
            2 => Some(Self::Native),
            3 => Some(Self::Tunnel),
            4 => Some(Self::Uplink),
            5 => Some(Self::Stack),
            6 => Some(Self::Pass),
            _ => None,
        }
    }
}

/// `hook` of an entry whose packets may arrive on any uplink as they are.
pub const HOOK_UPLINK: u32 = 0xffff_fff1;
/// `hook` of an entry whose packets arrive inside our tunnel, from node number `from_node`.
pub const HOOK_TUNNEL: u32 = 0xffff_fff2;
/// `hook` of an entry whose packets come out of the node's stack at `osmia1`.
pub const HOOK_DOOR: u32 = 0xffff_fff3;
/// `hook` of an entry whose packets leave the node's stack by an uplink's egress.
pub const HOOK_UPLINK_OUT: u32 = 0xffff_fff4;

/// `flags`: this entry is of the opener's direction.
pub const F_OPENER: u8 = 1 << 0;
/// `flags`: replace source address and port by `new_src`, `new_sport`.
pub const F_REWRITE_SRC: u8 = 1 << 1;
/// `flags`: replace destination address and port by `new_dst`, `new_dport`.
pub const F_REWRITE_DST: u8 = 1 << 2;
/// `flags`: the opposite direction has been seen.
pub const F_REPLIED: u8 = 1 << 3;
/// `flags`: opened by a socket of this node (the door rule): no policy applies to it.
pub const F_NODE_SOCKET: u8 = 1 << 4;
/// `flags`: the hop counter is not touched (between a pod and its own node).
pub const F_NO_HOP: u8 = 1 << 5;

/// `flags`: promotion was refused (table or endpoint full); it is tried again at most once a tick.
pub const F_HELD: u8 = 1 << 6;
/// `flags`: the opposite entry's key is in [`ZONE_OUT`]; `target` names the uplink of its packets.
pub const F_OPPOSITE_OUT: u8 = 1 << 7;

/// `src_epoch` of a flow that policy denies since: no row of the epochs is ever this, so each of its packets is judged again.
pub const EPOCH_DENIED: u32 = u32::MAX;

/// `mtu`: packets of this direction are not compared with a limit.
pub const NO_MTU: u16 = u16::MAX;

/// `tcp`: SYN of the opener seen.
pub const T_SYN: u8 = 1 << 0;
/// `tcp`: SYN-ACK seen.
pub const T_SYN_ACK: u8 = 1 << 1;
/// `tcp`: the opener's ACK after the SYN-ACK seen: the connection is established.
pub const T_ESTABLISHED: u8 = 1 << 2;
/// `tcp`: FIN of this direction seen.
pub const T_FIN: u8 = 1 << 3;
/// `tcp`: FIN of the opposite direction seen.
pub const T_FIN_PEER: u8 = 1 << 4;
/// `tcp`: RST seen in either direction.
pub const T_RST: u8 = 1 << 5;

/// What is done with the packets of one direction of a flow. The first 64 bytes are all that an established packet reads.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowEntry {
    /// Host-side ifindex of the pod whose packets these are, or one of the `HOOK_*`. A packet that arrives elsewhere is not of this flow.
    pub hook: u32,
    /// Meaning by `action`: ifindex or node number.
    pub target: u32,
    /// A [`FlowAction`].
    pub action: u8,
    /// `F_*`.
    pub flags: u8,
    /// `T_*`; 0 for other protocols.
    pub tcp: u8,
    /// Zero.
    pub zero0: u8,
    /// Largest IP packet in bytes that passes on this way; larger ones are answered with packet too big. [`NO_MTU`]: no limit.
    pub mtu: u16,
    /// Number of the node whose tunnel this direction arrives from (`HOOK_TUNNEL`), else 0.
    pub from_node: u16,
    /// Slot of the source's endpoint when it is on this node, else 0 (slot 0 holds the route generation).
    pub src_slot: u32,
    /// Epoch of `src_slot` when this was decided (of slot 0: the route generation), or [`EPOCH_DENIED`].
    pub src_epoch: u32,
    /// Slot of the destination's endpoint when it is on this node, else 0.
    pub dst_slot: u32,
    /// Epoch of `dst_slot` when this was decided.
    pub dst_epoch: u32,
    /// Route generation (slot 0) when this was decided.
    pub route_gen: u32,
    /// Tick of the last packet of this direction; see [`super::meta`]. Written only when it changes.
    pub last_seen: u32,
    /// Packets of this direction (segments of a GSO packet count as one).
    pub packets: u64,
    /// Bytes of this direction, from the IP header on.
    pub bytes: u64,
    /// Tick at which the flow was opened.
    pub created: u32,
    /// Cookie of the egress rule that allowed the flow, 0 for none; the catalogue names it.
    pub egress_cookie: u32,

    /// Cookie of the ingress rule that allowed the flow, 0 for none.
    pub ingress_cookie: u32,
    /// With `F_REWRITE_SRC`: the new source port, network order.
    pub new_sport: [u8; 2],
    /// With `F_REWRITE_DST`: the new destination port, network order.
    pub new_dport: [u8; 2],
    /// With `F_REWRITE_SRC`: the new source address.
    pub new_src: super::Addr,
    /// With `F_REWRITE_DST`: the new destination address.
    pub new_dst: super::Addr,
    /// With [`FlowAction::Uplink`]: the next hop (either family; [`super::Addr::NONE`]: the packet's own destination).
    pub next_hop: super::Addr,
    /// Tick of the first packet of the opposite direction, with [`F_REPLIED`].
    pub replied: u32,
    /// Zero; room for services.
    pub reserved: [u8; 4],
    /// Zero: what a next layout could have more.
    #[cfg(feature = "next-layout")]
    pub next: u64,
}

macro_rules! opposite {
    ($key:ty, $address:expr) => {
        impl $key {
            /// The key of the opposite direction of a flow of which this is a direction with this entry.
            #[inline(always)]
            #[must_use]
            pub fn opposite(&self, entry: &FlowEntry) -> Self {
                let (src, sport) = match entry.flags & F_REWRITE_SRC {
                    0 => (self.src, self.sport),
                    _ => ($address(&entry.new_src), entry.new_sport),
                };
                let (dst, dport) = match entry.flags & F_REWRITE_DST {
                    0 => (self.dst, self.dport),
                    _ => ($address(&entry.new_dst), entry.new_dport),
                };
                let out = if entry.flags & F_OPPOSITE_OUT != 0 { ZONE_OUT } else { 0 };
                let zone = (self.zone & ZONE_LOOSE) | out;
                Self { src: dst, dst: src, sport: dport, dport: sport, proto: self.proto, zone, zero: [0; 2] }
            }
        }
    };
}
opposite!(FlowKey4, super::Addr::to_v4);
opposite!(FlowKey6, |addr: &super::Addr| addr.0);

const _: () = {
    assert!(size_of::<FlowKey4>() == 16);
    assert!(size_of::<FlowKey6>() == 40);
    assert!(size_of::<FlowEntry>() == if cfg!(feature = "next-layout") { 136 } else { 128 });
    assert!(core::mem::offset_of!(FlowEntry, ingress_cookie) == 64);
};
super::pod!(FlowKey4, FlowKey6, FlowEntry);
