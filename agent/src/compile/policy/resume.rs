//! A start over the rows that an agent before left, which may have been killed between any two of its writes.
//!
//! Everything is compiled anew; what the catalogue knows under a number keeps it, and what then differs from the pinned rows is the change.
//! Invariants: a number is kept only where the rows it has in the maps are those it would get now; whatever else comes out of it, the
//! [`Change`] is as safe between its writes as any other, measured by the rows as they were found.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use osmia_maps::{
    catalogue::Catalogue,
    layout::{VerdictKey, VerdictRow},
};

use super::{
    CLOSED, CLOSED_COOKIE, Change, Local, Policies, Rules, Touched,
    budget::Budget,
    numbers::Numbers,
    recall::{self, Recall},
    verdicts,
};
use crate::model::Cluster;

/// The rows of the policy maps as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pinned {
    /// Classes of addresses.
    pub peers: BTreeMap<IpAddr, u32>,
    /// Classes of ranges.
    pub blocks: BTreeMap<IpNet, u32>,
    /// Rule sets of the endpoints that are present, by slot.
    pub rules: BTreeMap<u32, Rules>,
    /// Verdicts.
    pub verdicts: BTreeMap<VerdictKey, VerdictRow>,
}

/// What [`Policies::resume`] leads to.
#[derive(Debug)]
pub struct Resumed {
    /// The policies.
    pub policies: Policies,
    /// What has to be written.
    pub change: Change,
    /// Why nothing kept its number: what of the rows the catalogue does not know.
    pub unknown: Option<String>,
}

impl Policies {
    /// Goes on over pinned maps. The first start of all is one over nothing.
    ///
    /// Where the catalogue's last generation never came into force, epochs may be missing that would tell flows of what is in the maps: all
    /// endpoints' are raised. So the caller tells the catalogue of a generation that came into force also where nothing had to be written.
    #[must_use]
    pub fn resume(catalogue: &Catalogue, pinned: &Pinned, cluster: &Cluster, locals: &BTreeMap<u32, Local>) -> Resumed {
        Self::resume_within(Budget::default(), catalogue, pinned, cluster, locals)
    }

    pub(super) fn resume_within(
        budget: Budget,
        catalogue: &Catalogue,
        pinned: &Pinned,
        cluster: &Cluster,
        locals: &BTreeMap<u32, Local>,
    ) -> Resumed {
        let build = |recall: Recall| {
            let mut policies = Self { budget, ..Self::recalling(recall, catalogue, pinned) };
            let all = cluster.pods.keys().cloned().map(Touched::Pod);
            let endpoints = locals.iter().map(|(slot, local)| Touched::Endpoint(*slot, Some(local.clone())));
            let rows = policies.update(cluster, all.chain(endpoints)).verdicts;
            (policies, rows)
        };
        let (recall, unknown) = match Recall::of(catalogue, pinned, locals, &BTreeSet::new()) {
            Ok(recall) => (recall, None),
            Err(why) => (Recall::default(), Some(why)),
        };
        let (mut policies, mut rows) = build(recall);
        let wrong = policies.contradicted(catalogue, pinned, &rows);
        if !wrong.is_empty() {
            (policies, rows) = build(Recall::of(catalogue, pinned, locals, &wrong).unwrap_or_default());
        }
        policies.forget_recalled(catalogue);
        rows.extend([verdicts::closed(CLOSED, CLOSED_COOKIE)]);
        let in_force = catalogue.in_force.map_or(0, |at| at.generation);
        let known = if unknown.is_some() {
            Known::Nothing
        } else if catalogue.generation == 0 || catalogue.generation != in_force {
            Known::Rows
        } else {
            Known::All
        };
        let change = policies.turn(catalogue, pinned, rows, known);
        Resumed { policies, change, unknown }
    }

    fn recalling(recall: Recall, catalogue: &Catalogue, pinned: &Pinned) -> Self {
        let mut new = Self::default();
        let last = recall::last(catalogue, pinned);
        new.atoms.given = Numbers::after(last.atom);
        new.classes.given = Numbers::after(last.class);
        new.sets.given = Numbers::after(last.set);
        new.sets.cookies.given = Numbers::after(last.cookie);
        new.atoms.recalled = recall.atoms;
        new.classes.recalled = recall.classes;
        new.sets.recalled = recall.recalled;
        new
    }

    /// Numbers that were not asked for are gone.
    fn forget_recalled(&mut self, catalogue: &Catalogue) {
        self.atoms.recalled = BTreeMap::new();
        self.classes.recalled = BTreeMap::new();
        self.sets.recalled = recall::Recalled::default();
        self.atoms.given.told(self.atoms.numbers(), catalogue.atoms.keys());
        self.classes.given.told(self.classes.numbers(), catalogue.classes.keys());
        self.sets.given.told(self.sets.numbers(), catalogue.sets.keys());
        let cookies = self.sets.cookies.all().map(|(number, _)| number).collect();
        self.sets.cookies.given.told(cookies, catalogue.cookies.keys());
    }

