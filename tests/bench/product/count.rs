//! How much policy a node has in force: by its catalogue, and in rows.

use anyhow::{Context, Result, ensure};
use osmia_lab::Node;
use osmia_maps::catalogue::{self, Catalogue};
use osmia_maps::{Access, MapError, Pins, Table, tables};

use super::Rules;

/// Rows of the policy maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyRows {
    /// Of verdicts.
    pub(crate) verdicts: usize,
    /// Of ranges of addresses.
    pub(crate) ranges: usize,
}

impl PolicyRows {
    /// Counts them.
    pub(crate) fn count(node: &Node) -> Result<Self> {
        let pins = Pins::new(&node.paths.bpffs);
        node.space.run(|| {
            let verdicts = rows(&tables::VERDICTS.open(&pins, Access::ReadOnly)?)?;
            let ranges = rows(&tables::PEER_BLOCKS.open(&pins, Access::ReadOnly)?)?;
            Ok(Self { verdicts, ranges })
        })?
    }
}

/// That a node has all of these.
pub(super) fn check(node: &Node, rules: Rules) -> Result<()> {
    let (policies, ranges) = match rules {
        Rules::One => (1, 0),
        Rules::Policies(count) => (usize::from(count), 0),
        Rules::Ranges(count) => (1, count as usize),
    };
    let catalogue = Catalogue::read(&catalogue::path(&node.paths.run)).context("read the catalogue")?;
    let named = catalogue.policies.len();
    ensure!(named == policies, "{named} policies are in force, of {policies}");
    let rows = PolicyRows::count(node)?;
    // Each has a class and so a head of its own in both directions, and a row for its port.
    ensure!(rows.verdicts >= 4 * policies, "{} rows for {policies} policies", rows.verdicts);
    ensure!(rows.ranges >= ranges, "{} rows for {ranges} ranges", rows.ranges);
    Ok(())
}

fn rows<K: aya::Pod, V: aya::Pod>(table: &Table<K, V>) -> Result<usize, MapError> {
    let mut count = 0;
    table.each_batch(|keys, _| {
        count += keys.len();
        Ok(())
    })?;
    Ok(count)
}
