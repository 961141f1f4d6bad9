//! Entries made: for a first packet, and anew for a flow whose grounds have changed or that has lost one of its two.
//!
//! Invariant: a flow that policy denies leaves its entries, marked. Without them the next segment of the end that has not opened it would pass
//! for the first of a flow of its own, by rules that never allowed this one, and the denied end's packets for the answers.

use super::{Run, Slow, Why};
use crate::layout::flow::{F_REPLIED, F_REWRITE_DST, F_REWRITE_SRC};
use crate::layout::{DropReason, Stat};
use crate::logic::flow::life;
use crate::logic::stage::Stage;
use crate::logic::tables::{Entry, Insert, Table, Tables};
use crate::logic::{Packet, Verdict, masquerade};

/// In `Scratch::denied`: what has entries turns out to be nothing of ours.
const NOT_OURS: u32 = 0xff;

impl<P: Packet, T: Tables> Run<'_, P, T> {
    /// Decides. A flow that has entries is ended by the next stage if it is allowed no more.
    #[inline(always)]
    pub(in crate::logic) fn decide(&mut self) -> Verdict {
        let on = if self.scratch.question.v6 != 0 { Stage::Open6 } else { Stage::Open4 };
        let denied = match self.decided() {
            Ok(true) => return Verdict::jump(on),
            Ok(false) => NOT_OURS,
            Err(reason) => reason as u32,
        };
        // A packet that only stands in the way of a flow leaves that alone.
        if self.scratch.why == Why::New as u32 {
            return self.denied(denied);
        }
        self.scratch.denied = denied;
        Verdict::jump(on)
    }

    /// The verdict by a reason, or [`NOT_OURS`].
    #[inline(always)]
    fn denied(&self, reason: u32) -> Verdict {
        self.end(if reason == NOT_OURS { Verdict::NEXT } else { Verdict::drop_kept(reason) })
    }

    /// What becomes of the entries of a flow that is allowed no more. A rewritten one is known by its opener alone, and gives its port back.
    #[inline(always)]
    fn end_flow<K: Slow>(&self, key: &K, other: &K) {
        let denied = self.scratch.denied;
        let policy = denied == DropReason::PolicyEgress as u32 || denied == DropReason::PolicyIngress as u32;
        if !policy || self.scratch.rewrites != 0 {
            return self.remove(key, other);
        }
        let Some(table) = self.scratch.table() else { return };
        if let Some(entry) = key.find(self.tables, table) {
            life::deny(entry);
        }
        if let Some(entry) = other.find(self.tables, table) {
            life::deny(entry);
        }
    }

    /// Removes what there was of a flow.
    #[inline(always)]
    fn remove<K: Slow>(&self, key: &K, other: &K) {
        if let Some(table) = self.scratch.table() {
            key.remove(self.tables, table);
            other.remove(self.tables, table);
        }
    }

    /// Writes both entries.
    #[inline(always)]
    pub(in crate::logic) fn open<K: Slow>(&mut self) -> Verdict {
        let key = K::parsed(self.scratch).key;
        let other = *K::other(self.scratch);
        if self.scratch.denied != 0 {
            self.end_flow(&key, &other);
            return self.denied(self.scratch.denied);
        }
        let opener = self.scratch.opener != 0;
        let outside = self.scratch.uplink != 0;
        if outside && self.scratch.loose != 0 {
            // Its ports would be rewritten, and nobody knows them.
            return Verdict::drop(DropReason::FragNoFirst);
        }
        let rewritten = self.scratch.rewrites != 0;
        let why = self.scratch.why;
        let hook = self.scratch.via.hook;
        let keeps = (why == Why::Again as u32 && outside == rewritten)
            || (why == Why::Lost as u32 && !outside && self.scratch.both(opener).0.hook == hook);
        if keeps {
            return self.keep(&key, &other, opener);
        }
        if !opener {
            // The flow goes another way now; this packet may not open one against its direction.
            self.remove(&key, &other);
            return Verdict::drop(DropReason::NoRoute);
        }
        self.remove(&key, &other);
        let now = self.now;
        let parsed = K::parsed(self.scratch);
        let (tcp, length) = (parsed.tcp, parsed.length);
        let (forward, reverse) = self.scratch.both(true);
        let change = life::change(forward, key.proto(), tcp);
        forward.tcp = change.tcp;
        forward.created = now;
        forward.last_seen = now;
        forward.packets = 1;
        forward.bytes = u64::from(length);
        reverse.tcp = change.opposite_tcp;
        reverse.created = now;
        reverse.last_seen = now;
        if outside {
            self.scratch.tries = 0;
            return Verdict::jump(K::stage(Stage::Masquerade4, Stage::Masquerade6));
        }
        // An LRU table takes everything but when it is busy: then this packet passes and the next one decides again.
        let answers = key.opposite(&self.scratch.forward);
        let _ = answers.put(self.tables, &self.scratch.reverse, Table::Probation, Insert::Any);
        self.opened(&key)
    }

    /// Gives the flow an address and a port of the uplink, and writes both entries. A port that is taken is one more round of this stage, of
    /// which a packet has 33.
    #[inline(always)]
    pub(in crate::logic) fn masquerade<K: Slow>(&mut self) -> Verdict {
        let key = K::parsed(self.scratch).key;
        let uplink = self.scratch.uplink;
        // Writes the entry of the replies.
        match masquerade::open(self.packet, self.tables, self.config, self.scratch, &key, uplink, self.now) {
            Ok(true) => self.opened(&key),
            Ok(false) if self.scratch.tries + 1 < masquerade::TRIES => {
                self.scratch.tries += 1;
                Verdict::jump(K::stage(Stage::Masquerade4, Stage::Masquerade6))
            }
            Ok(false) => Verdict::drop(DropReason::MasqPorts),
            Err(reason) => Verdict::drop(reason),
        }
    }

    #[inline(always)]
    fn opened<K: Slow>(&mut self, key: &K) -> Verdict {
        let _ = key.put(self.tables, &self.scratch.forward, Table::Probation, Insert::Any);
        self.tables.count(Stat::FlowOpened);
        Verdict::jump(K::stage(Stage::Leave4, Stage::Leave6))
    }

    /// A living flow under its new decision: rewrites, counters, times and state stay.
    #[inline(always)]
    fn keep<K: Slow>(&mut self, key: &K, other: &K, opener: bool) -> Verdict {
        self.tables.count(Stat::FlowRejudged);
        let rewrites = self.scratch.rewrites as u8;
        if rewrites != 0 {
            let (mine, its) = self.scratch.both(opener);
            mine.flags |= rewrites;
            its.flags |= if rewrites & F_REWRITE_SRC != 0 { F_REWRITE_DST } else { 0 };
            its.flags |= if rewrites & F_REWRITE_DST != 0 { F_REWRITE_SRC } else { 0 };
            // What each direction's rewrites make of its key is the other's key turned round.
            mine.new_src = other.dst();
            mine.new_dst = other.src();
            mine.new_sport = other.dport();
            mine.new_dport = other.sport();
            its.new_src = key.dst();
            its.new_dst = key.src();
            its.new_sport = key.dport();
            its.new_dport = key.sport();
        }
        let table = self.scratch.table().unwrap_or(Table::Probation);
        // A busy direction whose opposite was pushed out has lost its masquerade port to whoever took it since.
        let there = other.find(self.tables, table);
        if there.is_some_and(|entry| other.opposite(&entry.view()) != *key) {
            key.remove(self.tables, table);
            return Verdict::drop(DropReason::MasqPorts);
        }
        self.carry(key, opener, table);
        self.carry(other, !opener, table);
        let (now, length) = (self.now, K::parsed(self.scratch).length);
        let tables = self.tables;
        let (mine, its) = self.scratch.both(opener);
        mine.packets = mine.packets.wrapping_add(1);
        mine.bytes = mine.bytes.wrapping_add(u64::from(length));
        mine.last_seen = now;
        // Refused only where a full table lacks one of the two: the next packet decides again.
        let _ = key.put(tables, mine, table, Insert::Any);
        let _ = other.put(tables, its, table, Insert::Any);
        Verdict::jump(K::stage(Stage::Leave4, Stage::Leave6))
    }

    /// Takes over from the table what a decision does not know: counters, times, state.
    #[inline(always)]
    fn carry<K: Slow>(&mut self, key: &K, opener: bool, table: Table) {
        let (now, old) = (self.now, key.find(self.tables, table));
        let (entry, _) = self.scratch.both(opener);
        let Some(old) = old else {
            entry.created = now;
            entry.last_seen = now;
            return;
        };
        let old = old.view();
        entry.flags |= old.flags & F_REPLIED;
        entry.tcp = old.tcp;
        entry.last_seen = old.last_seen;
        entry.packets = old.packets;
        entry.bytes = old.bytes;
        entry.created = old.created;
        entry.replied = old.replied;
    }
}
