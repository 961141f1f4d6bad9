//! The door between the node's own stack and the pod network: `osmia0`, whose egress tells who sends, and `osmia1`, whose ingress decides.
//!
//! Invariant: the mark bit says "a socket of this node sent this" between the two ends and nothing else; it is set or cleared on every
//! packet at `osmia0`, so that nobody else's mark can claim it.

use super::arrival::Via;
use super::packet::{ETH_IPV4, ETH_IPV6};
use super::pod::ether_type;
use super::slow::{Foreign, Run, Slow};
use super::{Origin, Packet, Stage, Tables, Verdict, fast, forward};
use crate::layout::flow::HOOK_DOOR;
use crate::layout::{DropReason, FlowKey4, FlowKey6};

/// Program of `osmia0`'s egress.
#[inline(always)]
pub fn to<P: Packet, T: Tables>(packet: &mut P, tables: &T) -> Verdict {
    if packet.socket_cookie() != 0 {
        forward::set_mark(packet, tables);
    } else {
        forward::clear_mark(packet, tables);
    }
    Verdict::NEXT
}

/// Fast program of `osmia1`'s ingress.
#[inline(always)]
pub fn from<P: Packet, T: Tables>(packet: &mut P, tables: &T, now: u32) -> Verdict {
    match ether_type(packet) {
        ETH_IPV4 => {
            fast::known::<FlowKey4, P, T>(packet, tables, HOOK_DOOR, now).unwrap_or(Verdict::jump(Stage::Door4))
        }
        ETH_IPV6 => {
            fast::known::<FlowKey6, P, T>(packet, tables, HOOK_DOOR, now).unwrap_or(Verdict::jump(Stage::Door6))
        }
        _ => Verdict::drop(DropReason::Door),
    }
}

/// Slow program of `osmia1`'s ingress.
#[inline(always)]
pub fn slow<K: Slow, P: Packet, T: Tables>(run: &mut Run<'_, P, T>) -> Verdict {
    let socket = run.packet.mark() & run.tables.mark() != 0;
    let via = Via::door(if socket { Origin::NodeSocket } else { Origin::Forwarded });
    match run.headers::<K>() {
        // What the node's stack says to a link of its own (listener reports and the like) is no traffic of pods.
        Ok(parsed) if is_group(&parsed.key) => Verdict::CONSUMED,
        Ok(parsed) => run.flow(&parsed, &via, Foreign::Plain),
        Err(reason) => Verdict::drop(reason),
    }
}

#[inline(always)]
fn is_group<K: Slow>(key: &K) -> bool {
    let dst = key.dst();
    if K::V6 { dst.0[0] == 0xff } else { dst.to_v4()[0] >= 224 }
}

#[cfg(test)]
mod tests;
