//! What policy says of a flow's first packet. Asked when a flow is decided, never for a packet of a known flow.
//!
//! Invariant: no answer is no permission: what has a rule set and finds no row is denied.

use super::{Judgement, Tables};
use crate::layout::policy::{OPEN, V_ALLOW, V_BASE};
use crate::layout::{Addr, Asked};

/// Judges one direction of one endpoint by its rule set: `peer` is the other end, `traffic` is the packet's (its set and class are filled
/// here).
///
/// One lookup where the class of the peer has rows; where it has none, what the rule set says of anybody.
#[inline(always)]
#[must_use]
pub fn judge<T: Tables>(tables: &T, rules: u32, peer: &Addr, traffic: &Asked) -> Judgement {
    if rules == OPEN {
        return Judgement::Allow(0);
    }
    let class = match tables.peer(peer) {
        Some(class) => class,
        None => tables.peer_block(peer).unwrap_or(0),
    };
    let mut row = tables.verdict(&Asked { set: rules, class, ..*traffic }).unwrap_or_default();
    if class != 0 && row.flags & V_BASE != 0 {
        row = tables.verdict(&Asked { set: rules, class: 0, ..*traffic }).unwrap_or(row);
    }
    if row.flags & V_ALLOW != 0 { Judgement::Allow(row.cookie) } else { Judgement::Deny(row.cookie) }
}

#[cfg(test)]
mod tests;
