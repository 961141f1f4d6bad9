//! The counters, for metrics and status.

use aya::Pod;
use osmia_maps::{
    MapError, Table,
    layout::{DropReason, Stat, drops::DropCount, maps},
};

use super::Dataplane;

/// All counters at one moment, summed over CPUs, since boot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// What was done.
    pub stats: Vec<(Stat, u64)>,
    /// What was dropped.
    pub drops: Vec<(DropReason, DropCount)>,
    /// Rows of the policy maps, by map.
    pub policy_rows: Vec<(&'static str, u64)>,
}

impl Dataplane {
    /// Reads the counters.
    ///
    /// # Errors
    /// The kernel's.
    pub fn snapshot(&self) -> Result<Snapshot, MapError> {
        let (stats, drops) = (self.tables.stats.sums()?, self.tables.drops.sums()?);
        let stat = |&s: &Stat| (s, stats.get(s as usize).copied().unwrap_or(0));
        let reason = |r: DropReason| (r, drops.get(r as usize).copied().unwrap_or_default());
        let policy_rows = vec![
            (maps::PEERS, count(&self.tables.peers)?),
            (maps::PEER_BLOCKS, count(&self.tables.peer_blocks)?),
            (maps::VERDICTS, count(&self.tables.verdicts)?),
        ];
        Ok(Snapshot {
            stats: Stat::ALL.iter().map(stat).collect(),
            drops: DropReason::ALL.map(reason).into(),
            policy_rows,
        })
    }
}

fn count<K: Pod, V: Pod>(table: &Table<K, V>) -> Result<u64, MapError> {
    let mut rows = 0;
    table.each_batch(|keys, _| {
        rows += keys.len() as u64;
        Ok(())
    })?;
    Ok(rows)
}
