//! ICMP errors belong to the flow they quote, and follow it through every rewrite.
//!
//! An error about a packet travels as that flow's answers do: its entry is found by the quoted packet's key turned round. What the entry
//! does to answers is done to the error's outer addresses, and turned round to the quoted packet, so that its sender knows its own packet
//! again.
//!
//! Invariant: an error is addressed to the sender of what it quotes; anything else belongs to no flow.

mod quote;

use super::packet::csum;
use super::tables::Table;
use super::{FlowKey, Packet, Parsed, Tables, checksum, nat};
use crate::layout::flow::{F_REWRITE_DST, F_REWRITE_SRC};
use crate::layout::{DropReason, FlowEntry, Stat};
use nat::V4_CHECK;
use quote::Quote;

/// An ICMP error and what it quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Related<K> {
    /// The key of answers of the quoted flow: where this error belongs.
    pub answers: K,
    quote: Quote,
}

/// Reads what an ICMP error quotes.
///
/// # Errors
/// [`DropReason::IcmpNoFlow`] where it quotes nothing that could be told, or something that the error's receiver never sent.
#[inline(always)]
pub fn parse<K: FlowKey, P: Packet>(p: &mut P, parsed: &Parsed<K>) -> Result<Related<K>, DropReason> {
    let (answers, quote) = quote::read::<K, P>(p, parsed.l4 + 8).ok_or(DropReason::IcmpNoFlow)?;
    if answers.dst() != parsed.key.dst() {
        return Err(DropReason::IcmpNoFlow);
    }
    Ok(Related { answers, quote })
}

/// The entry that the error follows, an entry of its own direction. The caller judges hook, age and epochs as of any packet of that flow.
///
/// # Errors
/// [`DropReason::IcmpNoFlow`].
#[inline(always)]
pub fn find<K: FlowKey, T: Tables>(t: &T, related: &Related<K>, zone: u8) -> Result<(T::Flow, Table), DropReason> {
    let key = related.answers.in_zone(zone);
    if let Some(entry) = key.find(t, Table::Established) {
        return Ok((entry, Table::Established));
    }
    let entry = key.find(t, Table::Probation).ok_or(DropReason::IcmpNoFlow)?;
    Ok((entry, Table::Probation))
}

/// Rewrites error and quote as `entry` says of answers; nothing where it says nothing. Counts it as followed.
///
/// # Errors
/// [`DropReason::Rewrite`]; the packet may be half rewritten then.
#[inline(always)]
pub fn rewrite<K: FlowKey, P: Packet, T: Tables>(
    p: &mut P,
    t: &T,
    parsed: &Parsed<K>,
    related: &Related<K>,
    entry: &FlowEntry,
) -> Result<(), DropReason> {
    t.count(Stat::IcmpErrorRelated);
    if entry.flags & (F_REWRITE_SRC | F_REWRITE_DST) == 0 {
        return Ok(());
    }
    apply(p, parsed, related, entry).ok_or(DropReason::Rewrite)
}

#[inline(always)]
fn apply<K: FlowKey, P: Packet>(p: &mut P, parsed: &Parsed<K>, related: &Related<K>, entry: &FlowEntry) -> Option<()> {
    let changed = related.quote.rewrite(p, &related.answers, entry)?;
    let at = parsed.l4 + 2;
    p.l4_csum_replace(at, 0, changed, 0)?;

    // A router's own address stays; the flow's other end is rewritten as in its answers.
    let source = entry.flags & F_REWRITE_SRC != 0 && parsed.key.src() == related.answers.src();
    let destination = entry.flags & F_REWRITE_DST != 0;
    let mut addresses = 0;
    if source {
        addresses = nat::address_diff::<K>(&related.answers.src(), &entry.new_src);
    }
    if destination {
        addresses = checksum::add(addresses, nat::address_diff::<K>(&related.answers.dst(), &entry.new_dst));
    }
    if K::V6 {
        p.l4_csum_replace(at, 0, addresses, csum::PSEUDO_HDR | csum::IPV6)?;
    } else {
        p.l3_csum_replace(parsed.l3 + V4_CHECK, 0, addresses, 0)?;
    }
    if source {
        nat::write_end::<K, P>(p, parsed.l3 + nat::source_at::<K>(), &entry.new_src, true)?;
    }
    if destination {
        nat::write_end::<K, P>(p, parsed.l3 + nat::destination_at::<K>(), &entry.new_dst, true)?;
    }
    Some(())
}

#[cfg(test)]
mod tests;
