//! Where a flow's packets go: asked once, by its first packet.

use super::arrival::Kind;
use super::packet::Fib;
use super::{Packet, Tables};
use crate::layout::flow::{FlowAction, HOOK_DOOR, HOOK_TUNNEL, HOOK_UPLINK, NO_MTU};
use crate::layout::node::N_TUNNEL;
use crate::layout::route::RouteKind;
use crate::layout::{Addr, Config, DropReason, FlowEntry, Node, Stat};

/// What is done with one direction, and where its answers come in. Without padding, since 5.10 refuses to copy bytes that nobody wrote.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Way {
    /// As [`FlowEntry::target`].
    pub target: u32,
    /// As [`FlowEntry::hook`], of the packets that come back.
    pub back: u32,
    /// As [`FlowEntry::mtu`].
    pub mtu: u16,
    /// As [`FlowEntry::from_node`], of the packets that come back.
    pub back_node: u16,
    /// A [`FlowAction`].
    pub action: u8,
    /// Zero.
    pub zero: [u8; 3],
    /// As [`FlowEntry::next_hop`].
    pub next_hop: Addr,
}

impl Way {
    #[inline(always)]
    const fn new(action: FlowAction, target: u32, mtu: u16, back: u32) -> Self {
        Self { target, back, mtu, back_node: 0, action: action as u8, zero: [0; 3], next_hop: Addr::NONE }
    }

    /// Into the pod behind a host-side link.
    #[inline(always)]
    #[must_use]
    pub const fn peer(ifindex: u32) -> Self {
        Self::new(FlowAction::Peer, ifindex, NO_MTU, ifindex)
    }

    /// Into the node's stack.
    #[inline(always)]
    #[must_use]
    pub const fn stack() -> Self {
        Self::new(FlowAction::Stack, 0, NO_MTU, HOOK_DOOR)
    }

    /// On, out of the uplink where the packet is; its answers come in by an uplink.
    #[inline(always)]
    #[must_use]
    pub const fn pass(uplink: u32) -> Self {
        Self::new(FlowAction::Pass, uplink, NO_MTU, HOOK_UPLINK)
    }

    /// To another node.
    #[inline(always)]
    #[must_use]
    pub const fn node(number: u16, node: &Node) -> Self {
        if node.flags & N_TUNNEL == 0 {
            return Self::new(FlowAction::Native, number as u32, node.mtu, HOOK_UPLINK);
        }
        let mut way = Self::new(FlowAction::Tunnel, number as u32, node.mtu, HOOK_TUNNEL);
        way.back_node = number;
        way
    }

    /// Whether this is what is done.
    #[inline(always)]
    #[must_use]
    pub const fn is(&self, action: FlowAction) -> bool {
        self.action == action as u8
    }

    /// Whether it leaves this node.
    #[inline(always)]
    #[must_use]
    pub const fn leaves(&self) -> bool {
        self.is(FlowAction::Native) || self.is(FlowAction::Tunnel) || self.is(FlowAction::Uplink)
    }

    /// Writes it into the entry of its direction.
    #[inline(always)]
    pub fn write(&self, entry: &mut FlowEntry) {
        entry.action = self.action;
        entry.target = self.target;
        entry.mtu = self.mtu;
        entry.next_hop = self.next_hop;
    }
}

/// What lies at an address: a [`RouteKind`], or outside the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// `None`: outside the cluster.
    pub kind: Option<RouteKind>,
    /// Node number of the remote kinds.
    pub node: u16,
}

/// Looks an address up.
#[inline(always)]
pub fn place<T: Tables>(tables: &T, addr: &Addr) -> Place {
    match tables.route(addr) {
        // A byte that nobody writes: nobody's.
        Some(route) => {
            Place { kind: Some(RouteKind::from_byte(route.kind).unwrap_or(RouteKind::Unowned)), node: route.node }
        }
        None => Place { kind: None, node: 0 },
    }
}

/// The way out of the cluster, by the kernel's routes. To a pod's packet an address that the kernel would not forward to is one of the
/// host's own that no row names (a route of type local), or one without a route, which `bpf_fib_lookup` says by the same code: the stack's,
/// which takes it or answers that there is no route. What the operator has closed (blackhole, unreachable, prohibit) is a drop.
///
/// # Errors
/// [`DropReason::NoRoute`].
#[inline(always)]
pub fn outside<P: Packet, T: Tables>(
    packet: &mut P,
    tables: &T,
    config: &Config,
    src: &Addr,
    dst: &Addr,
    kind: Kind,
) -> Result<Way, DropReason> {
    match packet.fib(config.door_host, src, dst) {
        Fib::Out { ifindex, next_hop } => {
            let uplink = tables.uplink(ifindex).ok_or(DropReason::NoRoute)?;
            let mtu = if uplink.mtu < NO_MTU as u32 { uplink.mtu as u16 } else { NO_MTU };
            Ok(Way { next_hop, ..Way::new(FlowAction::Uplink, ifindex, mtu, HOOK_UPLINK) })
        }
        Fib::NotForwarded if kind == Kind::Pod => {
            tables.count(Stat::Unrouted);
            Ok(Way::stack())
        }
        Fib::NotForwarded | Fib::None => Err(DropReason::NoRoute),
    }
}
