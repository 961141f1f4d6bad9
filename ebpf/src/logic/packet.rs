//! Access to one packet. The kernel half implements it over `__sk_buff`, the tests over a `Vec<u8>`.
//!
//! Invariant: offsets are bytes from the packet's first byte (the Ethernet header). Whatever changes the packet's size or layout
//! invalidates nothing here, since every access checks again.

use super::{FlowKey, Parsed};
use crate::layout::Addr;

/// `ETH_P_IP`.
pub const ETH_IPV4: u16 = 0x0800;
/// `ETH_P_IPV6`.
pub const ETH_IPV6: u16 = 0x86dd;
/// `ETH_P_ARP`.
pub const ETH_ARP: u16 = 0x0806;
/// Bytes of an Ethernet header: where the IP header of every packet starts.
pub const ETH_LEN: usize = 14;

/// Flags of [`Packet::l4_csum_replace`]: the number of bytes that changed (0: `to` is a checksum difference), and `BPF_F_*`.
pub mod csum {
    /// The changed bytes are of the pseudo header: a partial checksum holds them already.
    pub const PSEUDO_HDR: u64 = 0x10;
    /// UDP: a checksum of 0 means none and stays 0; a computed 0 becomes 0xffff.
    pub const MARK_MANGLED_0: u64 = 0x20;
    /// IPv6 pseudo header; only kernels with `HAVE_CSUM_IPV6` know it, the implementation leaves it out elsewhere.
    pub const IPV6: u64 = 0x80;
}

/// Flags of [`Packet::adjust_room`], `BPF_F_ADJ_ROOM_*` of linux/bpf.h.
pub mod room {
    /// Leave gso_size as it is.
    pub const FIXED_GSO: u64 = 1;
    /// The added header is IPv4.
    pub const ENCAP_L3_IPV4: u64 = 2;
    /// The added header is IPv6.
    pub const ENCAP_L3_IPV6: u64 = 4;
    /// With UDP inside.
    pub const ENCAP_L4_UDP: u64 = 16;
    /// Keep the state of verified checksums.
    pub const NO_CSUM_RESET: u64 = 32;
    /// There is an inner Ethernet header of the length given by [`encap_l2`].
    pub const ENCAP_L2_ETH: u64 = 64;
    /// What is left is IPv4 (where the families differ; 6.2).
    pub const DECAP_L3_IPV4: u64 = 128;
    /// What is left is IPv6.
    pub const DECAP_L3_IPV6: u64 = 256;

    /// Length of the inner Ethernet header among the added bytes.
    #[inline(always)]
    #[must_use]
    pub const fn encap_l2(len: u64) -> u64 {
        (len & 0xff) << 56
    }
}

/// Where [`Packet::adjust_room`] adds or takes bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Between network header and what follows.
    Net = 0,
    /// Between Ethernet header and network header.
    Mac = 1,
}

/// What the kernel's routes say of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fib {
    /// Out of this device; the next hop in either family ([`Addr::NONE`]: the destination itself is on the link), the path's MTU (0: unknown).
    Out {
        /// Device.
        ifindex: u32,
        /// Next hop.
        next_hop: Addr,
    },
    /// An address of this host, or a route that only the stack can follow (not forwarded, tunnels): `BPF_FIB_LKUP_RET_NOT_FWDED`.
    NotForwarded,
    /// No route, blackhole, prohibited.
    None,
}

/// Key of the collect-metadata tunnel device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelKey {
    /// Network identifier.
    pub vni: u32,
    /// The other end: destination when sending, source when receiving.
    pub remote: Addr,
}

/// Bytes of a packet that were checked against its end once.
pub trait Window {
    /// The `M` bytes from the window's byte `AT` on.
    fn get<const AT: usize, const M: usize>(&self) -> [u8; M];
}

