//! Why a packet was dropped. Every drop has a reason, a per-CPU counter by reason, and a row with its addresses.

/// Reason of a drop. Values are stable: they stand in maps, metrics and documents. 0 is no drop.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropReason {
    /// A header is cut short or contradicts itself.
    Malformed = 1,
    /// A pod sent from an address that is not its own.
    SourceGuard = 2,
    /// The endpoint is not committed yet, or is being removed.
    NotReady = 3,
    /// The link is ours but has no endpoint row.
    UnknownLink = 4,
    /// The destination lies in this node's block and belongs to no pod.
    NoEndpoint = 5,
    /// The destination lies in the cluster's range and belongs to no node.
    Unowned = 6,
    /// The destination's node is known by number only: its row is missing.
    NoNode = 7,
    /// The kernel's routes lead nowhere for this destination.
    NoRoute = 8,
    /// No egress rule of the sender allows it.
    PolicyEgress = 9,
    /// No ingress rule of the receiver allows it.
    PolicyIngress = 10,
    /// TTL or hop limit used up, and the sender is not told (answered packets count as `time_exceeded_sent`).
    HopLimit = 11,
    /// Larger than the path takes, and the sender can not be told (answered packets count as `too_big_sent`).
    TooBig = 12,
    /// Larger than the path takes, and the sender was told often enough in this second.
    TooBigLimited = 13,
    /// More than 8 extension headers or 256 bytes of them.
    ExtHdr = 14,
    /// A later fragment whose first one was not seen, where ports are needed.
    FragNoFirst = 15,
    /// A tunnel packet from a host that is no node, or with an inner source that is not that node's.
    TunnelSpoof = 16,
    /// A pod sent to the tunnel's port of anything but a pod.
    TunnelFromPod = 17,
    /// A tunnel packet whose header is not VXLAN as we write it, with another network identifier, or to another address of this node.
    TunnelHeader = 18,
    /// A source that cannot be there: on an uplink an address of this node, of its blocks or of a link; of a pod's packet, a destination that
    /// is its own loopback.
    Martian = 19,
    /// Multicast or broadcast beyond a pod's own link.
    Multicast = 20,
    /// Link-local destination that leads nowhere.
    LinkLocal = 21,
    /// Every masquerade port that was tried is taken.
    MasqPorts = 22,
    /// The uplink has no address of this family to masquerade with.
    MasqSource = 23,
    /// A packet that is not ours came to a pod's link from the node's side.
    Unmarked = 24,
    /// An ICMP error that quotes no flow we know.
    IcmpNoFlow = 25,
    /// The kernel refused to add or remove headers.
    AdjustRoom = 26,
    /// Reserved: the kernel redirects after a program has ended, and counts its refusals itself.
    Redirect = 27,
    /// The kernel refused to rewrite addresses, ports or checksums.
    Rewrite = 28,
    /// An EtherType other than IPv4, IPv6 and ARP from a pod.
    EtherType = 29,
    /// The tunnel device is missing and this packet needs it.
    TunnelDevice = 30,
    /// A part of the program set is missing (an interrupted upgrade); a new agent start repairs it.
    Program = 31,
    /// The node's stack sent something to a pod link that no route of ours covers.
    Door = 32,
    /// IPv6 from a pod without IPv6, or the same with IPv4.
    Family = 33,
    /// A pod's packet to an IPv4 link-local address, where the agent was told to deny them.
    LinkLocalDenied = 34,
}

impl DropReason {
    /// All reasons in the order of their values.
    pub const ALL: [Self; 34] = [
        Self::Malformed,
        Self::SourceGuard,
        Self::NotReady,
        Self::UnknownLink,
        Self::NoEndpoint,
        Self::Unowned,
        Self::NoNode,
        Self::NoRoute,
        Self::PolicyEgress,
        Self::PolicyIngress,
        Self::HopLimit,
        Self::TooBig,
        Self::TooBigLimited,
        Self::ExtHdr,
        Self::FragNoFirst,
        Self::TunnelSpoof,
        Self::TunnelFromPod,
        Self::TunnelHeader,
        Self::Martian,
        Self::Multicast,
        Self::LinkLocal,
        Self::MasqPorts,
        Self::MasqSource,
        Self::Unmarked,
        Self::IcmpNoFlow,
        Self::AdjustRoom,
        Self::Redirect,
        Self::Rewrite,
        Self::EtherType,
        Self::TunnelDevice,
        Self::Program,
        Self::Door,
        Self::Family,
        Self::LinkLocalDenied,
    ];

