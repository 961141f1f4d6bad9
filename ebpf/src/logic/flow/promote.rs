//! When a flow has proved itself and moves to the established table, where no flood can push it out.
//!
//! * TCP: the opener's fifth packet or later (SYN, ACK, first data, the ACK of the answer, which Linux sends at once at the start of a
//!   connection, and one more) of a connection whose answer it has acknowledged. So a connection of one question and one answer never pays
//!   for the move, a handshake alone never gets in, and what is ending (RST, FIN) never does.
//! * Everything else: an opener's packet 2 s or more after the first reply.
//! * Any direction, of any protocol: 8 packets over 1 s or more (a long one-way stream, a connection picked up in its middle), but no
//!   connection whose SYN was seen and whose handshake is not complete: repeating a SYN is no way in.
//!
//! Invariant: both entries are written to the established table before the two on probation are removed, so that a lookup in between
//! finds one of them. Where the table, or the endpoint's share of it, is full the flow stays on probation and works.

use super::super::parse::TCP;
use super::super::tables::{Insert, Table};
use super::super::{FlowKey, FlowRef, Scratch, Tables};
use crate::layout::flow::{F_HELD, F_OPENER, F_REPLIED, T_ESTABLISHED, T_FIN, T_FIN_PEER, T_RST, T_SYN};
use crate::layout::{Config, FlowEntry, Stat};

/// Packets of a TCP opener before the one that promotes.
const TCP_PACKETS: u64 = 4;
/// Seconds between the first reply and the opener's packet that promotes.
const REPLIED_SECONDS: u32 = 2;
/// Packets of a stream before the one that promotes.
const STREAM_PACKETS: u64 = 7;
/// Seconds that a stream lasts before it is promoted.
const STREAM_SECONDS: u32 = 1;

/// Whether the packet that arrives for `entry`, an entry on probation, before it is counted, promotes its flow.
#[inline(always)]
#[must_use]
pub fn is_due(entry: &FlowEntry, proto: u8, now: u32, ticks_per_second: u32) -> bool {
    if entry.tcp & (T_RST | T_FIN | T_FIN_PEER) != 0 || (entry.flags & F_HELD != 0 && entry.last_seen == now) {
        return false;
    }
    let opening = entry.tcp & (T_SYN | T_ESTABLISHED) == T_SYN;
    if !opening
        && entry.packets >= STREAM_PACKETS
        && now.wrapping_sub(entry.created) >= STREAM_SECONDS * ticks_per_second
    {
        return true;
    }
    if entry.flags & (F_OPENER | F_REPLIED) != F_OPENER | F_REPLIED {
        return false;
    }
    if proto == TCP {
        return entry.tcp & T_ESTABLISHED != 0 && entry.packets >= TCP_PACKETS;
    }
    now.wrapping_sub(entry.replied) >= REPLIED_SECONDS * ticks_per_second
}

/// Moves a flow; `key` and `other` are its two directions, on probation, `key` of the packet's. Both stand in the scratch then.
#[inline(always)]
pub fn promote<K: FlowKey, T: Tables>(tables: &T, config: &Config, scratch: &mut Scratch, key: &K, other: &K) {
    let (Some(entry), Some(opposite)) = (key.find(tables, Table::Probation), other.find(tables, Table::Probation))
    else {
        // Pushed out of the probation table this moment. The next packet writes it again.
        return;
    };
    let (mine, its) = scratch.both(scratch.opener != 0);
    entry.copy(mine);
    opposite.copy(its);
    let slot = payer(mine);
    let used = tables.endpoint_flows(slot);
    if used >= config.endpoint_flows {
        return hold(tables, entry, Stat::FlowEndpointFull);
    }
    mine.flags &= !F_HELD;
    its.flags &= !F_HELD;
    if key.put(tables, mine, Table::Established, Insert::Any).is_err() {
        return hold(tables, entry, Stat::FlowTableFull);
    }
    if other.put(tables, its, Table::Established, Insert::Any).is_err() {
        key.remove(tables, Table::Established);
        return hold(tables, entry, Stat::FlowTableFull);
    }
    key.remove(tables, Table::Probation);
    other.remove(tables, Table::Probation);
    tables.set_endpoint_flows(slot, used.saturating_add(1));
    tables.count(Stat::FlowPromoted);
}

/// Slot of the endpoint whose share a flow counts to: the opener's if it is a pod of this node, else the other end's; 0, the node itself,
/// where neither is (a node's port for a pod of another node): a stranger's flood has one share as well.
#[inline(always)]
#[must_use]
pub fn payer(entry: &FlowEntry) -> u32 {
    let (opener, other) = match entry.flags & F_OPENER {
        0 => (entry.dst_slot, entry.src_slot),
        _ => (entry.src_slot, entry.dst_slot),
    };
    if opener != 0 { opener } else { other }
}

#[inline(always)]
fn hold<T: Tables>(tables: &T, entry: T::Flow, why: Stat) {
    entry.set(|e| e.flags |= F_HELD);
    tables.count(why);
}
