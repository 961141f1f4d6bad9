//! What policy says of a flow's first packet. Asked when a flow is decided, never for a packet of a known flow.
//!
//! Invariant: no answer is no permission: what has a rule set and finds no row is denied.

use super::parse::has_ports;
use super::{Judgement, PolicyTables};
use crate::layout::policy::{OPEN, V_ALLOW, V_BASE};
use crate::layout::{Addr, Asked};

/// What rules ask of a packet of this protocol to this port (network order); set and class are filled by [`judge`].
#[inline(always)]
#[must_use]
pub const fn traffic(proto: u8, dport: [u8; 2]) -> Asked {
    let port = if has_ports(proto) { dport } else { [0; 2] };
    Asked { set: 0, class: 0, part: 0, proto, port }
}

/// What frees a flow from rules that its ends have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Free {
    /// Both ends are one endpoint: a pod reaches itself.
    pub itself: bool,
    /// The node's stack translates the destination first (a service), and what comes back is judged.
    pub translated_first: bool,
    /// A socket of this node opened it: the door rule, a node reaches its own pods.
    pub node_socket: bool,
}

impl Free {
    /// The rule set that the sender is held to, of the one it has.
    #[inline(always)]
    #[must_use]
    pub const fn egress(&self, rules: u32) -> u32 {
        if self.translated_first || self.itself { OPEN } else { rules }
    }

    /// The rule set that the receiver is held to, of the one it has.
    #[inline(always)]
    #[must_use]
    pub const fn ingress(&self, rules: u32) -> u32 {
        if self.node_socket || self.itself { OPEN } else { rules }
    }
}

/// The class of an address.
#[inline(always)]
#[must_use]
pub fn class<T: PolicyTables>(tables: &T, addr: &Addr) -> u32 {
    match tables.peer(addr) {
        Some(class) => class,
        None => tables.peer_block(addr).unwrap_or(0),
    }
}

/// Judges one direction of one endpoint by its rule set: `peer` is the other end, `traffic` is the packet's (its set and class are filled
/// here).
///
/// One lookup where the class of the peer has rows; where it has none, what the rule set says of anybody.
#[inline(always)]
#[must_use]
pub fn judge<T: PolicyTables>(tables: &T, rules: u32, peer: &Addr, traffic: &Asked) -> Judgement {
    if rules == OPEN {
        return Judgement::Allow(0);
    }
    let class = class(tables, peer);
    let mut row = tables.verdict(&Asked { set: rules, class, ..*traffic }).unwrap_or_default();
    if class != 0 && row.flags & V_BASE != 0 {
        row = tables.verdict(&Asked { set: rules, class: 0, ..*traffic }).unwrap_or(row);
    }
    if row.flags & V_ALLOW != 0 { Judgement::Allow(row.cookie) } else { Judgement::Deny(row.cookie) }
}

#[cfg(test)]
mod tests;
