//! The kernel's maps and the programs' lookups, by the plainest means.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use proptest::test_runner::TestCaseError;

use super::super::*;

#[derive(Default, Debug)]
pub(super) struct Maps {
    verdicts: BTreeMap<VerdictKey, Verdict>,
    peers: BTreeMap<IpAddr, u32>,
    blocks: BTreeMap<IpNet, u32>,
    endpoints: BTreeMap<u32, Rules>,
}

impl Maps {
    /// Writes a change, one write after the other; `look` is asked after each.
    pub(super) fn apply(
        &mut self,
        change: &Change,
        mut look: impl FnMut(&Self, &str) -> Result<(), TestCaseError>,
    ) -> Result<(), TestCaseError> {
        for (key, verdict) in &change.verdicts {
            assert!(self.verdicts.insert(*key, *verdict).is_none(), "{key:?} is written twice");
        }
        look(self, "after the new verdicts")?;
        for slot in &change.closing {
            self.endpoints.insert(*slot, Rules { egress: CLOSED, ingress: CLOSED });
            look(self, "while shutting endpoints")?;
        }
        for (address, class) in &change.peers {
            set(&mut self.peers, *address, *class);
            look(self, "between two addresses")?;
        }
        for (range, class) in &change.blocks {
            set(&mut self.blocks, *range, *class);
            look(self, "between two ranges")?;
        }
        for (slot, rules) in &change.endpoints {
            set(&mut self.endpoints, *slot, (*rules != Rules::default()).then_some(*rules));
            look(self, "between two endpoints")?;
        }
        for key in &change.old_verdicts {
            assert!(self.verdicts.remove(key).is_some(), "{key:?} was never written");
        }
        look(self, "at the end")
    }

    pub(super) fn sizes(&self) -> [usize; 4] {
        [self.verdicts.len(), self.peers.len(), self.blocks.len(), self.endpoints.len()]
    }

    /// Whether an endpoint's rules let a packet pass.
    pub(super) fn passes(&self, slot: u32, direction: Direction, peer: IpAddr, protocol: u8, port: u16) -> bool {
        let rules = self.endpoints.get(&slot).copied().unwrap_or_default();
        let set = match direction {
            Direction::Ingress => rules.ingress,
            Direction::Egress => rules.egress,
        };
        match set {
            0 => return true,
            CLOSED => return false,
            _ => {}
        }
        let class = self.peers.get(&peer).copied().unwrap_or_else(|| {
            let around = self.blocks.iter().filter(|(range, _)| range.contains(&peer));
            around.max_by_key(|(range, _)| range.prefix_len()).map_or(0, |(_, class)| *class)
        });
        let verdict = self.longest(set, class, protocol, port).or_else(|| self.longest(set, 0, protocol, port));
        let base = || self.verdicts.get(&VerdictKey::Base(set)).expect("a set has a base row");
        verdict.unwrap_or_else(base).allow
    }

    fn longest(&self, set: u32, class: u32, protocol: u8, port: u16) -> Option<&Verdict> {
        let prefixes = (0..=16).rev().map(|bits: u8| {
            let mask = u16::MAX.checked_shl(u32::from(16 - bits)).unwrap_or(0);
            Scope::Ports { protocol, port: port & mask, bits }
        });
        prefixes.chain([Scope::All]).find_map(|scope| self.verdicts.get(&VerdictKey::Pair(set, class, scope)))
    }
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}
