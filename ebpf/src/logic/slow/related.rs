//! ICMP errors: they pass where the flow that they quote passes.

use super::{Run, Slow};
use crate::layout::DropReason;
use crate::logic::arrival::Kind;
use crate::logic::flow::{decide, life};
use crate::logic::parse::Parsed;
use crate::logic::stage::Stage;
use crate::logic::tables::{Entry, FlowRef, Tables};
use crate::logic::{Packet, Verdict, icmp_error};

impl<P: Packet, T: Tables> Run<'_, P, T> {
    /// Rewrites an error as the flow that it quotes, and puts the entry of its direction into the scratch. It neither opens a flow nor
    /// keeps one alive.
    #[inline(always)]
    pub(in crate::logic) fn related<K: Slow>(&mut self) -> Verdict {
        let parsed = *K::parsed(self.scratch);
        match self.follow(&parsed) {
            Ok(()) => Verdict::jump(K::stage(Stage::Leave4, Stage::Leave6)),
            Err(reason) => self.end(Verdict::drop(reason)),
        }
    }

    #[inline(always)]
    fn follow<K: Slow>(&mut self, parsed: &Parsed<K>) -> Result<(), DropReason> {
        let via = self.scratch.via;
        if via.kind() == Kind::Pod {
            let slot = self.tables.slot_by_ifindex(via.hook).ok_or(DropReason::UnknownLink)?;
            let endpoint = self.tables.endpoint(slot).ok_or(DropReason::UnknownLink)?;
            decide::guard(endpoint, &parsed.key.src(), K::V6)?;
        }
        let related = icmp_error::parse(self.packet, parsed)?;
        let (entry, _) = icmp_error::find(self.tables, &related, via.zone())?;
        let proto = related.answers.proto();
        let living = entry.get(|e| e.hook) == via.hook
            && life::is_current(self.tables, entry)
            && !life::is_expired(entry, proto, self.now, self.tables.ticks_per_second())
            && self.is_from_its_node(entry);
        if !living {
            return Err(DropReason::IcmpNoFlow);
        }
        entry.copy(&mut self.scratch.reverse);
        self.scratch.opener = 0;
        self.scratch.rewritten = 1;
        icmp_error::rewrite(self.packet, self.tables, parsed, &related, &self.scratch.reverse)
    }
}
