//! What policy says of a flow's first packet. Asked when a flow is decided, never for a packet of a known flow.
//!
//! Invariant: no answer is no permission: what has a rule set and finds no row is denied.

use super::parse::{SCTP, TCP, UDP, has_ports};
use super::{Judgement, PolicyTables};
use crate::layout::policy::{OPEN, PART_LOOSE, PORT_BITS, PROTO_BITS, V_ALLOW, V_PROTO, narrower};
use crate::layout::{Addr, Asked, VerdictKey, VerdictRow};

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
/// However many rows there are: one lookup for the head, another where it has none with the peer's class and what it says of anybody is
/// asked, and one for each length of rows that the head has about ports, the longest first. Most heads have none, or one.
#[inline(always)]
#[must_use]
pub fn judge<T: PolicyTables>(tables: &T, rules: u32, peer: &Addr, traffic: &Asked) -> Judgement {
    if rules == OPEN {
        return Judgement::Allow(0);
    }
    let mut class = class(tables, peer);
    let mut head = tables.verdict(&VerdictKey::head(rules, class));
    if head.is_none() && class != 0 {
        class = 0;
        head = tables.verdict(&VerdictKey::head(rules, class));
    }
    let Some(head) = head else { return Judgement::Deny(0) };
    if traffic.part == PART_LOOSE {
        let loose = match traffic.proto {
            TCP => head.loose[0],
            UDP => head.loose[1],
            SCTP => head.loose[2],
            _ => 0,
        };
        return if loose != 0 { Judgement::Allow(loose) } else { judgement(&head) };
    }
    judgement(&narrowest(tables, &Asked { set: rules, class, ..*traffic }, head))
}

const fn judgement(row: &VerdictRow) -> Judgement {
    if row.flags & V_ALLOW != 0 { Judgement::Allow(row.cookie) } else { Judgement::Deny(row.cookie) }
}

/// The row of most bits about this, of those that the head knows of; else the head.
#[inline(always)]
fn narrowest<T: PolicyTables>(tables: &T, asked: &Asked, head: VerdictRow) -> VerdictRow {
    let mut left = head.flags & LENGTHS;
    // Counted, so that a verifier sees an end. Found by arithmetic: it would follow a branch on each bit both ways, and so all sets of lengths.
    for _ in PROTO_BITS..=PORT_BITS {
        let Some(longest) = left.checked_ilog2() else { break };
        left &= !(1 << longest);
        if let Some(row) = tables.verdict(&VerdictKey::ports(asked, PROTO_BITS + longest - V_PROTO.ilog2())) {
            return row;
        }
    }
    head
}

/// `flags` of all lengths.
const LENGTHS: u32 = (narrower(PORT_BITS) << 1) - narrower(PROTO_BITS);

#[cfg(test)]
mod tests;
