//! `osmia drop`: what was dropped.

use std::collections::BTreeMap;

use clap::Args;
use osmia_maps::{
    Access, MapError, Pins,
    decode::{Cell, Context, Record, drops},
    layout::{DropKey, DropReason, DropRow},
    tables,
};

use super::{
    if_pinned,
    names::{Names, policies_cell, reason_policies, reason_text, texts},
    policy::{Named, say_stale},
};
use crate::{
    arguments::Common,
    failure::Failure,
    render::{Document, List},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  osmia drop                               reasons by packets, and the last flows with drops, newest first
  osmia drop --reason NO_ROUTE --watch     one of them, every two seconds, while the packets go on
  osmia drop --policy shop/db              what a NetworkPolicy keeps out: the last flows of which no rule allowed
  osmia drop --all --json                  every reason there is, for programs

Columns:
  BYTES        from the IP header on
  DEVICE       where the packet was dropped: a pod's link, an uplink, the door
  FIRST, LAST  ages of the first and the last such packet
  POLICY       of POLICY_EGRESS and POLICY_INGRESS: the NetworkPolicies that isolate the pod, none of whose rules allowed the packet;
               osmia explain tells which rule was nearest
Counters begin with the first start of an agent after a boot. What each reason means and what to do: docs/drop-reasons.md.";

#[derive(Args, Debug)]
pub(crate) struct Drop {
    /// Only this reason, such as POLICY_INGRESS
    #[arg(long, value_parser = reason)]
    reason: Option<DropReason>,
    /// Only what this NetworkPolicy kept out, alone or together with others
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with = "reason")]
    policy: Option<Named>,
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

/// A kept row: the flow and its drops.
type Row = (DropKey, DropRow);

impl Drop {
    pub(super) fn run(&self, pins: &Pins, common: &Common) -> Result<Document, Failure> {
        let context = Context::read(pins)?;
        let reasons = if self.policy.is_none() { self.reasons(pins)? } else { Vec::new() };
        let rows = self.kept(pins)?;
        let names = Names::read(common, &context.meta);
        let mut rows: Vec<Row> = rows.into_iter().filter(|(key, _)| self.is_of_policy(key, &names)).collect();
        let policies = by_policy(&rows, &names);
        let known = rows.len();
        self.last(&mut rows, &context);
        let none = reasons.is_empty() && rows.is_empty();
        // Names matter where policies dropped something; else it is nothing to a reader that there are none.
        let doubtful = self.policy.is_some() || !policies.is_empty();
        let stale: Vec<String> = names.stale().to_vec();
        let rows: Vec<Record> = rows.iter().map(|row| record(row, &context, &names)).collect();
        let shown = rows.len();
        let said = stale.clone();
        let document = Document::new(move |document, page| {
            if doubtful {
                say_stale(page, &said)?;
            }
            if none {
                return page.line("nothing was dropped");
            }
            for list in document.lists.iter().filter(|list| list.len() > 0) {
                // The text of POLICY names them.
                page.table(|| list.rows().map(|row| row.without("isolated_by")))?;
                page.line("")?;
            }
            page.line(format_args!("the last {shown} of {known} flows with drops; FIRST and LAST are ages"))
        });
        let lists = [("reasons", reasons), ("policies", policies), ("rows", rows)];
        let document = document.with("stale", texts(stale));
        Ok(lists.into_iter().fold(document, |document, (name, rows)| document.list(List::of(name, rows))))
    }

    fn is_of_policy(&self, key: &DropKey, names: &Names) -> bool {
        self.policy.as_ref().is_none_or(|named| {
            let policies = names.reason(key.cookie).map(reason_policies).unwrap_or_default();
            is_policy(key) && policies.iter().any(|policy| named.is(policy))
        })
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

    /// The rows that are kept.
    fn kept(&self, pins: &Pins) -> Result<Vec<Row>, MapError> {
        let mut rows: Vec<Row> = Vec::new();
        if let Some(table) = if_pinned(tables::DROP_ROWS.open(pins, Access::ReadOnly))? {
            table.each_batch(|keys, values| {
                let pairs = keys.iter().copied().zip(values.iter().copied());
                rows.extend(pairs.filter(|(key, _)| self.reason.is_none_or(|reason| key.reason == reason as u8)));
                Ok(())
            })?;
        }
        Ok(rows)
    }

    /// The rows with the latest drops alone.
    fn last(&self, rows: &mut Vec<Row>, context: &Context) {
        // A tick of the moment may lie a little ahead of our reading of the clock.
        let ahead = context.clock.map_or(0, |clock| clock.tick()).wrapping_add(1 << 16);
        rows.sort_unstable_by_key(|(key, row)| (ahead.wrapping_sub(row.last), *key));
        rows.truncate(self.limit);
    }
}

fn is_policy(key: &DropKey) -> bool {
    [DropReason::PolicyEgress, DropReason::PolicyIngress].into_iter().any(|reason| key.reason == reason as u8)
}

/// What isolates by the row's cookie, in words and by name; nothing for other reasons.
fn isolation(key: &DropKey, names: &Names) -> Record {
    let reason = is_policy(key).then(|| names.reason(key.cookie)).flatten();
    let text = match reason {
        Some(reason) => Cell::Text(reason_text(reason).into()),
        None if is_policy(key) => Cell::Text(names.cookie_text(key.cookie).into()),
        None => Cell::Absent,
    };
    Record::new()
        .with("policy", text)
        .with("isolated_by", reason.map_or(Cell::List(Vec::new()), |reason| policies_cell(reason_policies(reason))))
}

fn record((key, row): &Row, context: &Context, names: &Names) -> Record {
    drops::key(key, context).and(drops::value(row, context)).and(isolation(key, names))
}

/// The rows that policies dropped, by what isolates; most packets first.
fn by_policy(rows: &[Row], names: &Names) -> Vec<Record> {
    let mut sums: BTreeMap<(u8, u32), (u64, u64, &DropKey)> = BTreeMap::new();
    for (key, row) in rows.iter().filter(|(key, _)| is_policy(key)) {
        let sum = sums.entry((key.reason, key.cookie)).or_insert((0, 0, key));
        sum.0 = sum.0.saturating_add(row.packets);
        sum.1 += 1;
    }
    let mut sums: Vec<_> = sums.into_values().collect();
    sums.sort_by_key(|(packets, _, key)| (std::cmp::Reverse(*packets), key.reason, key.cookie));
    let record = |(packets, flows, key): (u64, u64, &DropKey)| {
        Record::new()
            .with("reason", drops::reason_cell(key.reason))
            .with("packets", Cell::Number(packets))
            .with("flows", Cell::Number(flows))
            .with("cookie", Cell::nonzero(key.cookie))
            .and(isolation(key, names))
    };
    sums.into_iter().map(record).collect()
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
