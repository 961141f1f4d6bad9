//! The long way: every packet that the fast programs leave over. Headers in full, fragments, ICMP errors, state changes, first packets.
//!
//! Invariant: it gives the right answer for any packet, also for one that the fast program could have sent on; so what the fast program
//! leaves over is a matter of speed alone.
//!
//! In stages ([`super::stage`]): headers → entry (→ decide → open | masquerade) (→ promote) → leave (→ refuse); ICMP errors: headers →
//! related → leave.

mod entry;
mod leave;
mod open;
mod related;

use super::arrival::Via;
use super::flow::decide::{End, Question};
use super::packet::ETH_LEN;
use super::parse::{Parse, Parsed, Part};
use super::route::Way;
use super::stage::Stage;
use super::tables::{Table, Tables};
use super::{Packet, Verdict, fragment};
use crate::layout::flow::{F_REWRITE_DST, F_REWRITE_SRC, ZONE_LOOSE};
use crate::layout::{Addr, Config, DropKey, DropReason, FlowEntry, FlowKey4, FlowKey6};

const REWRITES: u8 = F_REWRITE_SRC | F_REWRITE_DST;

/// Room for what does not fit a BPF stack of 512 bytes, and for what one stage leaves to the next. One a CPU, valid for one packet, contents
/// undefined at its start.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scratch {
    /// Entry of the opener's direction.
    pub forward: FlowEntry,
    /// Entry of the opposite direction.
    pub reverse: FlowEntry,
    /// What the drop row will say, filled as it gets known.
    pub drop: DropKey,
    /// The packet's headers, of its family.
    pub(super) parsed4: Parsed<FlowKey4>,
    /// The packet's headers, of its family.
    pub(super) parsed6: Parsed<FlowKey6>,
    /// The opposite key of the packet's.
    pub(super) other4: FlowKey4,
    /// The opposite key of the packet's.
    pub(super) other6: FlowKey6,
    /// The way in.
    pub via: Via,
    /// What is being decided.
    pub(super) question: Question,
    /// Sender of the flow that is being decided.
    pub(super) from: End,
    /// Its receiver.
    pub(super) to: End,
    /// Who sent the tunnel packet that was just unpacked.
    pub outer: Addr,
    /// Why a flow is decided: a [`Why`].
    pub(super) why: u32,
    /// 1: the packet is of the opener's direction.
    pub(super) opener: u32,
    /// Where entries of the flow are: 0 nowhere, 1 on probation, 2 established.
    pub(super) table: u32,
    /// Rewrites of the packet's own entry, `F_REWRITE_*`.
    pub(super) rewrites: u32,
    /// Uplink whose address the flow leaves the cluster with, 0 for none.
    pub(super) uplink: u32,
    /// Why a flow that has entries is allowed no more: a [`DropReason`], 0 for none.
    pub(super) denied: u32,
    /// 1: the packet's ends are rewritten already.
    pub(super) rewritten: u32,
    /// What becomes of a packet that belongs to no flow: a [`Foreign`].
    pub(super) foreign: u32,
    /// Masquerade ports that were tried and are taken.
    pub(super) tries: u32,
    /// 1: a later fragment without its first, known by its addresses alone.
    pub(super) loose: u32,
}

/// Why a flow is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// First packet.
    New = 0,
    /// It has an entry, of other epochs, or one whose opposite is lost.
    Again = 1,
    /// It has none, but its opposite has one: the flow is that one, and the first entry's direction wins (simultaneous open).
    Lost = 2,
}

/// What becomes of a packet that turns out to be nobody's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Foreign {
    /// The reason that was found; what is not ours goes on to the stack.
    Plain = 0,
    /// It can only be for a pod: dropped.
    Dropped = 1,
    /// It may be the node's own: on to the stack.
    Passed = 2,
}

/// A family with its place in the scratch and its stages.
pub trait Slow: Parse {
    /// The packet's headers.
    fn parsed(scratch: &Scratch) -> &Parsed<Self>;
    /// The packet's headers, to write.
    fn parsed_mut(scratch: &mut Scratch) -> &mut Parsed<Self>;
    /// The opposite key.
    fn other(scratch: &mut Scratch) -> &mut Self;
    /// The stage of this family.
    fn stage(v4: Stage, v6: Stage) -> Stage;
}

impl Slow for FlowKey4 {
    #[inline(always)]
    fn parsed(scratch: &Scratch) -> &Parsed<Self> {
        &scratch.parsed4
    }

    #[inline(always)]
    fn parsed_mut(scratch: &mut Scratch) -> &mut Parsed<Self> {
        &mut scratch.parsed4
    }

    #[inline(always)]
    fn other(scratch: &mut Scratch) -> &mut Self {
        &mut scratch.other4
    }

    #[inline(always)]
    fn stage(v4: Stage, _: Stage) -> Stage {
        v4
    }
}

impl Slow for FlowKey6 {
    #[inline(always)]
    fn parsed(scratch: &Scratch) -> &Parsed<Self> {
        &scratch.parsed6
    }

