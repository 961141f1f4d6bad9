//! Lookup, state and counters of a flow.

use super::super::parse::{ACK, FIN, RST, SYN, TCP};
use super::super::tables::Table;
use super::super::{FlowKey, FlowRef, Tables};
use super::timeout;
use crate::layout::FlowEntry;
use crate::layout::flow::{
    EPOCH_DENIED, F_NODE_SOCKET, F_OPENER, F_REPLIED, T_ESTABLISHED, T_FIN, T_FIN_PEER, T_RST, T_SYN, T_SYN_ACK,
};

/// An entry and the table it is in.
#[derive(Clone, Copy)]
pub struct Found<F> {
    /// The entry in place.
    pub entry: F,
    /// Its table.
    pub table: Table,
}

/// Looks a direction up: established first but for what opens.
#[inline(always)]
pub fn find<K: FlowKey, T: Tables>(tables: &T, key: &K, opens: bool) -> Option<Found<T::Flow>> {
    let (first, second) =
        if opens { (Table::Probation, Table::Established) } else { (Table::Established, Table::Probation) };
    if let Some(entry) = key.find(tables, first) {
        return Some(Found { entry, table: first });
    }
    key.find(tables, second).map(|entry| Found { entry, table: second })
}

/// Whether the packet opens a TCP connection.
#[inline(always)]
#[must_use]
pub const fn opens(proto: u8, tcp: u8) -> bool {
    proto == TCP && tcp & (SYN | ACK) == SYN
}

/// Whether an entry is idle for too long.
#[inline(always)]
pub fn is_expired<F: FlowRef>(entry: F, proto: u8, now: u32, ticks_per_second: u32) -> bool {
    let (last, flags, tcp) = entry.get(|e| (e.last_seen, e.flags, e.tcp));
    last != now && timeout::expired(now, last, timeout::seconds(proto, flags, tcp), ticks_per_second)
}

/// Whether an entry was decided under today's epochs. The route generation is the epoch of slot 0, so of every end that is not a pod of this
/// node; between two pods of this node nothing depends on routes.
#[inline(always)]
pub fn is_current<F: FlowRef, T: Tables>(tables: &T, entry: F) -> bool {
    tables.epoch(entry.get(|e| e.src_slot)) == entry.get(|e| e.src_epoch)
        && tables.epoch(entry.get(|e| e.dst_slot)) == entry.get(|e| e.dst_epoch)
}

/// Counts a packet.
#[inline(always)]
pub fn touch<F: FlowRef>(entry: F, length: u32, now: u32) {
    entry.set(|e| {
        e.packets = e.packets.wrapping_add(1);
        e.bytes = e.bytes.wrapping_add(length as u64);
        if e.last_seen != now {
            e.last_seen = now;
        }
    });
}

/// Whether a SYN finds a connection that is ending, or that policy has ended: it opens a new one, its sender's.
#[inline(always)]
pub fn is_closing(entry: &FlowEntry) -> bool {
    entry.tcp & (T_RST | T_FIN | T_FIN_PEER) != 0 || entry.src_epoch == EPOCH_DENIED
}

/// Marks a direction of a flow that policy allows no more. It keeps its place, so that a packet of either end is still one of this flow and
/// judged by its opener's tuple, and ages, so that it ends as an idle one does.
#[inline(always)]
pub fn deny<F: FlowRef>(entry: F) {
    entry.set(|e| e.src_epoch = EPOCH_DENIED);
}

/// Whether an entry is of what a socket of this node has opened, in its opener's direction: nothing else may ride it.
#[inline(always)]
pub fn is_node_sockets(flags: u8) -> bool {
    flags & (F_NODE_SOCKET | F_OPENER) == F_NODE_SOCKET | F_OPENER
}

/// State that a packet adds to its own and to the opposite direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// `T_*` to add to the packet's direction.
    pub tcp: u8,
    /// `T_*` to add to the opposite one.
    pub opposite_tcp: u8,
    /// The first packet against the opener's direction.
    pub replied: bool,
}

impl Change {
    /// Whether anything changes in an entry with these bits.
    #[inline(always)]
    #[must_use]
    pub const fn is_new(&self, tcp: u8) -> bool {
        self.replied || self.tcp & !tcp != 0
    }
}

/// Whether a plain packet (no SYN, FIN or RST) may change the state of this direction.
#[inline(always)]
#[must_use]
pub const fn learns(entry: &FlowEntry, proto: u8) -> bool {
    entry.flags & F_REPLIED == 0 || (proto == TCP && entry.tcp & T_ESTABLISHED == 0)
}

/// Writes a change into both directions: `entry` is the packet's.
#[inline(always)]
pub fn apply<F: FlowRef>(entry: F, opposite: F, change: &Change, now: u32) {
    let replied = if change.replied { F_REPLIED } else { 0 };
    entry.set(|e| {
        e.tcp |= change.tcp;
        e.flags |= replied;
    });
    opposite.set(|e| {
        e.tcp |= change.opposite_tcp;
        e.flags |= replied;
    });
    if change.replied {
        opposite.set(|e| e.replied = now);
    }
}

/// What a packet with these TCP flags means to a flow of which `entry` is its direction.
///
/// A connection counts as established when its opener sends an ACK after an answer; that is so for one that was open before we saw it,
/// too. RST and FIN only shorten its time.
#[inline(always)]
#[must_use]
pub fn change(entry: &FlowEntry, proto: u8, flags: u8) -> Change {
    let opener = entry.flags & F_OPENER != 0;
    let mut change = Change { replied: !opener && entry.flags & F_REPLIED == 0, ..Change::default() };
    if proto != TCP {
        return change;
    }
    if flags & RST != 0 {
        change.tcp = T_RST;
        change.opposite_tcp = T_RST;
        return change;
    }
    let mut both = 0;
    if flags & SYN != 0 {
        both |= if flags & ACK != 0 { T_SYN_ACK } else { T_SYN };
    } else if flags & ACK != 0 && opener && entry.flags & F_REPLIED != 0 {
        both |= T_ESTABLISHED;
    }
    change.tcp = both;
    change.opposite_tcp = both;
    if flags & FIN != 0 {
        change.tcp |= T_FIN;
        change.opposite_tcp |= T_FIN_PEER;
    }
    change
}
