//! `osmia endpoint`: the pods of this node.

use std::collections::HashMap;

use clap::{Args, Subcommand};
use osmia_maps::{
    Access, MapError, Pins,
    decode::{Cell, Context, Record, endpoint},
    layout::{Endpoint as Row, FlowEntry, endpoint::E_PRESENT, endpoint::E_READY},
    tables,
};

use super::{
    if_pinned,
    names::{self, Names, texts},
    policy::say_stale,
};
use crate::{
    arguments::Common,
    failure::Failure,
    render::{Document, List},
};

#[derive(Subcommand, Debug)]
pub(crate) enum Endpoint {
    /// Slot, pod, device, addresses, policy and flows of each pod
    #[command(after_help = EXAMPLES)]
    List(Options),
}

const EXAMPLES: &str = "\
Examples:
  osmia endpoint list                   the pods of this node
  osmia endpoint list --traffic --json  with packets and bytes, for programs

Columns:
  POD          by the agent's catalogue (--run)
  EGRESS RULES, INGRESS RULES
               rule sets (osmia policy sets); none: not isolated
  ISOLATED     directions in which policies isolate it: only what a rule allows passes
  POLICY       unmanaged: its runtime named no pod, so no policy is asked
               provisional: its Pod has not been told yet and a policy may select it; nothing but this node's own sockets passes
               over_budget: its policies need more rows than there is room for; likewise shut
               changing: its rules are being written; unknown: the catalogue does not know its rule set";

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Packets and bytes as well, summed over the flows that are in the tables now
    #[arg(long)]
    traffic: bool,
}

/// Packets and bytes from and to an endpoint.
#[derive(Clone, Copy, Default)]
struct Traffic {
    sent: (u64, u64),
    received: (u64, u64),
}

impl Endpoint {
    pub(super) fn run(&self, pins: &Pins, common: &Common) -> Result<Document, Failure> {
        let Self::List(options) = self;
        let context = Context::read(pins)?;
        let epochs = super::epochs(pins)?;
        let budgets = if_pinned(tables::BUDGETS.open(pins, Access::ReadOnly))?.map(|table| table.rows()).transpose()?;
        let budgets: HashMap<u32, u64> = budgets.unwrap_or_default().into_iter().collect();
        let traffic = options.traffic.then(|| sum(pins)).transpose()?;
        let present = present(pins)?;
        let names = Names::of_endpoints(pins, common, &context.meta, &present)?;
        let rows = present.into_iter().map(|(slot, row)| {
            let epoch = epochs.get(slot as usize).copied().unwrap_or(0);
            let record = Record::new()
                .with("slot", Cell::Number(slot.into()))
                .with("pod", names.pod_cell(slot))
                .and(endpoint::value(&row, &context))
                .and(names::endpoint_record(&names, slot, &row))
                .with("ready", Cell::Bool(row.flags & E_READY != 0))
                .with("epoch", Cell::Number(epoch.into()))
                // The high half is another budget.
                .with("flows", Cell::Number(budgets.get(&slot).map_or(0, |budget| budget & u64::from(u32::MAX))));
            match &traffic {
                None => record,
                Some(traffic) => record.and(traffic.get(&slot).copied().unwrap_or_default().record()),
            }
        });
        let rows: Vec<Record> = rows.collect();
        let (stale, said) = (texts(names.stale().iter().cloned()), names.stale().to_vec());
        let document = Document::new(move |document, page| {
            for list in &document.lists {
                if list.len() == 0 {
                    page.line("no endpoints")?;
                }
                page.table(|| list.rows())?;
            }
            say_stale(page, &said)
        });
        Ok(document.with("stale", stale).list(List::of("endpoints", rows)))
    }
}

/// Endpoints by slot.
pub(super) fn present(pins: &Pins) -> Result<Vec<(u32, Row)>, MapError> {
    let mut present = Vec::new();
    if let Some(table) = if_pinned(tables::ENDPOINTS.open(pins, Access::ReadOnly))? {
        table.each_batch(|slots, rows| {
            let rows = slots.iter().copied().zip(rows.iter().copied());
            present.extend(rows.filter(|(_, row)| row.flags & E_PRESENT != 0));
            Ok(())
        })?;
    }
    present.sort_unstable_by_key(|(slot, _)| *slot);
    Ok(present)
}

/// Traffic by slot.
fn sum(pins: &Pins) -> Result<HashMap<u32, Traffic>, MapError> {
    let mut traffic: HashMap<u32, Traffic> = HashMap::new();
    let mut add = |entry: &FlowEntry| {
        if entry.src_slot != 0 {
            plus(&mut traffic.entry(entry.src_slot).or_default().sent, entry);
        }
        if entry.dst_slot != 0 {
            plus(&mut traffic.entry(entry.dst_slot).or_default().received, entry);
        }
    };
    super::flow::each_entry(pins, |_, _, entry| add(entry))?;
    Ok(traffic)
}

fn plus((packets, bytes): &mut (u64, u64), entry: &FlowEntry) {
    *packets = packets.saturating_add(entry.packets);
    *bytes = bytes.saturating_add(entry.bytes);
}

impl Traffic {
    fn record(self) -> Record {
        Record::new()
            .with("sent_packets", Cell::Number(self.sent.0))
            .with("sent_bytes", Cell::Size(self.sent.1))
            .with("received_packets", Cell::Number(self.received.0))
            .with("received_bytes", Cell::Size(self.received.1))
    }
}
