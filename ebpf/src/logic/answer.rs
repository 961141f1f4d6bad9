//! ICMP errors of our own: a packet is turned into the error that quotes it, and goes back to its sender.
//!
//! Invariant: at most the endpoint's share a second, and never for an ICMP error, a later fragment or a multicast (RFC 1122 3.2.2,
//! RFC 4443 2.4). To a pod the source is its gateway: 169.254.1.1 or fe80::1, both on the pod's link. To the node's stack it is the
//! packet's destination: the stack believes at `osmia0` (rp_filter) only what its own route to leads there.

use super::packet::{ETH_LEN, Room};
use super::parse::{ICMP, ICMPV6, Part};
use super::{FlowKey, Packet, Parsed, Tables, checksum};
use crate::layout::Addr;

/// The pods' IPv4 gateway.
pub const GATEWAY4: [u8; 4] = [169, 254, 1, 1];
/// The pods' IPv6 gateway.
pub const GATEWAY6: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Bytes quoted behind the IP and extension headers, where there are as many. The kernel cuts no deeper than a TCP checksum it has to
/// finish (`__bpf_skb_min_len`); RFC 792 asks for 8.
const QUOTED_TRANSPORT: u32 = 20;
/// 4-byte words that the longest quote has: IPv6 with 256 bytes of extension headers.
const QUOTED_WORDS: usize = (40 + 256 + QUOTED_TRANSPORT as usize) / 4;
const HOPS: u8 = 64;
/// Internetwork control, as the kernel marks its own.
const TOS: u8 = 0xc0;

/// An ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// The four bytes behind the checksum.
    pub rest: [u8; 4],
}

/// Whether an error may be sent for this packet at all.
#[inline(always)]
pub fn allowed<K: FlowKey>(parsed: &Parsed<K>) -> bool {
    let dst = parsed.key.dst();
    let group = if K::V6 { dst.0[0] == 0xff } else { dst.to_v4()[0] >= 224 };
    parsed.part != Part::Later && !parsed.is_icmp_error() && !group
}

/// Takes one answer of the endpoint's share of this second; `false` where it is used up.
///
/// The bucket holds the second in its upper 24 bits and the answers given in it in its lower 8. Two CPUs at once may give one more.
#[inline(always)]
pub fn take<T: Tables>(t: &T, slot: u32, now: u32) -> bool {
    let Some(config) = t.config() else { return false };
    let second = (now / t.ticks_per_second().max(1)) & 0x00ff_ffff;
    let bucket = t.bucket(slot);
    let given = if bucket >> 8 == second { bucket & 0xff } else { 0 };
    if given >= config.too_big_rate.min(0xff) {
        return false;
    }
    t.set_bucket(slot, second << 8 | (given + 1));
    true
}

/// The pods' gateway of the family.
#[inline(always)]
#[must_use]
pub const fn gateway<K: FlowKey>() -> Addr {
    if K::V6 { Addr::v6(GATEWAY6) } else { Addr::v4(GATEWAY4) }
}

/// Turns the packet into `error` about itself, of `from`, addressed to its source.
#[inline(always)]
pub fn write<K: FlowKey, P: Packet>(p: &mut P, parsed: &Parsed<K>, from: &Addr, error: Error) -> Option<()> {
    let whole = parsed.length;
    let quoted = ((parsed.l4 - parsed.l3) as u32 + QUOTED_TRANSPORT).min(whole);
    p.pull(ETH_LEN as u32 + quoted)?;
    let sum = sum_of_quote::<K, P>(p, quoted)?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5]: [u8; 12] = p.read(0)?;
    if quoted < whole {
        p.change_tail(ETH_LEN as u32 + quoted)?;
    }
    let header = K::IP_LEN as i32 + 8;
    p.adjust_room(header, Room::Mac, 0).ok()?;
    p.write(0, &[s0, s1, s2, s3, s4, s5, d0, d1, d2, d3, d4, d5])?;
    if K::V6 {
        write_v6(p, from, &parsed.key.src(), error, quoted, sum)
    } else {
        write_v4(p, from, &parsed.key.src(), error, quoted, sum)
    }
}

/// Sum of the first `quoted` bytes behind the Ethernet header.
#[inline(always)]
fn sum_of_quote<K: FlowKey, P: Packet>(p: &P, quoted: u32) -> Option<u32> {
    let words = if K::V6 { QUOTED_WORDS } else { (60 + QUOTED_TRANSPORT as usize) / 4 };
    let quoted = quoted as usize;
    let mut sum = 0;
    for i in 0..words {
        let at = i * 4;
        let tail: [u8; 4] = match quoted.saturating_sub(at) {
            0 => break,
            1 => {
                let [a] = p.read(ETH_LEN + at)?;
                [a, 0, 0, 0]
            }
            2 => {
                let [a, b] = p.read(ETH_LEN + at)?;
                [a, b, 0, 0]
            }
            3 => {
                let [a, b, c] = p.read(ETH_LEN + at)?;
                [a, b, c, 0]
            }
            _ => p.read(ETH_LEN + at)?,
        };
        sum = checksum::add(sum, checksum::of4(tail));
    }
    Some(sum)
}

#[inline(always)]
fn icmp(error: Error, sum: u32) -> [u8; 8] {
    let Error { kind, code, rest } = error;
    let sum = checksum::add(sum, checksum::add(checksum::of2([kind, code]), checksum::of4(rest)));
    let ([c0, c1], [r0, r1, r2, r3]) = (checksum::field(sum), rest);
    [kind, code, c0, c1, r0, r1, r2, r3]
}

#[inline(always)]
fn write_v4<P: Packet>(p: &mut P, src: &Addr, dst: &Addr, error: Error, quoted: u32, sum: u32) -> Option<()> {
    let [l0, l1] = (quoted as u16 + 28).to_be_bytes();
    let ([g0, g1, g2, g3], [a0, a1, a2, a3]) = (src.to_v4(), dst.to_v4());
    let fixed = checksum::add(checksum::of4([0x45, TOS, l0, l1]), checksum::of4([HOPS, ICMP, 0, 0]));
    let header = checksum::add(fixed, checksum::add(checksum::of4(src.to_v4()), checksum::of4(dst.to_v4())));
    let [c0, c1] = checksum::field(header);
    p.write(ETH_LEN, &[0x45, TOS, l0, l1, 0, 0, 0, 0, HOPS, ICMP, c0, c1, g0, g1, g2, g3, a0, a1, a2, a3])?;
    p.write(ETH_LEN + 20, &icmp(error, sum))
}

#[inline(always)]
fn write_v6<P: Packet>(p: &mut P, src: &Addr, dst: &Addr, error: Error, quoted: u32, sum: u32) -> Option<()> {
    let [l0, l1] = (quoted as u16 + 8).to_be_bytes();
    p.write(ETH_LEN, &[0x60 | TOS >> 4, (TOS & 0xf) << 4, 0, 0, l0, l1, ICMPV6, HOPS])?;
    p.write(ETH_LEN + 8, &src.0)?;
    p.write(ETH_LEN + 24, &dst.0)?;
    let addresses = checksum::add(checksum::of16(&src.0), checksum::of16(&dst.0));
    let pseudo = checksum::add(addresses, checksum::add(checksum::of2([l0, l1]), checksum::of2([0, ICMPV6])));
    p.write(ETH_LEN + 40, &icmp(error, checksum::add(sum, pseudo)))
}

#[cfg(test)]
mod tests;
