//! Lookup, and the state of a flow that is there.

use super::{REWRITES, Run, Slow, Why};
use crate::layout::flow::F_OPENER;
use crate::logic::arrival::Via;
use crate::logic::flow::life::{self, Found};
use crate::logic::flow::promote;
use crate::logic::parse::Parsed;
use crate::logic::stage::Stage;
use crate::logic::tables::{Entry, FlowRef, Table, Tables};
use crate::logic::{Packet, Verdict, encap};

impl<P: Packet, T: Tables> Run<'_, P, T> {
    /// Finds the packet's entry and counts the packet in it, or tells the next stage what to decide.
    #[inline(always)]
    pub(in crate::logic) fn entry<K: Slow>(&mut self) -> Verdict {
        let parsed = *K::parsed(self.scratch);
        let key = &parsed.key;
        let decide = Verdict::jump(Stage::Decide);
        let opens = life::opens(key.proto(), parsed.tcp);
        let Some(found) = life::find(self.tables, key, opens) else {
            self.without(&parsed, opens);
            self.ask::<K>();
            return decide;
        };
        let entry = found.entry;
        let other = key.opposite(&entry.view());
        *K::other(self.scratch) = other;
        let opposite = other.find(self.tables, found.table);
        let ticks = self.tables.ticks_per_second();
        let (hook, flags) = entry.get(|e| (e.hook, e.flags));

        let over = life::is_expired(entry, key.proto(), self.now, ticks)
            && opposite.is_none_or(|o| life::is_expired(o, key.proto(), self.now, ticks));
        let reopened = opens && entry.get(life::is_closing);
        self.scratch.set_table(Some(found.table));
        let forwarded = life::is_node_sockets(flags) && !self.scratch.via.is_node_socket();
        if over || reopened || forwarded || hook != self.scratch.via.hook || !self.is_from_its_node(entry) {
            // In the way of a new flow, which is decided before anything of the old one is touched.
            self.plan(Why::New, true);
            self.ask::<K>();
            return decide;
        }
        self.plan(Why::Again, flags & F_OPENER != 0);
        self.scratch.rewrites = u32::from(flags & REWRITES);
        // Decided again: under other epochs, or where the opposite was pushed out of the probation table while this direction was busy.
        let Some(opposite) = opposite.filter(|_| life::is_current(self.tables, entry)) else {
            if flags & F_OPENER == 0 {
                self.scratch.question.via = Via::of_answers(entry);
            }
            self.ask::<K>();
            return decide;
        };
        let due = self.advance(&parsed, found, opposite);
        entry.copy(if flags & F_OPENER != 0 { &mut self.scratch.forward } else { &mut self.scratch.reverse });
        if due {
            return Verdict::jump(K::stage(Stage::Promote4, Stage::Promote6));
        }
        Verdict::jump(K::stage(Stage::Leave4, Stage::Leave6))
    }

    #[inline(always)]
    fn plan(&mut self, why: Why, opener: bool) {
        self.scratch.why = why as u32;
        self.scratch.opener = u32::from(opener);
        self.scratch.question.via = self.scratch.via;
        self.scratch.denied = 0;
        self.scratch.rewrites = 0;
    }

    /// The question to decide: the opener's key.
    #[inline(always)]
    fn ask<K: Slow>(&mut self) {
        let key = if self.scratch.opener != 0 { K::parsed(self.scratch).key } else { *K::other(self.scratch) };
        let question = &mut self.scratch.question;
        question.src = key.src();
        question.dst = key.dst();
        question.dport = key.dport();
        question.proto = key.proto();
        question.v6 = u8::from(K::V6);
    }

    /// A packet without an entry: new, unless the key turned round has one.
    #[inline(always)]
    fn without<K: Slow>(&mut self, parsed: &Parsed<K>, opens: bool) {
        let other = parsed.key.swapped();
        *K::other(self.scratch) = other;
        self.plan(Why::New, true);
        self.scratch.set_table(None);
        let Some(found) = life::find(self.tables, &other, false) else { return };
        let entry = found.entry;
        let proto = parsed.key.proto();
        if entry.get(|e| e.flags) & REWRITES != 0
            || life::is_expired(entry, proto, self.now, self.tables.ticks_per_second())
            || (opens && entry.get(life::is_closing))
        {
            return;
        }
        let opener = entry.get(|e| e.flags) & F_OPENER == 0;
        self.plan(Why::Lost, opener);
        self.scratch.set_table(Some(found.table));
        if !opener {
            self.scratch.question.via = Via::of_entry(entry);
        }
    }

    /// State and counters of a living flow. Whether it is due for the established table.
    #[inline(always)]
    fn advance<K: Slow>(&mut self, parsed: &Parsed<K>, found: Found<T::Flow>, opposite: T::Flow) -> bool {
        let (entry, proto, now) = (found.entry, parsed.key.proto(), self.now);
        let change = entry.get(|e| life::change(e, proto, parsed.tcp));
        if change.is_new(entry.get(|e| e.tcp)) {
            life::apply(entry, opposite, &change, now);
        }
        let due = found.table == Table::Probation
            && entry.get(|e| promote::is_due(e, proto, now, self.tables.ticks_per_second()));
        life::touch(entry, parsed.length, now);
        due
    }

    /// Moves a flow that is due; the packet goes on whether it was moved or not.
    #[inline(always)]
    pub(in crate::logic) fn promote<K: Slow>(&mut self) -> Verdict {
        let (key, other) = (K::parsed(self.scratch).key, *K::other(self.scratch));
        promote::promote(self.tables, self.config, self.scratch, &key, &other);
        Verdict::jump(K::stage(Stage::Leave4, Stage::Leave6))
    }

    /// Whether a tunnel packet comes from the node that its flow belongs to.
    #[inline(always)]
    pub(super) fn is_from_its_node(&self, entry: T::Flow) -> bool {
        let outer = &self.scratch.via.outer;
        outer.is_none() || encap::still_from(self.tables, entry.get(|e| e.from_node), outer)
    }
}
