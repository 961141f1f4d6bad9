//! Other nodes, by number: how to reach them and how to know their packets.
//!
//! Invariant: number 0 is this node and has no row. A number is reused only after the route generation was raised.

/// `flags`: the row is in use.
pub const N_PRESENT: u32 = 1 << 0;
/// `flags`: packets go inside VXLAN, else as they are.
pub const N_TUNNEL: u32 = 1 << 1;
/// `flags`: the outer header is IPv6 (70 bytes), else IPv4 (50 bytes).
pub const N_OUTER_V6: u32 = 1 << 2;

/// Bytes of VXLAN over IPv4: IP 20, UDP 8, VXLAN 8, inner Ethernet 14 (RFC 7348).
pub const OUTER_V4_LEN: usize = 50;
/// Bytes of VXLAN over IPv6.
pub const OUTER_V6_LEN: usize = 70;

/// Another node.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// `N_*`.
    pub flags: u32,
    /// Ifindex of the uplink that leads there.
    pub uplink: u32,
    /// Largest inner IP packet in bytes on the way there.
    pub mtu: u16,
    /// Zero.
    pub zero: [u8; 6],
    /// Address of that node that its tunnel packets come from and go to; also who we believe inside the tunnel.
    pub tunnel: super::Addr,
    /// Next hop for IPv4 packets sent as they are, either family.
    pub next_hop4: super::Addr,
    /// Next hop for IPv6 packets sent as they are.
    pub next_hop6: super::Addr,
    /// Next hop for tunnel packets.
    pub next_hop_tunnel: super::Addr,
    /// The outer header as it is written in front of the inner IP packet: IP, UDP, VXLAN, inner Ethernet; the program fills lengths,
    /// checksum, source port and the inner EtherType. Only the first 50 or 70 bytes are used.
    pub outer: [u8; 72],
}

const _: () = assert!(size_of::<Node>() == 152);
super::pod!(Node);
