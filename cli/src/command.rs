//! The commands: each reads the pins and gives a document.

mod drop;
mod endpoint;
mod explain;
mod flow;
mod map;
mod names;
mod policy;
mod status;

use clap::Subcommand;
use osmia_maps::{Access, MapError, Pins, tables};

use crate::{arguments::Common, failure::Failure, render::Document};

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// What is loaded, how full it is, and what is wrong
    #[command(after_help = status::EXAMPLES)]
    Status,
    /// The maps themselves: sizes, all rows, one row
    #[command(subcommand)]
    Map(map::Map),
    /// The pods of this node
    #[command(subcommand)]
    Endpoint(endpoint::Endpoint),
    /// The flows: who talks to whom, and what is done with the packets
    #[command(subcommand)]
    Flow(flow::Flow),
    /// The NetworkPolicies of this node's pods: in force or not, rules, what they let pass and what they drop
    #[command(subcommand)]
    Policy(policy::Policy),
    /// May a packet pass, and which rule of which NetworkPolicy says so
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::Explain),
    /// What was dropped: reasons with their counts, and the last packets' addresses
    #[command(after_help = drop::EXAMPLES)]
    Drop(drop::Drop),
}

impl Command {
    pub(crate) fn run(&self, common: &Common) -> Result<Document, Failure> {
        let pins = common.pins();
        match self {
            Self::Status => status::run(&pins, common),
            Self::Map(map) => map.run(&pins),
            Self::Endpoint(endpoint) => endpoint.run(&pins, common),
            Self::Flow(flow) => flow.run(&pins),
            Self::Policy(policy) => policy.run(&pins, common),
            Self::Explain(explain) => explain.run(&pins, common),
            Self::Drop(drop) => drop.run(&pins, common),
        }
    }
}

/// `None` where the map is not pinned: an agent that was stopped in its first start leaves such.
fn if_pinned<T>(result: Result<T, MapError>) -> Result<Option<T>, MapError> {
    match result {
        Ok(it) => Ok(Some(it)),
        Err(MapError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The epochs by slot, row 0 the route generation; empty where the map is not pinned.
fn epochs(pins: &Pins) -> Result<Vec<u32>, MapError> {
    let Some(table) = if_pinned(tables::EPOCHS.open(pins, Access::ReadOnly))? else { return Ok(Vec::new()) };
    let mut epochs = vec![0; table.capacity() as usize];
    table.each_batch(|slots, values| {
        for (slot, value) in slots.iter().zip(values) {
            if let Some(epoch) = epochs.get_mut(*slot as usize) {
                *epoch = *value;
            }
        }
        Ok(())
    })?;
    Ok(epochs)
}

/// Rows of every map: in use and at most.
fn sizes(pins: &Pins) -> Result<Vec<map::Size>, MapError> {
    osmia_maps::decode::catalogue::ALL.into_iter().map(|view| map::Size::of(pins, view)).collect()
}
