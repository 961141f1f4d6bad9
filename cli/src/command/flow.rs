//! `osmia flow`: the entries of the flow tables, an entry a direction.

mod filter;
mod row;

use std::rc::Rc;

use clap::{Args, Subcommand};
use osmia_maps::{
    Access, MapError, Pins,
    decode::{Cell, Context, flow::FlowTuple},
    layout::FlowEntry,
    tables,
};

use self::row::Row;
use super::if_pinned;
use crate::{
    failure::Failure,
    render::{Document, List},
};

#[derive(Subcommand, Debug)]
pub(crate) enum Flow {
    /// Entries of the flow tables, last used first; a flow is two, one a direction
    #[command(after_help = EXAMPLES)]
    List(Options),
}

const EXAMPLES: &str = "\
Filters are all to be met. --src and --dst take a prefix as well, and mean the packet as it arrives, before any rewrite.

Examples:
  osmia flow list --pod 10.1.0.5                 from, to, or rewritten to or from this address
  osmia flow list --dst 10.2.0.0/16 --port 443   towards another node's pods
  osmia flow list --node 3                       sent to node 3 or come from it (its address does as well)
  osmia flow list --state new --limit 20         the last twenty that are on probation
  osmia flow list --action uplink --json         what leaves the cluster

Columns:
  DIR       opener or reply
  IN        where the packets may arrive
  ACTION TO what is done with them
  STALE     an epoch changed since, or policy denied it: the next packet is judged again";

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    filter: filter::Wanted,
    /// No more than so many entries
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Which table an entry is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum State {
    /// In the table that living connections keep
    Established,
    /// On probation
    New,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Established => "established",
            Self::New => "new",
        }
    }
}

/// Reads all four tables, some entries at a time.
pub(super) fn each_entry(pins: &Pins, mut each: impl FnMut(State, FlowTuple, &FlowEntry)) -> Result<(), MapError> {
    macro_rules! read {
        ($($spec:ident $state:ident),+) => { $(
            if let Some(table) = if_pinned(tables::$spec.open(pins, Access::ReadOnly))? {
                table.each_batch(|keys, entries| {
                    keys.iter().zip(entries).for_each(|(key, entry)| each(State::$state, (*key).into(), entry));
                    Ok(())
                })?;
            }
        )+ };
    }
    read!(FLOW4 Established, FLOW6 Established, FLOW4_NEW New, FLOW6_NEW New);
    Ok(())
}

impl Flow {
    pub(super) fn run(&self, pins: &Pins) -> Result<Document, Failure> {
        let Self::List(options) = self;
        let context = Rc::new(Context::read(pins)?);
        let filter = options.filter.filter(&context).map_err(anyhow::Error::msg)?;
        let (mut total, mut rows) = (0_u64, Vec::new());
        each_entry(pins, |state, tuple, entry| {
            total += 1;
            if filter.takes(state, &tuple, entry) {
                rows.push(Row { state, tuple, entry: *entry });
            }
        })?;
        let matched = rows.len();
        row::last_used_first(&mut rows, context.clock.map(|clock| clock.tick()), options.limit);
        let epochs = super::epochs(pins)?;

        let rows: Rc<[Row]> = rows.into();
        let (len, shown, epochs) = (rows.len(), Rc::clone(&rows), Rc::new(epochs));
        let (of, now) = (Rc::clone(&context), Rc::clone(&epochs));
        let list = List::new("flows", len, move |index| Some(rows.get(index)?.record(&of, &now)));
        let document = Document::new(move |_, page| {
            page.table(|| shown.iter().map(|row| row.line(&context, &epochs)))?;
            page.line(format_args!("{len} shown of {matched} that match, {total} entries in the tables"))
        });
        Ok(document.with("total", Cell::Number(total)).with("matched", Cell::Number(matched as u64)).list(list))
    }
}
