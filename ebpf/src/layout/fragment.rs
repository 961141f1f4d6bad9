//! Fragments: the first one tells the ports of those that follow.

/// Which datagram (RFC 791: source, destination, protocol, identification; RFC 8200: the same without protocol).
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct FragmentKey {
    /// Source.
    pub src: super::Addr,
    /// Destination.
    pub dst: super::Addr,
    /// Identification, network order; IPv4's 16 bits in the first two bytes.
    pub id: [u8; 4],
    /// Protocol (IPv4), 0 for IPv6.
    pub proto: u8,
    /// Zero.
    pub zero: [u8; 3],
}

/// Ports of the datagram, network order, and when its first fragment came.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FragmentRow {
    /// Source port.
    pub sport: [u8; 2],
    /// Destination port.
    pub dport: [u8; 2],
    /// Upper-layer protocol.
    pub proto: u8,
    /// Zero.
    pub zero: [u8; 3],
    /// Tick of the first fragment.
    pub seen: u32,
}

const _: () = {
    assert!(size_of::<FragmentKey>() == 40);
    assert!(size_of::<FragmentRow>() == 12);
};
super::pod!(FragmentKey, FragmentRow);
