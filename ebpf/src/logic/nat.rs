//! Rewrites of a packet's source and destination, both in one go, as its flow entry says.
//!
//! Invariant: checksums change by the kernel's helpers only, by the difference of what they cover. A sum made by hand breaks a packet
//! whose checksum the device still has to finish (CHECKSUM_PARTIAL) or has handed in whole (CHECKSUM_COMPLETE).
//!
//! What carries ports is rewritten with them: TCP, UDP, and ICMP queries by their identifier, which both ports of the key are made of. An
//! entry that changes the identifier therefore has both `F_REWRITE_SRC` and `F_REWRITE_DST`, with new "ports" of both ends. SCTP's ports are
//! covered by a CRC that nobody can correct by a difference, so SCTP and all other protocols change by address alone.

use super::packet::csum;
use super::parse::{ICMP, ICMPV6, Part, TCP, UDP, query};
use super::{FlowKey, Packet, Parsed, checksum};
use crate::layout::flow::{F_REWRITE_DST, F_REWRITE_SRC};
use crate::layout::{Addr, DropReason, FlowEntry};

/// Offset of the checksum in the IPv4 header.
pub(super) const V4_CHECK: usize = 10;

/// What an entry changes of a packet's ends, as sums: nothing of it lies on the stack, since the new ends are read where the entry is.
struct Change {
    source: bool,
    destination: bool,
    /// Difference of the addresses.
    addresses: u32,
    /// Difference of the ports, or of the identifier.
    ports: u32,
}

impl Change {
    /// What `entry` makes of packets of `key`.
    #[inline(always)]
    fn of<K: FlowKey>(key: &K, entry: &FlowEntry) -> Self {
        let (source, destination) = (entry.flags & F_REWRITE_SRC != 0, entry.flags & F_REWRITE_DST != 0);
        let mut change = Self { source, destination, addresses: 0, ports: 0 };
        if source {
            change.addresses = address_diff::<K>(&key.src(), &entry.new_src);
            change.ports = checksum::diff(checksum::of2(key.sport()), checksum::of2(entry.new_sport));
        }
        if destination {
            let addresses = address_diff::<K>(&key.dst(), &entry.new_dst);
            change.addresses = checksum::add(change.addresses, addresses);
            let ports = checksum::diff(checksum::of2(key.dport()), checksum::of2(entry.new_dport));
            change.ports = checksum::add(change.ports, ports);
        }
        if is_query(key.proto()) {
            // One number in the packet, though two of the key are made of it.
            change.ports =
                identifiers(key, entry).map_or(0, |(old, new)| checksum::diff(checksum::of2(old), checksum::of2(new)));
        }
        change
    }
}

/// Rewrites the packet as `entry` says; nothing where it says nothing.
///
/// # Errors
/// [`DropReason::Rewrite`]; the packet may be half rewritten then.
#[inline(always)]
pub fn rewrite<K: FlowKey, P: Packet>(p: &mut P, parsed: &Parsed<K>, entry: &FlowEntry) -> Result<(), DropReason> {
    if entry.flags & (F_REWRITE_SRC | F_REWRITE_DST) == 0 {
        return Ok(());
    }
    apply(p, parsed, entry).ok_or(DropReason::Rewrite)
}

#[inline(always)]
fn apply<K: FlowKey, P: Packet>(p: &mut P, parsed: &Parsed<K>, entry: &FlowEntry) -> Option<()> {
    let change = Change::of(&parsed.key, entry);
    // A later fragment has no transport header; the sum in the first one covers them all.
    let sum = if parsed.part == Part::Later { None } else { Transport::of(parsed.key.proto()) };
    if let Some(sum) = sum {
        transport(p, parsed, entry, &change, sum)?;
    }
    let covered = sum.is_some_and(|s| s.pseudo);
    if !K::V6 {
        p.l3_csum_replace(parsed.l3 + V4_CHECK, 0, change.addresses, 0)?;
    }
    if change.source {
        write_end::<K, P>(p, parsed.l3 + source_at::<K>(), &entry.new_src, covered)?;
    }
    if change.destination {
        write_end::<K, P>(p, parsed.l3 + destination_at::<K>(), &entry.new_dst, covered)?;
    }
    Some(())
}

