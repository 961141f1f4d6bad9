//! The last stage: length, hops, rewrites, and out.

use super::{REWRITES, Run, Slow};
use crate::layout::flow::NO_MTU;
use crate::layout::{DropReason, Stat};
use crate::logic::arrival::Kind;
use crate::logic::parse::Parsed;
use crate::logic::stage::Stage;
use crate::logic::tables::Tables;
use crate::logic::{Packet, Verdict, forward, fragment, nat, time_exceeded, too_big};

impl<P: Packet, T: Tables> Run<'_, P, T> {
    /// Sends the packet the way of its entry in the scratch.
    #[inline(always)]
    pub(in crate::logic) fn leave<K: Slow>(&mut self) -> Verdict {
        let parsed = *K::parsed(self.scratch);
        fragment::remember(self.tables, &parsed, self.now);
        if self.scratch.loose != 0 {
            self.tables.count(Stat::FragmentLoose);
        }
        let entry = self.scratch.mine();
        if self.is_too_big(&parsed) || forward::hops_used_up(&parsed, entry) {
            return Verdict::jump(K::stage(Stage::Refuse4, Stage::Refuse6));
        }
        if self.scratch.rewritten == 0
            && entry.flags & REWRITES != 0
            && nat::rewrite(self.packet, &parsed, entry).is_err()
        {
            return Verdict::drop(DropReason::Rewrite);
        }
        forward::forward(self.packet, self.tables, &parsed, self.scratch.mine(), true)
    }

    #[inline(always)]
    fn is_too_big<K: Slow>(&self, parsed: &Parsed<K>) -> bool {
        let mtu = self.scratch.mine().mtu;
        mtu != NO_MTU && parsed.wire_length(self.packet) > u32::from(mtu)
    }

    /// A packet too large for its way, or with its hops used up, which only a pod's are taken from: who sent it is told.
    #[inline(always)]
    pub(in crate::logic) fn refuse<K: Slow>(&mut self) -> Verdict {
        let parsed = *K::parsed(self.scratch);
        let (slot, mtu) = (self.scratch.mine().src_slot, self.scratch.mine().mtu);
        let slot = if self.scratch.via.kind() == Kind::Pod { slot } else { 0 };
        if self.is_too_big(&parsed) {
            return too_big::answer(self.packet, self.tables, &parsed, slot, mtu, self.now);
        }
        if slot == 0 {
            return Verdict::drop(DropReason::HopLimit);
        }
        time_exceeded::answer(self.packet, self.tables, &parsed, slot, self.now)
    }
}
