//! Time exceeded: what a pod gets whose packet has used up its TTL or hop limit here, so that traceroute shows the node.

use super::answer::{self, Error};
use super::{FlowKey, Packet, Parsed, Tables, Verdict};
use crate::layout::{DropReason, Stat};

/// Time exceeded in transit: RFC 792.
const V4: u8 = 11;
/// Hop limit exceeded in transit: RFC 4443 3.3.
const V6: u8 = 3;

/// Answers the pod of `slot`, at whose link the packet is; out of the same share as packet too big.
#[inline(always)]
pub fn answer<K: FlowKey, P: Packet, T: Tables>(p: &mut P, t: &T, parsed: &Parsed<K>, slot: u32, now: u32) -> Verdict {
    let kind = if K::V6 { V6 } else { V4 };
    let sent = answer::allowed(parsed)
        && answer::take(t, slot, now)
        && answer::write(p, parsed, &answer::gateway::<K>(), Error { kind, code: 0, rest: [0; 4] }).is_some();
    if !sent {
        return Verdict::drop(DropReason::HopLimit);
    }
    t.count(Stat::TimeExceededSent);
    Verdict::reply(p.ifindex())
}