    /// Sets whose rows or lines would become others under the same number: an agent that compiles in another way has written them, or
    /// somebody else.
    fn contradicted(
        &self,
        catalogue: &Catalogue,
        pinned: &Pinned,
        rows: &BTreeMap<VerdictKey, VerdictRow>,
    ) -> BTreeSet<u32> {
        let lines = self.sets.numbers().into_iter().filter(|number| {
            let (Some(set), Some(line)) = (self.sets.get(*number), catalogue.sets.get(number)) else { return false };
            set.isolation != line.isolation || set.lines() != line.rules
        });
        let strange = pinned.verdicts.iter().filter(|(key, row)| {
            let kept =
                self.sets.get(key.asked.set).is_some() && (key.asked.class == 0 || self.classes.has(key.asked.class));
            kept && rows.get(*key) != Some(*row)
        });
        lines.chain(strange.map(|(key, _)| key.asked.set)).collect()
    }

    /// From the rows that are there to those wanted.
    fn turn(
        &self,
        catalogue: &Catalogue,
        pinned: &Pinned,
        mut rows: BTreeMap<VerdictKey, VerdictRow>,
        known: Known,
    ) -> Change {
        let mut old_verdicts: BTreeSet<VerdictKey> = pinned.verdicts.keys().copied().collect();
        rows.retain(|key, row| {
            old_verdicts.remove(key);
            pinned.verdicts.get(key) != Some(row)
        });
        let mut change = Change {
            verdicts: rows,
            peers: difference(&pinned.peers, self.classes.addresses()),
            blocks: difference(&pinned.blocks, self.classes.prefixes()),
            old_verdicts,
            ..Change::default()
        };
        let present = || self.locals.keys().filter_map(|slot| Some((*slot, *pinned.rules.get(slot)?)));
        for (slot, before) in present() {
            let rules = self.rules(slot);
            if rules != before {
                change.endpoints.insert(slot, rules);
                change.epochs.insert(slot);
                change.closing.insert(slot);
            }
            if known == Known::Nothing && (rules, before) != (Rules::default(), Rules::default()) {
                change.closing.insert(slot);
            }
            if known != Known::All {
                change.epochs.insert(slot);
            }
        }
        if known != Known::Nothing {
            let before = Before::new(catalogue, pinned);
            let mut told = BTreeSet::new();
            for address in pinned.peers.keys().chain(self.classes.addresses().keys()) {
                if pinned.peers.get(address) != self.classes.of_address(address).as_ref() {
                    let now = match self.classes.of_address(address) {
                        Some(class) => self.classes.signature(class),
                        None => self.blocks.signature(IpNet::from(*address)),
                    };
                    self.tell(address, before.signature(address), &now, &mut told, &mut change);
                }
            }
            change.epochs.extend(self.asking(&told));
        }
        change.epochs.retain(|slot| pinned.rules.contains_key(slot));
        change.closing.retain(|slot| pinned.rules.contains_key(slot));
        for slot in &change.closing {
            change.endpoints.insert(*slot, self.rules(*slot));
        }
        change
    }
}

/// What of the maps is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// What they say, and that all flows were told.
    All,
    /// What they say.
    Rows,
    /// Not even that.
    Nothing,
}

fn difference<K: Ord + Copy>(there: &BTreeMap<K, u32>, wanted: &BTreeMap<K, u32>) -> BTreeMap<K, Option<u32>> {
    let other = wanted.iter().filter(|(key, class)| there.get(key) != Some(class));
    let gone = there.keys().filter(|key| !wanted.contains_key(key));
    other.map(|(key, class)| (*key, Some(*class))).chain(gone.map(|key| (*key, None))).collect()
}

/// What the pinned rows say of addresses.
struct Before<'a> {
    catalogue: &'a Catalogue,
    pinned: &'a Pinned,
    /// Lengths of the ranges, longest first; IPv4's in the first row.
    lengths: [Vec<u8>; 2],
}

impl<'a> Before<'a> {
    fn new(catalogue: &'a Catalogue, pinned: &'a Pinned) -> Self {
        let lengths = [false, true].map(|v6| {
            let own = pinned.blocks.keys().filter(|range| matches!(range, IpNet::V6(_)) == v6);
            let lengths: BTreeSet<u8> = own.map(IpNet::prefix_len).collect();
            lengths.into_iter().rev().collect()
        });
        Self { catalogue, pinned, lengths }
    }

    fn signature(&self, address: &IpAddr) -> &'a [(u32, u16)] {
        let around = || {
            let mut ranges = self.lengths[usize::from(address.is_ipv6())].iter().filter_map(|length| {
                let range = IpNet::new(*address, *length).ok()?.trunc();
                self.pinned.blocks.get(&range).copied()
            });
            ranges.next().unwrap_or(0)
        };
        let class = self.pinned.peers.get(address).copied().unwrap_or_else(around);
        self.catalogue.classes.get(&class).map(Vec::as_slice).unwrap_or_default()
    }
}
