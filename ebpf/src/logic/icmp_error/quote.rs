//! The packet that an ICMP error quotes: often cut short, its lengths are no proof of anything.
//!
//! Invariant: nothing behind the quoted transport header's first 8 bytes is needed; what is there is corrected, what is not is left.

use super::super::nat::{self, Transport};
use super::super::parse::{ICMP, ICMPV6, SCTP, TCP, UDP, query};
use super::super::{FlowKey, Packet, checksum};
use crate::layout::flow::{F_REWRITE_DST, F_REWRITE_SRC};
use crate::layout::{Addr, FlowEntry};

/// Extension headers that are walked over; a packet of ours had no more.
const MAX_HEADERS: u32 = 8;
const MAX_BYTES: usize = 256;

/// Where the quoted packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Quote {
    /// Offset of its IP header.
    l3: usize,
    /// Offset of its transport header, 0 for a fragment that has none.
    l4: usize,
}

/// The key of answers to the quoted packet, and where that is.
#[inline(always)]
pub(super) fn read<K: FlowKey, P: Packet>(p: &mut P, l3: usize) -> Option<(K, Quote)> {
    p.pull((l3 + K::IP_LEN) as u32)?;
    let (proto, l4) = if K::V6 { front_v6(p, l3)? } else { front_v4(p, l3)? };
    let (sport, dport) = if l4 == 0 { ([0; 2], [0; 2]) } else { ports(p, proto, l4)? };
    let (src, dst) = if K::V6 {
        (Addr::v6(p.read(l3 + 8)?), Addr::v6(p.read(l3 + 24)?))
    } else {
        (Addr::v4(p.read(l3 + 12)?), Addr::v4(p.read(l3 + 16)?))
    };
    Some((K::of(&dst, &src, dport, sport, proto), Quote { l3, l4 }))
}

/// Protocol, and offset of the transport header (0: none).
#[inline(always)]
fn front_v4<P: Packet>(p: &mut P, l3: usize) -> Option<(u8, usize)> {
    let [version, _, _, _, _, _, f0, f1] = p.read(l3)?;
    let [proto] = p.read(l3 + 9)?;
    let header = usize::from(version & 0xf) * 4;
    if version >> 4 != 4 || header < 20 {
        return None;
    }
    let later = u16::from_be_bytes([f0, f1]) & 0x1fff != 0;
    Some((proto, if later { 0 } else { l3 + header }))
}

#[inline(always)]
fn front_v6<P: Packet>(p: &mut P, l3: usize) -> Option<(u8, usize)> {
    let [version, _, _, _, _, _, next, _]: [u8; 8] = p.read(l3)?;
    if version >> 4 != 6 {
        return None;
    }
    let mut proto = next;
    let mut extension = 0_usize;
    for _ in 0..=MAX_HEADERS {
        // Hop-by-hop, routing, fragment, authentication, destination: RFC 8200, RFC 4302.
        if !matches!(proto, 0 | 43 | 44 | 51 | 60) {
            return Some((proto, l3 + 40 + extension));
        }
        let at = l3 + 40 + extension;
        p.pull(at as u32 + 4)?;
        let [following, units, o0, o1]: [u8; 4] = p.read(at)?;
        extension += match proto {
            44 if u16::from_be_bytes([o0, o1]) & 0xfff8 != 0 => return Some((following, 0)),
            44 => 8,
            51 => (usize::from(units) + 2) * 4,
            _ => (usize::from(units) + 1) * 8,
        };
        if extension > MAX_BYTES {
            return None;
        }
        proto = following;
    }
    None
}