/// One packet.
///
/// Errors of the kernel's helpers are `None`, or a negative errno where somebody decides by it.
pub trait Packet {
    /// Length in bytes, all of it (a GSO packet: before it is segmented).
    fn length(&self) -> u32;
    /// Bytes at an offset, or `None` where the packet's linear part is shorter ([`Packet::pull`] makes more readable).
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;
    /// `N` bytes at an offset to read several fields of, or `None` where the packet's linear part is shorter. Valid until the packet changes.
    fn window<const N: usize>(&self, offset: usize) -> Option<impl Window>;
    /// Writes a flow key in words of 8 bytes, as they lie in memory, and leaves it there. The compiler would take a key apart into its bytes,
    /// since some code further on reads single ones, and put it together again byte by byte: the lookup, which reads words, would wait for
    /// all of them to reach the cache.
    fn fill<K: FlowKey, W: Copy>(parsed: &mut Parsed<K>, words: W);
    /// Overwrites bytes, also beyond the linear part; checksums in the packet untouched.
    fn write<const N: usize>(&mut self, offset: usize, bytes: &[u8; N]) -> Option<()>;
    /// Overwrites bytes whose change the packet's own checksums make up for, once [`Packet::l3_csum_replace`] and
    /// [`Packet::l4_csum_replace`] are done: the device's sum over the whole packet (CHECKSUM_COMPLETE) stays as those two leave it.
    fn replace<const N: usize>(&mut self, offset: usize, bytes: &[u8; N]) -> Option<()>;
    /// As [`Packet::replace`], an IPv6 address that a checksum corrected with [`csum::PSEUDO_HDR`] covers. Kernels that do not know
    /// [`csum::IPV6`] have taken the difference out of the device's sum, as if an IPv4 header made up for it: there it is put back.
    fn replace_address(&mut self, offset: usize, address: &[u8; 16]) -> Option<()>;
    /// Makes the first `len` bytes readable; `None` where the packet is shorter.
    fn pull(&mut self, len: u32) -> Option<()>;
    /// Bytes of payload in a segment of a GSO packet, 0 for others.
    fn gso_size(&self) -> u32;
    /// The EtherType as the device told it; not told anew where a program changes the packet.
    fn protocol(&self) -> u16;
    /// Whether the packet carries a VLAN tag beside its bytes.
    fn vlan(&self) -> bool;
    /// The skb mark.
    fn mark(&self) -> u32;
    /// Sets the skb mark.
    fn set_mark(&mut self, mark: u32);
    /// Ifindex of the device whose hook this is.
    fn ifindex(&self) -> u32;
    /// Cookie of the sending socket, 0 for none.
    fn socket_cookie(&mut self) -> u64;
    /// Flow hash, for the tunnel's source port.
    fn hash(&mut self) -> u32;
    /// A random number.
    fn random(&mut self) -> u32;

    /// IPv4 header checksum at `offset`: `size` (2 or 4) bytes changed from `from` to `to`, both as they lie in memory; size 0: `to` is a
    /// checksum difference.
    fn l3_csum_replace(&mut self, offset: usize, from: u32, to: u32, size: u64) -> Option<()>;
    /// Transport checksum at `offset`; `flags` is the size (0, 2, 4) and [`csum`].
    fn l4_csum_replace(&mut self, offset: usize, from: u32, to: u32, flags: u64) -> Option<()>;
    /// Adds (`delta` > 0) or takes bytes; `flags` of [`room`]. The error is a negative errno: -114 (EALREADY) for an encapsulated packet.
    fn adjust_room(&mut self, delta: i32, room: Room, flags: u64) -> Result<(), i64>;
    /// Cuts or extends the packet at its end to `len` bytes; drops GSO state and finishes partial checksums.
    fn change_tail(&mut self, len: u32) -> Option<()>;
    /// Changes IPv4 to IPv6 or back (`ETH_IPV4`, `ETH_IPV6`), the L3 header grows or shrinks by 20 bytes.
    fn change_proto(&mut self, ether_type: u16) -> Option<()>;
    /// `BPF_CSUM_LEVEL_DEC`: one verified checksum less.
    fn csum_level_dec(&mut self) -> Option<()>;

    /// Gives the packet a tunnel key for the collect-metadata device.
    fn set_tunnel_key(&mut self, key: &TunnelKey) -> Option<()>;
    /// Tunnel key of a packet that came out of the collect-metadata device.
    fn tunnel_key(&mut self) -> Option<TunnelKey>;
    /// Asks the kernel's routes for a packet from `src` to `dst` that came in by device `ifindex`, which must have forwarding on; both
    /// addresses of one family.
    fn fib(&mut self, ifindex: u32, src: &Addr, dst: &Addr) -> Fib;
    /// Whether a socket of the node's namespace uses `local` towards `remote` (TCP 6 and UDP 17 only; false for others). Ports in network
    /// order. A listener counts.
    fn socket_uses(
        &mut self,
        proto: u8,
        local: &Addr,
        local_port: [u8; 2],
        remote: &Addr,
        remote_port: [u8; 2],
    ) -> bool;
}