/// The transport checksum, and the ports or the identifier.
#[inline(always)]
fn transport<K: FlowKey, P: Packet>(
    p: &mut P,
    parsed: &Parsed<K>,
    entry: &FlowEntry,
    change: &Change,
    sum: Transport,
) -> Option<()> {
    let proto = parsed.key.proto();
    let at = parsed.l4 + sum.at;
    if sum.pseudo {
        let v6 = if K::V6 { csum::IPV6 } else { 0 };
        p.l4_csum_replace(at, 0, change.addresses, csum::PSEUDO_HDR | sum.flags | v6)?;
    }
    if is_query(proto) {
        let Some((_, new)) = identifiers(&parsed.key, entry) else { return Some(()) };
        p.l4_csum_replace(at, 0, change.ports, sum.flags)?;
        return p.replace(parsed.l4 + 4, &new);
    }
    p.l4_csum_replace(at, 0, change.ports, sum.flags)?;
    if change.source {
        p.replace(parsed.l4, &entry.new_sport)?;
    }
    if change.destination {
        p.replace(parsed.l4 + 2, &entry.new_dport)?;
    }
    Some(())
}

/// Whether the ports are made of an identifier, where there is one.
#[inline(always)]
pub(super) const fn is_query(proto: u8) -> bool {
    matches!(proto, ICMP | ICMPV6)
}

/// The identifier of packets of `key`, and what `entry` makes of it; `None`: it stays.
#[inline(always)]
pub(super) fn identifiers<K: FlowKey>(key: &K, entry: &FlowEntry) -> Option<([u8; 2], [u8; 2])> {
    let both = F_REWRITE_SRC | F_REWRITE_DST;
    let (old, new) = (query::identifier(key.sport(), key.dport()), query::identifier(entry.new_sport, entry.new_dport));
    if entry.flags & both == both && old != new { Some((old, new)) } else { None }
}

/// Offset of the source address in an IP header.
#[inline(always)]
pub(super) const fn source_at<K: FlowKey>() -> usize {
    if K::V6 { 8 } else { 12 }
}

/// Offset of the destination address in an IP header.
#[inline(always)]
pub(super) const fn destination_at<K: FlowKey>() -> usize {
    if K::V6 { 24 } else { 16 }
}

/// Writes an end's address from where it lies; `covered`: a transport checksum that was corrected for it covers it. The IPv4 header's own
/// always does; where nothing makes up for an IPv6 address, the device's sum changes with it.
#[inline(always)]
pub(super) fn write_end<K: FlowKey, P: Packet>(p: &mut P, at: usize, addr: &Addr, covered: bool) -> Option<()> {
    match (K::V6, covered) {
        (true, true) => p.replace_address(at, &addr.0),
        (true, false) => p.write(at, &addr.0),
        (false, _) => p.replace::<4>(at, addr.0.last_chunk()?),
    }
}

/// Writes an address inside a payload whose checksum is corrected for it.
#[inline(always)]
pub(super) fn write_quoted<K: FlowKey, P: Packet>(p: &mut P, at: usize, addr: &Addr) -> Option<()> {
    if K::V6 { p.replace(at, &addr.0) } else { p.replace::<4>(at, addr.0.last_chunk()?) }
}

/// The checksum of an upper-layer header.
#[derive(Clone, Copy)]
pub(super) struct Transport {
    /// Its offset in that header.
    pub(super) at: usize,
    /// Whether it covers the addresses.
    pub(super) pseudo: bool,
    /// [`csum`] flags.
    pub(super) flags: u64,
}

impl Transport {
    /// Of a protocol that has one we can correct.
    #[inline(always)]
    pub(super) const fn of(proto: u8) -> Option<Self> {
        match proto {
            TCP => Some(Self { at: 16, pseudo: true, flags: 0 }),
            UDP => Some(Self { at: 6, pseudo: true, flags: csum::MARK_MANGLED_0 }),
            ICMP => Some(Self { at: 2, pseudo: false, flags: 0 }),
            ICMPV6 => Some(Self { at: 2, pseudo: true, flags: 0 }),
            _ => None,
        }
    }
}

/// What the sum over an address changes by, as it lies in a packet of the family.
#[inline(always)]
pub(super) fn address_diff<K: FlowKey>(from: &Addr, to: &Addr) -> u32 {
    if K::V6 {
        checksum::diff(checksum::of16(&from.0), checksum::of16(&to.0))
    } else {
        checksum::diff(checksum::of4(from.to_v4()), checksum::of4(to.to_v4()))
    }
}

#[cfg(test)]
mod tests;