    /// The name that commands, metrics and documents use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "MALFORMED",
            Self::SourceGuard => "SOURCE_GUARD",
            Self::NotReady => "NOT_READY",
            Self::UnknownLink => "UNKNOWN_LINK",
            Self::NoEndpoint => "NO_ENDPOINT",
            Self::Unowned => "UNOWNED",
            Self::NoNode => "NO_NODE",
            Self::NoRoute => "NO_ROUTE",
            Self::PolicyEgress => "POLICY_EGRESS",
            Self::PolicyIngress => "POLICY_INGRESS",
            Self::HopLimit => "HOP_LIMIT",
            Self::TooBig => "TOO_BIG",
            Self::TooBigLimited => "TOO_BIG_LIMITED",
            Self::ExtHdr => "EXTHDR",
            Self::FragNoFirst => "FRAG_NO_FIRST",
            Self::TunnelSpoof => "TUNNEL_SPOOF",
            Self::TunnelFromPod => "TUNNEL_FROM_POD",
            Self::TunnelHeader => "TUNNEL_HEADER",
            Self::Martian => "MARTIAN",
            Self::Multicast => "MULTICAST",
            Self::LinkLocal => "LINK_LOCAL",
            Self::MasqPorts => "MASQ_PORTS",
            Self::MasqSource => "MASQ_SOURCE",
            Self::Unmarked => "UNMARKED",
            Self::IcmpNoFlow => "ICMP_NO_FLOW",
            Self::AdjustRoom => "ADJUST_ROOM",
            Self::Redirect => "REDIRECT",
            Self::Rewrite => "REWRITE",
            Self::EtherType => "ETHERTYPE",
            Self::TunnelDevice => "TUNNEL_DEVICE",
            Self::Program => "PROGRAM",
            Self::Door => "DOOR",
            Self::Family => "FAMILY",
            Self::LinkLocalDenied => "LINK_LOCAL_DENIED",
        }
    }

    /// The reason of a stored byte.
    #[must_use]
    pub const fn from_byte(b: u8) -> Option<Self> {
        let i = (b as usize).wrapping_sub(1);
        if i < Self::ALL.len() { Some(Self::ALL[i]) } else { None }
    }
}

/// Rows of the per-CPU `drops` array: one a reason, by value.
pub const DROP_ROWS: u32 = 64;

/// Count of one reason on one CPU.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DropCount {
    /// Packets.
    pub packets: u64,
    /// Bytes, from the IP header on.
    pub bytes: u64,
}

/// Key of `drop_rows`, an LRU hash: what was dropped lately, by reason and flow.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DropKey {
    /// Source.
    pub src: super::Addr,
    /// Destination.
    pub dst: super::Addr,
    /// Source port, network order; 0 where there is none.
    pub sport: [u8; 2],
    /// Destination port, network order; ICMP: type and code.
    pub dport: [u8; 2],
    /// Protocol.
    pub proto: u8,
    /// A [`DropReason`].
    pub reason: u8,
    /// Zero.
    pub zero: [u8; 2],
    /// Ifindex at which it was dropped.
    pub ifindex: u32,
    /// Cookie of the rule that denied, 0 where none of ours did.
    pub cookie: u32,
}

/// Value of `drop_rows`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DropRow {
    /// Packets.
    pub packets: u64,
    /// Tick of the first one.
    pub first: u32,
    /// Tick of the last one.
    pub last: u32,
}

const _: () = {
    assert!(size_of::<DropKey>() == 48);
    assert!(size_of::<DropRow>() == 16);
    // ALL is indexed by value.
    let mut i = 0;
    while i < DropReason::ALL.len() {
        assert!(DropReason::ALL[i] as usize == i + 1);
        i += 1;
    }
    assert!(DropReason::ALL.len() < DROP_ROWS as usize);
};
super::pod!(DropCount, DropKey, DropRow);
