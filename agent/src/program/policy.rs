//! Policy rows into the maps, in the order of [`Change`].
//!
//! Invariant: of an endpoint's row only the two rule sets are written; a slot without a row in use is left alone, since whoever puts the row
//! puts its rule sets with it. What does not fit is refused before anything is written. Where a write fails all the same, the maps hold
//! what a killed agent leaves: the same call again goes on, and so does [`crate::compile::policy::Policies::resume`].

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    hash::Hash,
    net::IpAddr,
};

use aya::Pod;
use ipnet::IpNet;
use osmia_maps::{
    MapError, Table,
    layout::{Addr, Endpoint, RouteKey, VerdictKey, VerdictRow, endpoint::E_PRESENT, maps},
};
use tracing::debug;

use super::{Dataplane, PolicyError};
use crate::compile::{
    self,
    policy::{CLOSED, Change, Pinned, Rules},
};

/// In the time in which one key is asked for so many rows are read in batches, or fewer.
const BATCHED: usize = 16;

/// Rows that nothing points to any more, but that packets under way may still ask.
#[derive(Debug, Default)]
#[must_use = "they fill the map until they are buried"]
pub struct Garbage {
    verdicts: Vec<VerdictKey>,
}

impl From<BTreeSet<VerdictKey>> for Garbage {
    fn from(rows: BTreeSet<VerdictKey>) -> Self {
        Self { verdicts: rows.into_iter().collect() }
    }
}

/// No more rows than these are in the maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AtMost {
    verdicts: usize,
    peers: usize,
    blocks: usize,
}

/// Keys to write and keys to remove of one map.
struct Rows<K> {
    put: Vec<(K, u32)>,
    remove: Vec<K>,
}

impl<K: Pod> Rows<K> {
    fn new<T: Copy>(wanted: &BTreeMap<T, Option<u32>>, key: impl Fn(T) -> K) -> Self {
        let put = wanted.iter().filter_map(|(of, class)| Some((key(*of), (*class)?)));
        let remove = wanted.iter().filter(|(_, class)| class.is_none());
        Self { put: put.collect(), remove: remove.map(|(of, _)| key(*of)).collect() }
    }

    /// One pointer each: in whichever order, nobody is sent where neither the old nor the new rows would. The old first, which makes room.
    fn write(&self, table: &Table<K, u32>) -> Result<(), MapError> {
        table.remove_all(&self.remove)?;
        table.put_all(&self.put)
    }
}

impl Dataplane {
    /// Writes a change, all but the removal of its old rows, for which packets under way have to be waited for ([`super::barrier`]). In force
    /// when this returns.
    ///
    /// # Errors
    /// [`PolicyError::TooMany`] before anything is written; else the map that failed, with the rows before it written.
    pub fn write_policy(&mut self, change: &Change) -> Result<Garbage, PolicyError> {
        let verdicts: Vec<(VerdictKey, VerdictRow)> = change.verdicts.iter().map(|(key, row)| (*key, *row)).collect();
        let peers = Rows::new(&change.peers, compile::address);
        let blocks = Rows::new(&change.blocks, compile::prefix);
        let fits = self.fit(&verdicts, &peers, &blocks)?;

        // Known again when all is written.
        self.policy_rows = None;
        self.tables.verdicts.put_all(&verdicts)?;
        for slot in &change.closing {
            self.put_rules(*slot, Rules { egress: CLOSED, ingress: CLOSED })?;
        }
        peers.write(&self.tables.peers)?;
        blocks.write(&self.tables.peer_blocks)?;
        for (slot, rules) in &change.endpoints {
            self.put_rules(*slot, *rules)?;
        }
        for slot in &change.epochs {
            self.tables.raise(*slot)?;
        }
        self.policy_rows = Some(fits);
        debug!(
            verdicts = verdicts.len(),
            peers = change.peers.len(),
            blocks = change.blocks.len(),
            endpoints = change.endpoints.len(),
            epochs = change.epochs.len(),
            old = change.old_verdicts.len(),
            "policy in force"
        );
        Ok(Garbage { verdicts: change.old_verdicts.iter().copied().collect() })
    }

    /// Removes rows after the barrier; says how many.
    ///
    /// # Errors
    /// The kernel's; what is left is found by the next start.
    pub fn bury_policy(&mut self, garbage: Garbage) -> Result<usize, MapError> {
        let count = garbage.verdicts.len();
        let rows = self.policy_rows.take();
        self.tables.verdicts.remove_all(&garbage.verdicts)?;
        self.policy_rows = rows.map(|rows| AtMost { verdicts: rows.verdicts.saturating_sub(count), ..rows });
        Ok(count)
    }

