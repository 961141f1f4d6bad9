//! Masquerade: what leaves the cluster carries the node's address and a port of the node's own range.
//!
//! Invariant: no two flows and no socket of the node share what a reply is told apart by. A port is claimed by writing the entry of the
//! replies where there is none, which only one CPU can; ports of `Config::masq_min..=masq_max` are nobody else's by configuration
//! (disjoint from ip_local_port_range and NodePorts), and each is asked for at the node's sockets all the same.

use super::flow::life;
use super::parse::{ICMP, ICMPV6, TCP, UDP, query};
use super::tables::{Insert, Table};
use super::{FlowKey, Packet, Scratch, Tables};
use crate::layout::flow::{F_REWRITE_DST, F_REWRITE_SRC};
use crate::layout::{Addr, Config, DropReason, FlowEntry, Stat};

/// Ports that are tried. With half of the range taken towards one destination port, one flow in 65,536 finds none.
pub const TRIES: u32 = 16;

/// Gives the flow that `key` opens an address of `uplink` and a port, and writes the entry of its replies into probation. The scratch
/// holds both entries, filled but for the rewrites. `false`: the port it tried is taken; the caller tries again, [`TRIES`] times.
///
/// One try a call, since a loop over them is walked by the verifier once a try (5.10 refuses it).
///
/// # Errors
/// [`DropReason::MasqSource`]; [`DropReason::MasqPorts`] where there is no choice of ports.
#[inline(always)]
pub fn open<K: FlowKey, P: Packet, T: Tables>(
    p: &mut P,
    t: &T,
    config: &Config,
    scratch: &mut Scratch,
    key: &K,
    uplink: u32,
    now: u32,
) -> Result<bool, DropReason> {
    let (forward, reverse) = (&mut scratch.forward, &mut scratch.reverse);
    let row = t.uplink(uplink).ok_or(DropReason::MasqSource)?;
    let source = if K::V6 { Addr::v6(row.v6) } else { Addr::v4(row.v4) };
    if source == Addr::NONE || source == Addr::v4([0; 4]) {
        return Err(DropReason::MasqSource);
    }
    let identifier = matches!(key.proto(), ICMP | ICMPV6);
    forward.flags |= F_REWRITE_SRC;
    forward.new_src = source;
    reverse.flags |= F_REWRITE_DST;
    reverse.new_dst = key.src();
    reverse.new_dport = key.sport();
    if identifier {
        // Both ports of a key are made of the identifier, so both ends are rewritten; the far one to the address it has.
        forward.flags |= F_REWRITE_DST;
        forward.new_dst = key.dst();
        reverse.flags |= F_REWRITE_SRC;
        reverse.new_src = key.dst();
        reverse.new_sport = key.dport();
    }
    // An answer that nobody asked for is none that could be told from others by an identifier of ours.
    let ports = matches!(key.proto(), TCP | UDP) || (identifier && query::is_asked(key.sport(), key.dport()));
    let least = u32::from(config.masq_min);
    let range = u32::from(config.masq_max).wrapping_sub(least).wrapping_add(1) & 0xffff;
    // Random, so that nobody outside can guess the next one (RFC 6056).
    let port = if ports { ((least + p.random() % range.max(1)) as u16).to_be_bytes() } else { key.sport() };
    forward.new_sport = port;
    if identifier {
        forward.new_dport = if ports { query::after(port) } else { key.dport() };
    }
    let socket = matches!(key.proto(), TCP | UDP);
    let in_use = socket && p.socket_uses(key.proto(), &source, port, &key.dst(), key.dport());
    let replies = key.opposite(forward);
    if !in_use && is_free(t, &replies, now) && claim(t, &replies, reverse, now) {
        t.count(Stat::MasqOpened);
        return Ok(true);
    }
    if ports { Ok(false) } else { Err(DropReason::MasqPorts) }
}

/// Whether no living flow has this key.
#[inline(always)]
fn is_free<K: FlowKey, T: Tables>(t: &T, replies: &K, now: u32) -> bool {
    is_over(t, replies.find(t, Table::Established), replies.proto(), now)
        && is_over(t, replies.find(t, Table::Probation), replies.proto(), now)
}

#[inline(always)]
fn is_over<T: Tables>(t: &T, entry: Option<T::Flow>, proto: u8, now: u32) -> bool {
    entry.is_none_or(|e| life::is_expired(e, proto, now, t.ticks_per_second()))
}

/// Writes the entry of the replies; not over that of a flow which another CPU has claimed it for in between.
#[inline(always)]
fn claim<K: FlowKey, T: Tables>(t: &T, replies: &K, entry: &FlowEntry, now: u32) -> bool {
    // One that is over: it would be found first.
    replies.remove(t, Table::Established);
    if replies.put(t, entry, Table::Probation, Insert::New).is_ok() {
        return true;
    }
    if !is_over(t, replies.find(t, Table::Probation), replies.proto(), now) {
        return false;
    }
    replies.remove(t, Table::Probation);
    replies.put(t, entry, Table::Probation, Insert::New).is_ok()
}

#[cfg(test)]
mod tests;
