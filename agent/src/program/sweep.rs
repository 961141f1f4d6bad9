//! Removes flows that are over from the established tables. Nothing waits for it: an entry that has expired is a miss to the programs,
//! whether it is still there or not. Probation tables forget by themselves.
//!
//! A table is looked through before anything is removed, and a flow may be opened anew meanwhile under the same key: it is looked at again
//! right before its removal. What is left between that look and the removal is a packet's time, and [`SLACK`] makes it rare; the flow's next
//! packet is then decided again, as after any miss.

use aya::Pod;
use osmia_ebpf::logic::flow::{promote::payer, timeout};
use osmia_maps::{
    MapError, Table,
    clock::TickClock,
    layout::{FlowEntry, FlowKey4, FlowKey6, flow::F_OPENER},
};

use super::{Dataplane, clock};
use crate::clock::Clock;

/// Seconds that an entry is left alone after it has expired.
const SLACK: u32 = 5;

/// Entries that are looked at again and removed together.
const CHUNK: usize = 64;

/// What [`Dataplane::sweep`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Established flows, each two entries.
    pub flows: u64,
    /// Entries removed.
    pub removed: u64,
}

trait Key: Pod + Ord {
    fn proto(&self) -> u8;
    fn opposite(&self, entry: &FlowEntry) -> Self;
}

macro_rules! key {
    ($key:ty) => {
        impl Key for $key {
            fn proto(&self) -> u8 {
                self.proto
            }

            fn opposite(&self, entry: &FlowEntry) -> Self {
                <$key>::opposite(self, entry)
            }
        }
    };
}
key!(FlowKey4);
key!(FlowKey6);

/// The moment of a sweep.
#[derive(Clone, Copy)]
struct Now {
    tick: u32,
    ticks_per_second: u32,
}

impl Now {
    fn is_over(self, proto: u8, entry: &FlowEntry) -> bool {
        let seconds = timeout::seconds(proto, entry.flags, entry.tcp) + SLACK;
        timeout::expired(self.tick, entry.last_seen, seconds, self.ticks_per_second)
    }
}

impl Dataplane {
    /// One pass over both established tables, in batches; sets each endpoint's count of flows right. The programs only ever raise that
    /// count, and one that they raise during the pass may be lost until the next.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sweep(&self, clock: &dyn Clock) -> Result<Swept, MapError> {
        // The row is our own, so its ticks have a length.
        let Some(ticks) = TickClock::at(&self.meta, clock::nanoseconds(clock.monotonic())) else {
            return Ok(Swept::default());
        };
        let now = Now { tick: ticks.tick(), ticks_per_second: self.ticks_per_second() };
        let mut owned = vec![0; self.tables.budgets.capacity() as usize];
        let mut swept = Swept::default();
        pass(&self.tables.flow4, now, &mut owned, &mut swept)?;
        pass(&self.tables.flow6, now, &mut owned, &mut swept)?;
        for (slot, flows) in (0..).zip(owned) {
            let budget = self.tables.budgets.get(&slot)?.unwrap_or(0);
            if budget as u32 != flows {
                self.tables.budgets.put(&slot, &(budget & !u64::from(u32::MAX) | u64::from(flows)))?;
            }
        }
        Ok(swept)
    }
}

fn pass<K: Key>(table: &Table<K, FlowEntry>, now: Now, owned: &mut [u32], swept: &mut Swept) -> Result<(), MapError> {
    let mut over = Vec::new();
    table.each_batch(|keys, entries| {
        for (key, entry) in keys.iter().zip(entries) {
            if ends(key, entry, now, |key| table.get(key))? {
                over.push(*key);
            } else if entry.flags & F_OPENER != 0 {
                swept.flows += 1;
                if let Some(count) = owned.get_mut(payer(entry) as usize) {
                    *count += 1;
                }
            }
        }
        Ok(())
    })?;
    for keys in over.chunks(CHUNK) {
        let keys = still_over(keys, now, |key| table.get(key))?;
        swept.removed += keys.len() as u64;
        table.remove_all(&keys)?;
    }
    Ok(())
}

/// Whether a flow is over: a direction may be silent for long while the other is not.
fn ends<K: Key>(
    key: &K,
    entry: &FlowEntry,
    now: Now,
    get: impl Fn(&K) -> Result<Option<FlowEntry>, MapError>,
) -> Result<bool, MapError> {
    Ok(now.is_over(key.proto(), entry)
        && get(&key.opposite(entry))?.is_none_or(|opposite| now.is_over(key.proto(), &opposite)))
}

/// Those of the keys whose flow is still over, or half gone.
fn still_over<K: Key>(
    keys: &[K],
    now: Now,
    get: impl Fn(&K) -> Result<Option<FlowEntry>, MapError>,
) -> Result<Vec<K>, MapError> {
    let mut over = Vec::with_capacity(keys.len());
    for key in keys {
        if let Some(entry) = get(key)?
            && ends(key, &entry, now, &get)?
        {
            over.push(*key);
        }
    }
    Ok(over)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_flow_that_was_opened_anew_meanwhile_stays() {
        let now = Now { tick: 1_000_000, ticks_per_second: 100 };
        let key = |port: u16| FlowKey4 {
            src: [10, 0, 0, 1],
            dst: [10, 0, 0, 2],
            sport: port.to_be_bytes(),
            proto: 17,
            ..FlowKey4::default()
        };
        let old = FlowEntry { last_seen: 1, ..FlowEntry::default() };
        // Newer than the sweep's own moment.
        let new = FlowEntry { last_seen: now.tick + 3, ..old };
        let mut table = BTreeMap::new();
        for (port, forward, back) in [(1, old, old), (2, new, new), (3, old, new), (4, new, old)] {
            table.insert(key(port), forward);
            table.insert(key(port).opposite(&forward), back);
        }
        let all: Vec<FlowKey4> = table.keys().copied().chain([key(5)]).collect();
        let over = still_over(&all, now, |key| Ok(table.get(key).copied())).unwrap();
        let mut wanted = [key(1), key(1).opposite(&old)];
        wanted.sort_unstable();
        assert_eq!(over, wanted);
    }
}
