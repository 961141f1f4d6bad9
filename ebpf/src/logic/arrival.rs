//! Where a packet came in: what the flow tables call a hook, and what that says of its sender.

use super::{Entry, Origin};
use crate::layout::Addr;
use crate::layout::flow::{
    F_NODE_SOCKET, F_OPPOSITE_OUT, FlowAction, HOOK_DOOR, HOOK_TUNNEL, HOOK_UPLINK, HOOK_UPLINK_OUT, ZONE_OUT,
};

/// The kinds of ways in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// From a pod, by the host side of its link.
    Pod,
    /// On an uplink as it is.
    Uplink,
    /// Inside our tunnel.
    Tunnel,
    /// Out of the node's stack at `osmia1`.
    Door,
    /// Out of the node's stack at an uplink's egress.
    Out,
}

/// The way in. Without padding and always whole, since 5.10 refuses to copy bytes that nobody wrote.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Via {
    /// `hook` of the entries of packets that come this way.
    pub hook: u32,
    /// At the door: 1 for a socket of the node. Out of the stack: ifindex of the uplink. Else 0.
    detail: u32,
    /// Who sent the tunnel packet; [`Addr::NONE`]: not of a tunnel, or checked when the flow was opened.
    pub outer: Addr,
}

impl Via {
    /// From the pod behind this host-side link.
    #[inline(always)]
    #[must_use]
    pub const fn pod(ifindex: u32) -> Self {
        Self { hook: ifindex, detail: 0, outer: Addr::NONE }
    }

    /// On an uplink.
    #[inline(always)]
    #[must_use]
    pub const fn uplink() -> Self {
        Self { hook: HOOK_UPLINK, detail: 0, outer: Addr::NONE }
    }

    /// Inside our tunnel from this host.
    #[inline(always)]
    #[must_use]
    pub const fn tunnel(outer: Addr) -> Self {
        Self { hook: HOOK_TUNNEL, detail: 0, outer }
    }

    /// Out of the node's stack at the door.
    #[inline(always)]
    #[must_use]
    pub const fn door(origin: Origin) -> Self {
        Self { hook: HOOK_DOOR, detail: matches!(origin, Origin::NodeSocket) as u32, outer: Addr::NONE }
    }

    /// Out of the node's stack at this uplink.
    #[inline(always)]
    #[must_use]
    pub const fn out(uplink: u32) -> Self {
        Self { hook: HOOK_UPLINK_OUT, detail: uplink, outer: Addr::NONE }
    }

    /// The kind of way.
    #[inline(always)]
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self.hook {
            HOOK_UPLINK => Kind::Uplink,
            HOOK_TUNNEL => Kind::Tunnel,
            HOOK_DOOR => Kind::Door,
            HOOK_UPLINK_OUT => Kind::Out,
            _ => Kind::Pod,
        }
    }

    /// Whether a socket of the node sent it.
    #[inline(always)]
    #[must_use]
    pub const fn is_node_socket(&self) -> bool {
        self.hook == HOOK_DOOR && self.detail != 0
    }

    /// The uplink that it leaves by.
    #[inline(always)]
    #[must_use]
    pub const fn out_of(&self) -> u32 {
        self.detail
    }

    /// Zone of the keys of packets that come this way.
    #[inline(always)]
    #[must_use]
    pub const fn zone(&self) -> u8 {
        if self.hook == HOOK_UPLINK_OUT { ZONE_OUT } else { 0 }
    }

    /// The way in of the packets of an entry.
    #[inline(always)]
    pub fn of_entry<E: Entry>(entry: E) -> Self {
        let hook = entry.get(|e| e.hook);
        let detail = match hook {
            HOOK_DOOR => u32::from(entry.get(|e| e.flags) & F_NODE_SOCKET != 0),
            HOOK_UPLINK_OUT => entry.get(|e| e.target),
            _ => 0,
        };
        Self { hook, detail, outer: Addr::NONE }
    }

    /// The way in of the opener's packets, from the entry of the answers: they leave where the opener came in.
    #[inline(always)]
    pub fn of_answers<E: Entry>(entry: E) -> Self {
        let (target, flags) = entry.get(|e| (e.target, e.flags));
        let (hook, detail) = match FlowAction::from_byte(entry.get(|e| e.action)) {
            _ if flags & F_OPPOSITE_OUT != 0 => (HOOK_UPLINK_OUT, target),
            Some(FlowAction::Peer) => (target, 0),
            Some(FlowAction::Tunnel) => (HOOK_TUNNEL, 0),
            Some(FlowAction::Stack) => (HOOK_DOOR, u32::from(flags & F_NODE_SOCKET != 0)),
            _ => (HOOK_UPLINK, 0),
        };
        Self { hook, detail, outer: Addr::NONE }
    }
}
