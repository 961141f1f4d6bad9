//! The kernel's maps and the programs' lookups, by the plainest means.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use osmia_maps::layout::{
    Asked, VerdictKey, VerdictRow,
    policy::{OPEN, PROTO_BITS, V_ALLOW, narrower},
};
use proptest::test_runner::TestCaseError;

use super::super::*;

/// A single write.
#[derive(Clone, Debug)]
pub(super) enum Write {
    Verdict(VerdictKey, VerdictRow),
    Rules(u32, Rules),
    Peer(IpAddr, Option<u32>),
    Block(IpNet, Option<u32>),
    Epoch(u32),
    Bury(VerdictKey),
}

/// All writes of a change but those after the barrier, in order.
pub(super) fn writes(change: &Change) -> Vec<Write> {
    let closed = Rules { egress: CLOSED, ingress: CLOSED };
    let mut writes: Vec<Write> = Vec::new();
    writes.extend(change.verdicts.iter().map(|(key, row)| Write::Verdict(*key, *row)));
    writes.extend(change.closing.iter().map(|slot| Write::Rules(*slot, closed)));
    writes.extend(change.peers.iter().map(|(address, class)| Write::Peer(*address, *class)));
    writes.extend(change.blocks.iter().map(|(range, class)| Write::Block(*range, *class)));
    writes.extend(change.endpoints.iter().map(|(slot, rules)| Write::Rules(*slot, *rules)));
    writes.extend(change.epochs.iter().map(|slot| Write::Epoch(*slot)));
    writes
}

/// Those after the barrier.
pub(super) fn burials(change: &Change) -> Vec<Write> {
    change.old_verdicts.iter().map(|key| Write::Bury(*key)).collect()
}

#[derive(Clone, Default, Debug)]
pub(super) struct Maps {
    pinned: Pinned,
    epochs: BTreeMap<u32, u32>,
    /// All rows that ever were.
    ever: BTreeMap<VerdictKey, VerdictRow>,
}

impl Maps {
    /// Writes a change, one write after the other; `look` is asked after each that packets could notice.
    pub(super) fn apply(
        &mut self,
        change: &Change,
        mut look: impl FnMut(&Self, &Write) -> Result<(), TestCaseError>,
    ) -> Result<(), TestCaseError> {
        for write in writes(change).into_iter().chain(burials(change)) {
            self.write(&write);
            look(self, &write)?;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, write: &Write) {
        match write {
            Write::Verdict(key, row) => {
                let before = self.pinned.verdicts.insert(*key, *row);
                assert!(before.is_none(), "{key:?} is written twice");
                let ever = *self.ever.entry(*key).or_insert(*row);
                assert_eq!(ever, *row, "{key:?} meant something else before");
            }
            Write::Rules(slot, rules) => {
                if let Some(row) = self.pinned.rules.get_mut(slot) {
                    *row = *rules;
                }
            }
            Write::Peer(address, class) => set(&mut self.pinned.peers, *address, *class),
            Write::Block(range, class) => set(&mut self.pinned.blocks, *range, *class),
            Write::Epoch(slot) => *self.epochs.entry(*slot).or_default() += 1,
            Write::Bury(key) => {
                assert!(self.pinned.verdicts.remove(key).is_some(), "{key:?} was never written");
            }
        }
    }

    /// An endpoint's row comes.
    pub(super) fn put(&mut self, slot: u32, rules: Rules) {
        self.pinned.rules.insert(slot, rules);
        self.write(&Write::Epoch(slot));
    }

    /// An endpoint's row goes.
    pub(super) fn remove(&mut self, slot: u32) {
        self.pinned.rules.remove(&slot);
        self.write(&Write::Epoch(slot));
    }

    /// Puts and removes rows as the endpoints are.
    pub(super) fn attach(&mut self, policies: &Policies, locals: &BTreeMap<u32, Local>) {
        let gone: Vec<u32> = self.pinned.rules.keys().filter(|slot| !locals.contains_key(slot)).copied().collect();
        gone.into_iter().for_each(|slot| self.remove(slot));
        for slot in locals.keys() {
            if !self.pinned.rules.contains_key(slot) {
                self.put(*slot, policies.rules(*slot));
            }
        }
    }

    pub(super) fn pinned(&self) -> &Pinned {
        &self.pinned
    }

    /// What is not there any more may be written as something else: nobody remembers.
    pub(super) fn forget_the_past(&mut self) {
        self.ever = self.pinned.verdicts.clone();
    }

    pub(super) fn epoch(&self, slot: u32) -> u32 {
        self.epochs.get(&slot).copied().unwrap_or_default()
    }

    pub(super) fn sizes(&self) -> [usize; 4] {
        let Pinned { peers, blocks, rules, verdicts } = &self.pinned;
        [verdicts.len(), peers.len(), blocks.len(), rules.len()]
    }

    /// Whether an endpoint's rules let a packet pass.
    pub(super) fn passes(&self, slot: u32, direction: Direction, peer: IpAddr, protocol: u8, port: u16) -> bool {
        let Some(set) = self.set(slot, direction) else { return false };
        self.verdict(set, self.class(peer), protocol, port)
    }

    /// The rule set of an endpoint; `None`: it has no row, and no packet passes.
    pub(super) fn set(&self, slot: u32, direction: Direction) -> Option<u32> {
        let rules = self.pinned.rules.get(&slot)?;
        Some(match direction {
            Direction::Ingress => rules.ingress,
            Direction::Egress => rules.egress,
        })
    }

    pub(super) fn class(&self, peer: IpAddr) -> u32 {
        self.pinned.peers.get(&peer).copied().unwrap_or_else(|| self.around(peer))
    }

    pub(super) fn verdict(&self, set: u32, class: u32, protocol: u8, port: u16) -> bool {
        if set == OPEN {
            return true;
        }
        let of = |class| self.pinned.verdicts.get(&VerdictKey::head(set, class)).map(|head| (class, head));
        let (class, head) = of(class).or_else(|| of(0)).expect("a set has a head for anybody");
        self.longest(set, class, protocol, port, head).unwrap_or(head).flags & V_ALLOW != 0
    }

    /// In the map IPv4 lies inside IPv6.
    fn around(&self, peer: IpAddr) -> u32 {
        let whole = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let bits = |range: &IpNet| u32::from(range.prefix_len()) + if range.addr().is_ipv4() { 96 } else { 0 };
        let covers = |range: &IpNet| {
            let differ = whole(range.network()).to_bits() ^ whole(peer).to_bits();
            differ.leading_zeros() >= bits(range)
        };
        let around = self.pinned.blocks.iter().filter(|(range, _)| covers(range));
        around.max_by_key(|(range, _)| bits(range)).map_or(0, |(_, class)| *class)
    }

    /// Of the rows of the lengths that the head names; the map may have no other.
    fn longest(&self, set: u32, class: u32, protocol: u8, port: u16, head: &VerdictRow) -> Option<&VerdictRow> {
        (0..=16).rev().find_map(|bits: u32| {
            let mask = u16::MAX.checked_shl(16 - bits).unwrap_or(0);
            let asked = Asked { set, class, part: 0, proto: protocol, port: (port & mask).to_be_bytes() };
            let row = self.pinned.verdicts.get(&VerdictKey { bits: PROTO_BITS + bits, asked })?;
            assert_ne!(head.flags & narrower(PROTO_BITS + bits), 0, "the head does not know of {asked:?}/{bits}");
            Some(row)
        })
    }
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}
