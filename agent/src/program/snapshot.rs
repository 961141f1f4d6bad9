//! The counters, for metrics and status.

use osmia_maps::{
    MapError,
    layout::{DropReason, Stat, drops::DropCount},
};

use super::Dataplane;

/// All counters at one moment, summed over CPUs, since boot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// What was done.
    pub stats: Vec<(Stat, u64)>,
    /// What was dropped.
    pub drops: Vec<(DropReason, DropCount)>,
}

impl Dataplane {
    /// Reads the counters: some hundred array rows, however many pods and policies there are.
    ///
    /// # Errors
    /// The kernel's.
    pub fn snapshot(&self) -> Result<Snapshot, MapError> {
        let (stats, drops) = (self.tables.stats.sums()?, self.tables.drops.sums()?);
        let stat = |&s: &Stat| (s, stats.get(s as usize).copied().unwrap_or(0));
        let reason = |r: DropReason| (r, drops.get(r as usize).copied().unwrap_or_default());
        Ok(Snapshot { stats: Stat::ALL.iter().map(stat).collect(), drops: DropReason::ALL.map(reason).into() })
    }
}
