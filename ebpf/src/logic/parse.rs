//! From bytes to a flow key: IPv4 with options, IPv6 with extension headers, TCP, UDP, SCTP, ICMP, and everything else by its addresses.
//!
//! Invariant: what is returned was checked against the packet's length, each header whole; nothing here depends on a checksum. TCP, UDP
//! and SCTP are never passed without their ports, but for later fragments, which have none.

pub mod query;
mod transport;
mod v4;
mod v6;

pub use transport::{ACK, FIN, RST, SYN};

use super::{FlowKey, Packet};
use crate::layout::{DropReason, FlowKey4, FlowKey6};

/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// SCTP.
pub const SCTP: u8 = 132;
/// ICMP.
pub const ICMP: u8 = 1;
/// ICMPv6.
pub const ICMPV6: u8 = 58;

/// Whether packets of a protocol have ports.
#[inline(always)]
#[must_use]
pub const fn has_ports(proto: u8) -> bool {
    matches!(proto, TCP | UDP | SCTP)
}

/// Which part of a datagram a packet is.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Part {
    /// All of it (an IPv6 fragment header with offset 0 and no more to come counts as this: RFC 6946).
    #[default]
    Whole,
    /// The first fragment: it has the ports.
    First,
    /// A later fragment: its key has no ports.
    Later,
}

/// A packet's headers. Without padding, since 5.10 refuses to copy bytes that nobody wrote.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parsed<K> {
    /// The flow direction it belongs to.
    pub key: K,
    /// Offset of the IP header.
    pub l3: usize,
    /// Offset of the upper-layer header (of a later fragment: of its payload).
    pub l4: usize,
    /// Bytes from the IP header on.
    pub length: u32,
    /// Bytes of IP and transport header, what each segment of a GSO packet has in front of its payload.
    pub headers: u32,
    /// Identification of the datagram; IPv4's in the first two bytes.
    pub id: [u8; 4],
    /// TCP flags byte, 0 for others.
    pub tcp: u8,
    /// ICMP type, 0 for others.
    pub icmp_type: u8,
    /// TTL or hop limit.
    pub hops: u8,
    /// Which part of a datagram this is.
    pub part: Part,
}

impl<K: FlowKey> Parsed<K> {
    /// Whether this is an ICMP error: it belongs to the flow it quotes. RFC 792 types 3, 4, 5, 11, 12; RFC 4443 types below 128.
    #[inline(always)]
    #[must_use]
    pub fn is_icmp_error(&self) -> bool {
        if !matches!(self.part, Part::Whole) {
            return false;
        }
        match self.key.proto() {
            ICMP if !K::V6 => matches!(self.icmp_type, 3 | 4 | 5 | 11 | 12),
            ICMPV6 if K::V6 => self.icmp_type < 128,
            _ => false,
        }
    }

    /// Largest IP packet that this one is on the wire: of a GSO packet one segment.
    #[inline(always)]
    pub fn wire_length<P: Packet>(&self, packet: &P) -> u32 {
        match packet.gso_size() {
            0 => self.length,
            payload => payload + self.headers,
        }
    }
}

/// A family that can be parsed.
pub trait Parse: FlowKey {
    /// Parses the headers from offset `l3` on.
    fn parse<P: Packet>(packet: &mut P, l3: usize) -> Result<Parsed<Self>, DropReason>;
}

impl Parse for FlowKey4 {
    #[inline(always)]
    fn parse<P: Packet>(packet: &mut P, l3: usize) -> Result<Parsed<Self>, DropReason> {
        v4::parse(packet, l3)
    }
}

impl Parse for FlowKey6 {
    #[inline(always)]
    fn parse<P: Packet>(packet: &mut P, l3: usize) -> Result<Parsed<Self>, DropReason> {
        v6::parse(packet, l3)
    }
}

#[cfg(test)]
mod tests;
