//! Packet too big: what a sender gets whose packet does not fit the way.
//!
//! Invariant: a packet longer than its way takes never leaves; without an answer it would just vanish. IPv4 without DF is answered the
//! same way, since a BPF program can not fragment: the sender's kernel does it from then on.

use super::answer::{self, Error};
use super::{FlowKey, Packet, Parsed, Tables, Verdict, forward};
use crate::layout::{DropReason, Stat};

/// Destination unreachable, fragmentation needed: RFC 792, RFC 1191.
const V4: (u8, u8) = (3, 4);
/// Packet too big: RFC 4443 3.2.
const V6: (u8, u8) = (2, 0);
/// No IPv6 link is smaller; a host ignores less (RFC 8201 4).
const V6_LEAST: u16 = 1280;

/// Answers the pod of `slot`, at whose link the packet is, or with slot 0 the node's stack, which sent or forwarded it; `mtu` is the largest
/// IP packet in bytes on the way.
#[inline(always)]
pub fn answer<K: FlowKey, P: Packet, T: Tables>(
    p: &mut P,
    t: &T,
    parsed: &Parsed<K>,
    slot: u32,
    mtu: u16,
    now: u32,
) -> Verdict {
    if !answer::allowed(parsed) {
        return Verdict::drop(DropReason::TooBig);
    }
    if !answer::take(t, slot, now) {
        return Verdict::drop(DropReason::TooBigLimited);
    }
    let (kind, code) = if K::V6 { V6 } else { V4 };
    // IPv6 has 32 bits of MTU, IPv4 the last 16 of the same four bytes.
    let mtu = if K::V6 { mtu.max(V6_LEAST) } else { mtu };
    let from = if slot == 0 { parsed.key.dst() } else { answer::gateway::<K>() };
    if answer::write(p, parsed, &from, Error { kind, code, rest: u32::from(mtu).to_be_bytes() }).is_none() {
        return Verdict::drop(DropReason::TooBig);
    }
    t.count(Stat::TooBigSent);
    if slot == 0 { forward::to_stack(p, t) } else { Verdict::reply(p.ifindex()) }
}