    #[inline(always)]
    fn parsed_mut(scratch: &mut Scratch) -> &mut Parsed<Self> {
        &mut scratch.parsed6
    }

    #[inline(always)]
    fn other(scratch: &mut Scratch) -> &mut Self {
        &mut scratch.other6
    }

    #[inline(always)]
    fn stage(_: Stage, v6: Stage) -> Stage {
        v6
    }
}

impl Scratch {
    /// Where entries of the flow are.
    #[inline(always)]
    pub(super) fn table(&self) -> Option<Table> {
        match self.table {
            0 => None,
            1 => Some(Table::Probation),
            _ => Some(Table::Established),
        }
    }

    #[inline(always)]
    pub(super) fn set_table(&mut self, table: Option<Table>) {
        self.table = match table {
            None => 0,
            Some(Table::Probation) => 1,
            Some(Table::Established) => 2,
        };
    }

    /// The entry of the packet's direction, and the other one.
    #[inline(always)]
    pub(super) fn both(&mut self, opener: bool) -> (&mut FlowEntry, &mut FlowEntry) {
        let (forward, reverse) = (&mut self.forward, &mut self.reverse);
        if opener { (forward, reverse) } else { (reverse, forward) }
    }

    /// The entry of the packet's direction.
    #[inline(always)]
    pub(super) fn mine(&self) -> &FlowEntry {
        if self.opener != 0 { &self.forward } else { &self.reverse }
    }
}

/// One packet in one stage.
pub struct Run<'a, P, T> {
    /// The packet.
    pub packet: &'a mut P,
    /// The tables.
    pub tables: &'a T,
    /// The running configuration.
    pub config: &'a Config,
    /// What the stage before has left.
    pub scratch: &'a mut Scratch,
    /// Tick.
    pub now: u32,
}

impl<P: Packet, T: Tables> Run<'_, P, T> {
    /// The packet's headers, noted for its drop row as far as they can be read. What the packet before has left there goes first.
    ///
    /// # Errors
    /// The reason to drop it.
    #[inline(always)]
    pub(super) fn headers<K: Slow>(&mut self) -> Result<Parsed<K>, DropReason> {
        self.scratch.drop = DropKey { ifindex: self.packet.ifindex(), ..DropKey::default() };
        let parsed = K::parse(self.packet, ETH_LEN)?;
        self.note(&parsed);
        Ok(parsed)
    }

    /// On with a packet that belongs to a flow, or opens one.
    #[inline(always)]
    pub(super) fn flow<K: Slow>(&mut self, parsed: &Parsed<K>, via: &Via, foreign: Foreign) -> Verdict {
        self.scratch.via = *via;
        self.scratch.foreign = foreign as u32;
        self.scratch.rewritten = 0;
        *K::parsed_mut(self.scratch) = *parsed;
        self.scratch.loose = 0;
        if parsed.part == Part::Later {
            match fragment::recall(self.tables, parsed, self.now) {
                Some(key) => K::parsed_mut(self.scratch).key = key,
                // It may be the node's own.
                None if foreign == Foreign::Passed => return Verdict::NEXT,
                None => self.scratch.loose = 1,
            }
        }
        let loose = if self.scratch.loose != 0 { ZONE_LOOSE } else { 0 };
        let key = &mut K::parsed_mut(self.scratch).key;
        *key = key.in_zone(via.zone() | loose);
        if parsed.is_icmp_error() {
            return Verdict::jump(K::stage(Stage::Related4, Stage::Related6));
        }
        Verdict::jump(K::stage(Stage::Entry4, Stage::Entry6))
    }

    /// What a drop row will say of this packet.
    #[inline(always)]
    fn note<K: Slow>(&mut self, parsed: &Parsed<K>) {
        let key = &parsed.key;
        let drop = &mut self.scratch.drop;
        drop.src = key.src();
        drop.dst = key.dst();
        drop.sport = key.sport();
        drop.dport = key.dport();
        drop.proto = key.proto();
    }

    /// The verdict on a packet that has found no flow.
    #[inline(always)]
    fn end(&self, verdict: Verdict) -> Verdict {
        let foreign = self.scratch.foreign;
        if verdict == Verdict::NEXT && foreign == Foreign::Dropped as u32 {
            return Verdict::drop(DropReason::NoEndpoint);
        }
        if verdict.is_drop(DropReason::IcmpNoFlow) && foreign == Foreign::Passed as u32 {
            return Verdict::NEXT;
        }
        verdict
    }
}

const _: () = {
    // What a stage leaves to the next is copied whole: no byte of it may be nobody's.
    assert!(size_of::<Parsed<FlowKey4>>() == 48);
    assert!(size_of::<Parsed<FlowKey6>>() == 72);
    assert!(size_of::<Via>() == 24);
    assert!(size_of::<Way>() == 32);
    assert!(size_of::<End>() == 48);
};

#[cfg(test)]
mod tests;
