//! Fragments: the first one of a datagram has the ports and tells them to those that follow.
//!
//! Invariant: a later fragment gets no ports but those that its own first fragment came with, of the same addresses and identification.
//! One that comes before its first is a packet of its addresses and protocol alone (ports 0): it passes where no rewrite needs ports, and
//! as policy lets any port pass; else it is dropped as `FRAG_NO_FIRST`.

use super::parse::Part;
use super::{FlowKey, Parsed, Tables};
use crate::layout::{FragmentKey, FragmentRow, Stat};

/// Seconds that a datagram may take to arrive: as long as a receiver waits for the rest (RFC 8200 4.5; Linux takes 30 for IPv4).
const SECONDS: u32 = 60;

#[inline(always)]
fn key<K: FlowKey>(parsed: &Parsed<K>) -> FragmentKey {
    FragmentKey {
        src: parsed.key.src(),
        dst: parsed.key.dst(),
        id: parsed.id,
        // IPv6's later fragments may name an extension header here (RFC 8200 4.5), so it is no part of the key.
        proto: if K::V6 { 0 } else { parsed.key.proto() },
        zero: [0; 3],
    }
}

/// Keeps the ports of a first fragment. Called with the key as it arrived, once the fragment is allowed on.
#[inline(always)]
pub fn remember<K: FlowKey, T: Tables>(t: &T, parsed: &Parsed<K>, now: u32) {
    if parsed.part == Part::First {
        let first = &parsed.key;
        let row =
            FragmentRow { sport: first.sport(), dport: first.dport(), proto: first.proto(), zero: [0; 3], seen: now };
        t.put_fragment(&key(parsed), &row);
    }
}

/// The key of a later fragment with the ports of its first one; `None` where that was not seen.
#[inline(always)]
pub fn recall<K: FlowKey, T: Tables>(t: &T, parsed: &Parsed<K>, now: u32) -> Option<K> {
    let row = t.fragment(&key(parsed))?;
    let limit = t.ticks_per_second().wrapping_mul(SECONDS);
    if now.wrapping_sub(row.seen) > limit {
        return None;
    }
    t.count(Stat::FragmentFollowed);
    Some(K::of(&parsed.key.src(), &parsed.key.dst(), row.sport, row.dport, row.proto))
}

#[cfg(test)]
mod tests;
