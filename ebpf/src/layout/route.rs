//! Whose is an address: one longest-prefix table, asked on a flow's first packet only.

/// A prefix. `bits` counts in the mapped form: an IPv4 prefix of length n has 96 + n.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RouteKey {
    /// Prefix length in bits, native order (kernel's `bpf_lpm_trie_key`).
    pub bits: u32,
    /// Address, network order.
    pub addr: [u8; 16],
}

/// What lies behind a prefix. Values are stable within a layout.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteKind {
    /// A block of this node: an endpoint, or nobody.
    LocalBlock = 1,
    /// An address of this node.
    LocalNode = 2,
    /// A block of node number `node`.
    RemoteBlock = 3,
    /// An address of node number `node`.
    RemoteNode = 4,
    /// To the node's stack, unjudged: service ranges beside kube-proxy.
    Stack = 5,
    /// In the cluster's range but nobody's: dropped, never sent outside.
    Unowned = 6,
}

impl RouteKind {
    /// The kind of a stored byte; `None` for a byte nobody writes.
    #[inline(always)]
    #[must_use]
    pub const fn from_byte(b: u8) -> Option<Self> {
        match b {
            1 => Some(Self::LocalBlock),
            2 => Some(Self::LocalNode),
            3 => Some(Self::RemoteBlock),
            4 => Some(Self::RemoteNode),
            5 => Some(Self::Stack),
            6 => Some(Self::Unowned),
            _ => None,
        }
    }
}

/// Value of the route table.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Route {
    /// A [`RouteKind`].
    pub kind: u8,
    /// Zero.
    pub zero: u8,
    /// Node number for the remote kinds, else 0.
    pub node: u16,
}

const _: () = {
    assert!(size_of::<RouteKey>() == 20);
    assert!(size_of::<Route>() == 4);
};
super::pod!(RouteKey, Route);
