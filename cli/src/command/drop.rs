//! `osmia drop`: what was dropped.

use clap::Args;
use osmia_maps::{
    Access, Pins,
    decode::{Cell, Context, Record, drops},
    layout::{DropKey, DropReason, DropRow},
    tables,
};

use super::if_pinned;
use crate::{
    failure::Failure,
    render::{Document, List},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  osmia drop                               reasons by packets, and the last flows with drops, newest first
  osmia drop --reason NO_ROUTE --watch     one of them, every two seconds, while the packets go on
  osmia drop --all --json                  every reason there is, for programs

Columns:
  BYTES        from the IP header on
  DEVICE       where the packet was dropped: a pod's link, an uplink, the door
  FIRST, LAST  ages of the first and the last such packet
Counters begin with the first start of an agent after a boot. What each reason means and what to do: docs/drop-reasons.md.";

#[derive(Args, Debug)]
pub(crate) struct Drop {
    /// Only this reason, such as POLICY_INGRESS
    #[arg(long, value_parser = reason)]
    reason: Option<DropReason>,
    /// No more than so many of the last packets' flows
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Reasons that never occurred as well
    #[arg(long)]
    all: bool,
}

fn reason(text: &str) -> Result<DropReason, String> {
    let known = DropReason::ALL.into_iter().find(|reason| reason.name().eq_ignore_ascii_case(text));
    known.ok_or_else(|| {
        let names: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

impl Drop {
    pub(super) fn run(&self, pins: &Pins) -> Result<Document, Failure> {
        let context = Context::read(pins)?;
        let reasons: Vec<Record> = self.reasons(pins)?;
        let (rows, known) = self.rows(pins, &context)?;
        let (shown, none) = (rows.len(), reasons.is_empty());
        let document = Document::new(move |document, page| {
            if none {
                return page.line("nothing was dropped");
            }
            for list in &document.lists {
                page.table(|| list.rows())?;
                page.line("")?;
            }
            page.line(format_args!("the last {shown} of {known} flows with drops; FIRST and LAST are ages"))
        });
        Ok(document.list(List::of("reasons", reasons)).list(List::of("rows", rows)))
    }

    fn reasons(&self, pins: &Pins) -> Result<Vec<Record>, Failure> {
        let sums = match if_pinned(tables::DROPS.open(pins, Access::ReadOnly))? {
            Some(table) => table.sums()?,
            None => Vec::new(),
        };
        let counted = (0_u8..).zip(sums).filter(|(number, sum)| {
            let known = DropReason::from_byte(*number);
            let wanted = self.reason.is_none() || known == self.reason;
            wanted && (sum.packets != 0 || self.all && known.is_some())
        });
        let mut counted: Vec<_> = counted.collect();
        counted.sort_by_key(|(number, sum)| (std::cmp::Reverse(sum.packets), *number));
        let record = |(number, sum): (u8, osmia_maps::layout::drops::DropCount)| {
            Record::new()
                .with("reason", drops::reason_cell(number))
                .with("packets", Cell::Number(sum.packets))
                .with("bytes", Cell::Size(sum.bytes))
        };
        Ok(counted.into_iter().map(record).collect())
    }

    /// The rows with the latest drops, and how many there are.
    fn rows(&self, pins: &Pins, context: &Context) -> Result<(Vec<Record>, usize), Failure> {
        let Some(table) = if_pinned(tables::DROP_ROWS.open(pins, Access::ReadOnly))? else {
            return Ok((Vec::new(), 0));
        };
        let mut rows: Vec<(DropKey, DropRow)> = Vec::new();
        table.each_batch(|keys, values| {
            let pairs = keys.iter().copied().zip(values.iter().copied());
            rows.extend(pairs.filter(|(key, _)| self.reason.is_none_or(|reason| key.reason == reason as u8)));
            Ok(())
        })?;
        let known = rows.len();
        // A tick of the moment may lie a little ahead of our reading of the clock.
        let ahead = context.clock.map_or(0, |clock| clock.tick()).wrapping_add(1 << 16);
        rows.sort_unstable_by_key(|(key, row)| (ahead.wrapping_sub(row.last), *key));
        rows.truncate(self.limit);
        let records = rows.iter().map(|(key, row)| drops::key(key, context).and(drops::value(row, context))).collect();
        Ok((records, known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_given_by_name_in_any_case() {
        assert_eq!(reason("policy_ingress"), Ok(DropReason::PolicyIngress));
        assert!(reason("nothing").unwrap_err().contains("TUNNEL_SPOOF"));
    }
}