/// As the parser of whole packets has them.
#[inline(always)]
fn ports<P: Packet>(p: &mut P, proto: u8, l4: usize) -> Option<([u8; 2], [u8; 2])> {
    if !matches!(proto, TCP | UDP | SCTP | ICMP | ICMPV6) {
        return Some(([0; 2], [0; 2]));
    }
    p.pull(l4 as u32 + 8)?;
    let [s0, s1, d0, d1, i0, i1, ..]: [u8; 8] = p.read(l4)?;
    if matches!(proto, TCP | UDP | SCTP) {
        return Some(([s0, s1], [d0, d1]));
    }
    // Only a query is ever quoted as part of a flow; an error is answered with none.
    query::ports(proto, s0, [i0, i1])
}

impl Quote {
    /// Undoes in the quoted packet what its answers' `entry` undoes in answers; gives the difference of the sum over all bytes that changed.
    #[inline(always)]
    pub(super) fn rewrite<K: FlowKey, P: Packet>(&self, p: &mut P, answers: &K, entry: &FlowEntry) -> Option<u32> {
        let mut addresses = 0;
        if entry.flags & F_REWRITE_DST != 0 {
            addresses = nat::address_diff::<K>(&answers.dst(), &entry.new_dst);
            nat::write_quoted::<K, P>(p, self.l3 + nat::source_at::<K>(), &entry.new_dst)?;
        }
        if entry.flags & F_REWRITE_SRC != 0 {
            addresses = checksum::add(addresses, nat::address_diff::<K>(&answers.src(), &entry.new_src));
            nat::write_quoted::<K, P>(p, self.l3 + nat::destination_at::<K>(), &entry.new_src)?;
        }
        let mut changed = addresses;
        if !K::V6 {
            changed = checksum::add(changed, correct(p, self.l3 + nat::V4_CHECK, addresses, false)?);
        }
        if self.l4 == 0 {
            return Some(changed);
        }
        let ports = self.rewrite_ports(p, answers, entry)?;
        changed = checksum::add(changed, ports);
        if let Some(sum) = Transport::of(answers.proto()) {
            let covered = if sum.pseudo { checksum::add(addresses, ports) } else { ports };
            let at = self.l4 + sum.at;
            // A quote of 8 transport bytes ends before TCP's checksum.
            if p.pull(at as u32 + 2).is_some() {
                changed = checksum::add(changed, correct(p, at, covered, answers.proto() == UDP)?);
            }
        }
        Some(changed)
    }

    #[inline(always)]
    fn rewrite_ports<K: FlowKey, P: Packet>(&self, p: &mut P, answers: &K, entry: &FlowEntry) -> Option<u32> {
        let proto = answers.proto();
        if nat::is_query(proto) {
            let Some((old, new)) = nat::identifiers(answers, entry) else { return Some(0) };
            p.replace(self.l4 + 4, &new)?;
            return Some(checksum::diff(checksum::of2(old), checksum::of2(new)));
        }
        let mut ports = 0;
        if !matches!(proto, TCP | UDP) {
            return Some(ports);
        }
        if entry.flags & F_REWRITE_DST != 0 {
            p.replace(self.l4, &entry.new_dport)?;
            ports = checksum::diff(checksum::of2(answers.dport()), checksum::of2(entry.new_dport));
        }
        if entry.flags & F_REWRITE_SRC != 0 {
            p.replace(self.l4 + 2, &entry.new_sport)?;
            ports =
                checksum::add(ports, checksum::diff(checksum::of2(answers.sport()), checksum::of2(entry.new_sport)));
        }
        Some(ports)
    }
}

/// Corrects a checksum inside the quote; gives what its own bytes changed by. By hand, since to the device these are payload.
#[inline(always)]
fn correct<P: Packet>(p: &mut P, at: usize, diff: u32, none_is_zero: bool) -> Option<u32> {
    let old: [u8; 2] = p.read(at)?;
    if none_is_zero && old == [0; 2] {
        return Some(0);
    }
    let new = checksum::field(checksum::add(checksum::of2([!old[0], !old[1]]), diff));
    p.replace(at, &new)?;
    Some(checksum::diff(checksum::of2(old), checksum::of2(new)))
}
