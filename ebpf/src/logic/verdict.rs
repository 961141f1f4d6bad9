//! How a packet leaves a program.

use super::Stage;
use crate::layout::{Addr, DropReason};

/// The kinds of verdicts.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// [`Verdict::NEXT`].
    Next,
    /// [`Verdict::drop`].
    Drop,
    /// [`Verdict::CONSUMED`].
    Consumed,
    /// [`Verdict::peer`].
    Peer,
    /// [`Verdict::neighbour`].
    Neighbour,
    /// [`Verdict::STACK`].
    Stack,
    /// [`Verdict::reply`].
    Reply,
    /// [`Verdict::tunnel_device`].
    TunnelDevice,
    /// [`Verdict::jump`].
    Jump,
}

/// How a packet leaves the program.
///
/// No enum with payloads: what a variant does not have would be a register that nobody wrote, LLVM saves it on the stack with the others,
/// and 5.10 refuses to load it back. The address in two words: of 16 bytes each is a register by itself, and all 16 are saved on the
/// stack at each place where verdicts meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    kind: Kind,
    value: u32,
    next_hop: [u64; 2],
}

impl Verdict {
    /// Not ours: the next program, then the stack.
    pub const NEXT: Self = Self::of(Kind::Next, 0);
    /// Swallowed: counted as a [`crate::layout::Stat`], no drop.
    pub const CONSUMED: Self = Self::of(Kind::Consumed, 0);
    /// Into the node's stack by `osmia0`'s ingress.
    pub const STACK: Self = Self::of(Kind::Stack, 0);

    #[inline(always)]
    const fn of(kind: Kind, value: u32) -> Self {
        Self { kind, value, next_hop: [0; 2] }
    }

    /// Dropped.
    #[inline(always)]
    #[must_use]
    pub const fn drop(reason: DropReason) -> Self {
        Self::of(Kind::Drop, reason as u32)
    }

    /// Dropped for a reason that was kept as a number.
    #[inline(always)]
    #[must_use]
    pub(super) const fn drop_kept(reason: u32) -> Self {
        Self::of(Kind::Drop, reason)
    }

    /// Into the pod behind this host-side ifindex.
    #[inline(always)]
    #[must_use]
    pub const fn peer(ifindex: u32) -> Self {
        Self::of(Kind::Peer, ifindex)
    }

    /// Out of an uplink through the neighbour table; `next_hop` in either family.
    #[inline(always)]
    #[must_use]
    pub const fn neighbour(ifindex: u32, next_hop: Addr) -> Self {
        Self { kind: Kind::Neighbour, value: ifindex, next_hop: next_hop.words() }
    }

    /// Back where it came from (answers to ARP, ND, packet too big): by `redirect_peer` to the pod's own link.
    #[inline(always)]
    #[must_use]
    pub const fn reply(ifindex: u32) -> Self {
        Self::of(Kind::Reply, ifindex)
    }

    /// To the collect-metadata device, tunnel key set.
    #[inline(always)]
    #[must_use]
    pub const fn tunnel_device(ifindex: u32) -> Self {
        Self::of(Kind::TunnelDevice, ifindex)
    }

    /// Another program of the jump table goes on.
    #[inline(always)]
    #[must_use]
    pub const fn jump(stage: Stage) -> Self {
        Self::of(Kind::Jump, stage as u32)
    }

    /// Its kind.
    #[inline(always)]
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The ifindex, the reason or the row of the jump table, by kind.
    #[inline(always)]
    #[must_use]
    pub const fn value(&self) -> u32 {
        self.value
    }

    /// The next hop of [`Self::neighbour`].
    #[inline(always)]
    #[must_use]
    pub const fn next_hop(&self) -> Addr {
        Addr::of_words(self.next_hop)
    }

    /// Whether it is this drop.
    #[inline(always)]
    #[must_use]
    pub const fn is_drop(&self, reason: DropReason) -> bool {
        matches!(self.kind, Kind::Drop) && self.value == reason as u32
    }
}