    /// The policy rows as they are.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pinned_policy(&self) -> Result<Pinned, MapError> {
        let peers = self.tables.peers.rows()?.into_iter();
        let blocks = self.tables.peer_blocks.rows()?.into_iter();
        let present = self.tables.endpoints.rows()?.into_iter().filter(|(_, row)| row.flags & E_PRESENT != 0);
        Ok(Pinned {
            peers: peers.map(|(addr, class)| (IpAddr::from(addr.0).to_canonical(), class)).collect(),
            blocks: blocks.filter_map(|(key, class)| Some((range(&key)?, class))).collect(),
            rules: present.map(|(slot, row)| (slot, rules(&row))).collect(),
            verdicts: self.tables.verdicts.dump()?,
        })
    }

    fn put_rules(&self, slot: u32, wanted: Rules) -> Result<(), MapError> {
        let there = self.tables.endpoints.get(&slot)?.filter(|row| row.flags & E_PRESENT != 0);
        match there {
            Some(row) if rules(&row) != wanted => {
                let row = Endpoint { egress_rules: wanted.egress, ingress_rules: wanted.ingress, ..row };
                self.tables.endpoints.put(&slot, &row)
            }
            _ => Ok(()),
        }
    }

    /// How many rows there will be at most. Keys are looked for only where it could be too many.
    fn fit(
        &self,
        verdicts: &[(VerdictKey, VerdictRow)],
        peers: &Rows<Addr>,
        blocks: &Rows<RouteKey>,
    ) -> Result<AtMost, PolicyError> {
        let known = self.policy_rows;
        Ok(AtMost {
            verdicts: fit(maps::VERDICTS, &self.tables.verdicts, known.map(|rows| rows.verdicts), verdicts, &[])?,
            peers: fit(maps::PEERS, &self.tables.peers, known.map(|rows| rows.peers), &peers.put, &peers.remove)?,
            blocks: fit(
                maps::PEER_BLOCKS,
                &self.tables.peer_blocks,
                known.map(|rows| rows.blocks),
                &blocks.put,
                &blocks.remove,
            )?,
        })
    }
}

/// The keys of a map.
trait Keys<K> {
    fn capacity(&self) -> u32;
    fn has(&self, key: &K) -> Result<bool, MapError>;
    fn all(&self) -> Result<HashSet<K>, MapError>;
}

impl<K: Pod + Eq + Hash, V: Pod> Keys<K> for Table<K, V> {
    fn capacity(&self) -> u32 {
        Table::capacity(self)
    }

    fn has(&self, key: &K) -> Result<bool, MapError> {
        Ok(self.get(key)?.is_some())
    }

    fn all(&self) -> Result<HashSet<K>, MapError> {
        let mut keys = HashSet::new();
        self.each_batch(|rows, _| {
            keys.extend(rows.iter().copied());
            Ok(())
        })?;
        Ok(keys)
    }
}

fn fit<K: Copy + Eq + Hash, V>(
    map: &'static str,
    table: &impl Keys<K>,
    at_most: Option<usize>,
    put: &[(K, V)],
    remove: &[K],
) -> Result<usize, PolicyError> {
    let capacity = table.capacity();
    if let Some(rows) = at_most.map(|rows| rows + put.len()).filter(|rows| *rows <= capacity as usize) {
        return Ok(rows);
    }
    // In a map that is full, as that of peers may be for long, each change comes here: only its own keys are looked for.
    if let Some(rows) = at_most.filter(|rows| BATCHED * (put.len() + remove.len()) <= *rows) {
        let mut rows = rows;
        for key in remove {
            rows = rows.saturating_sub(usize::from(table.has(key)?));
        }
        for (key, _) in put {
            rows += usize::from(!table.has(key)?);
        }
        if rows <= capacity as usize {
            return Ok(rows);
        }
    }
    let mut keys = table.all()?;
    for key in remove {
        keys.remove(key);
    }
    keys.extend(put.iter().map(|(key, _)| *key));
    match keys.len() {
        rows if rows > capacity as usize => Err(PolicyError::TooMany { map, rows, capacity }),
        rows => Ok(rows),
    }
}

fn rules(row: &Endpoint) -> Rules {
    Rules { egress: row.egress_rules, ingress: row.ingress_rules }
}

/// `None`: longer than an address is.
fn range(key: &RouteKey) -> Option<IpNet> {
    let bits = u8::try_from(key.bits).ok()?;
    match (IpAddr::from(key.addr).to_canonical(), bits.checked_sub(96)) {
        (address @ IpAddr::V4(_), Some(bits)) => IpNet::new(address, bits).ok(),
        _ => IpNet::new(IpAddr::from(key.addr), bits).ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A map for 100 rows.
    struct Fake {
        keys: HashSet<u32>,
        /// How often all of them were read.
        reads: Cell<usize>,
    }

    impl Keys<u32> for Fake {
        fn capacity(&self) -> u32 {
            100
        }

        fn has(&self, key: &u32) -> Result<bool, MapError> {
            Ok(self.keys.contains(key))
        }

        fn all(&self) -> Result<HashSet<u32>, MapError> {
            self.reads.set(self.reads.get() + 1);
            Ok(self.keys.clone())
        }
    }

    #[test]
    fn of_a_full_map_not_every_change_reads_all() {
        let map = Fake { keys: (0..100).collect(), reads: Cell::default() };
        let of = |at_most, put: &[(u32, ())], remove: &[u32]| (fit("m", &map, at_most, put, remove), map.reads.get());
        assert!(matches!(of(None, &[(0, ())], &[]), (Ok(100), 1)));
        assert!(matches!(of(Some(100), &[(7, ())], &[]), (Ok(100), 1)), "a row that is there");
        assert!(matches!(of(Some(100), &[(100, ()), (7, ())], &[8, 200]), (Ok(100), 1)), "one comes for one that goes");
        assert!(matches!(of(Some(100), &[(7, ())], &[8]), (Ok(99), 1)));
        // What was thought to be there at most was too much.
        assert!(matches!(of(Some(110), &[(7, ())], &[8]), (Ok(99), 2)));
        let too_many = of(Some(100), &[(100, ())], &[200]);
        assert!(matches!(too_many, (Err(PolicyError::TooMany { rows: 101, .. }), 3)), "{too_many:?}");
    }

    #[test]
    fn a_range_comes_back_from_its_key() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/32", "::/0", "fd00::/64", "2001:db8::1/128"] {
            let net: IpNet = text.parse().unwrap();
            assert_eq!(range(&compile::prefix(net)), Some(net), "{text}");
        }
    }
}
