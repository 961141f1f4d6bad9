//! The attachments in memory: what the journal's lines add up to.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use super::{
    record::{Line, Phase, Record, Tombstone},
    slots::Slots,
};
use crate::addresses::Addresses;

/// Most DELs that are remembered: more than pods of a node that come and go in the time they are kept.
const MAX_TOMBSTONES: usize = 8192;

/// What the node is to its pods; follows from the model.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its pod ranges.
    pub pod_cidrs: Vec<ipnet::IpNet>,
    /// MTU of pods, bytes.
    pub pod_mtu: u16,
    /// Whether this kernel has IPv6.
    pub ipv6: bool,
}

/// Everything.
pub(super) struct State {
    pub(super) facts: NodeFacts,
    /// By host link name.
    pub(super) records: BTreeMap<String, Record>,
    /// The connection that each unfinished ADD came by.
    pub(super) sessions: HashMap<String, u64>,
    /// By host link name.
    pub(super) tombstones: HashMap<String, Tombstone>,
    pub(super) addresses: Addresses,
    pub(super) slots: Slots,
    /// Addresses that rest, for the journal.
    pub(super) rests: Vec<(IpAddr, Duration)>,
    /// Lines in the journal, so that it is known when to compact it.
    pub(super) lines: usize,
    /// Host links whose device is missing, or devices without a record, and since when.
    pub(super) suspects: HashMap<Suspect, Duration>,
}

/// What the garbage collector keeps an eye on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Suspect {
    /// An attachment whose link is gone.
    Record(String),
    /// A link of ours without an attachment.
    Link(u32, String),
}

/// What a journal's lines add up to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Folded {
    pub(super) records: BTreeMap<String, Record>,
    pub(super) tombstones: HashMap<String, Tombstone>,
    pub(super) rests: Vec<(IpAddr, Duration)>,
    /// Records of an earlier boot.
    pub(super) other_boot: usize,
    /// Whether lines that are appended now would be read as this boot's.
    pub(super) goes_on: bool,
}

impl Folded {
    /// Adds up the lines that are of this boot.
    pub(super) fn new(lines: Vec<Line>, boot: &str) -> Self {
        let mut folded = Self::default();
        // Lines without a boot before them (the first line was damaged) are taken for this boot's: what the kernel does not confirm
        // goes at reconciliation.
        let mut foreign = false;
        for line in lines {
            match line {
                Line::Boot { id } => {
                    foreign = id != boot;
                    folded.goes_on = !foreign;
                }
                Line::Put(_) if foreign => folded.other_boot += 1,
                _ if foreign => {}
                Line::Put(record) => {
                    // What a later promise gives again was given back: the line that said so is lost.
                    folded.records.retain(|_, old| !old.shares(&record));
                    folded.records.insert(record.host_link.clone(), record);
                }
                Line::Commit { host_link, ifindex, pod_mac } => {
                    if let Some(record) = folded.records.get_mut(&host_link) {
                        record.phase = Phase::Added { ifindex };
                        record.pod_mac = pod_mac;
                    }
                }
                Line::Gone { host_link, tombstone, rest } => {
                    folded.records.remove(&host_link);
                    if let Some(tombstone) = tombstone {
                        folded.tombstones.insert(host_link, tombstone);
                    }
                    folded.rests.extend(rest);
                }
            }
        }
        folded
    }
}

impl State {
    /// The shortest journal that says the same.
    pub(super) fn lines(&self, boot: &str) -> Vec<Line> {
        let mut lines = vec![Line::Boot { id: boot.to_owned() }];
        lines.extend(self.records.values().filter(|record| record.key.is_some()).cloned().map(Line::Put));
        lines.extend(self.tombstones.iter().map(|(host_link, tombstone)| Line::Gone {
            host_link: host_link.clone(),
            tombstone: Some(*tombstone),
            rest: Vec::new(),
        }));
        if !self.rests.is_empty() {
            lines.push(Line::Gone { host_link: String::new(), tombstone: None, rest: self.rests.clone() });
        }
        lines
    }

    /// Forgets what is over.
    pub(super) fn expire(&mut self, now: Duration) {
        self.rests.retain(|(_, until)| *until > now);
        self.tombstones.retain(|_, tombstone| tombstone.until > now);
        if self.tombstones.len() > MAX_TOMBSTONES {
            let mut ends: Vec<Duration> = self.tombstones.values().map(|tombstone| tombstone.until).collect();
            ends.sort_unstable();
            let oldest = ends.get(ends.len() - MAX_TOMBSTONES).copied().unwrap_or_default();
            self.tombstones.retain(|_, tombstone| tombstone.until >= oldest);
        }
    }

    /// Takes a record out and gives back what it held.
    pub(super) fn remove(&mut self, host_link: &str, rest_until: Option<Duration>) -> Option<Record> {
        let record = self.records.remove(host_link)?;
        self.sessions.remove(host_link);
        self.suspects.remove(&Suspect::Record(host_link.to_owned()));
        self.slots.give_back(record.slot);
        for ip in &record.addresses {
            match rest_until {
                Some(until) => {
                    self.addresses.release(*ip, until);
                    self.rests.push((*ip, until));
                }
                None => self.addresses.give_back(*ip),
            }
        }
        Some(record)
    }

    /// Links that have a record.
    pub(super) fn known_links(&self) -> HashSet<&str> {
        self.records.keys().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(link: &str, slot: u32, ip: &str) -> Line {
        Line::Put(Record {
            key: None,
            host_link: link.into(),
            network: String::new(),
            netns: String::new(),
            netns_id: (0, 0),
            pod: osmia_cni::protocol::PodRef::default(),
            unknown: false,
            addresses: vec![ip.parse().unwrap()],
            mtu: 1500,
            pod_mac: [0; 6],
            slot,
            started_ns: 0,
            phase: Phase::Adding,
        })
    }

    fn links(lines: Vec<Line>) -> Vec<String> {
        Folded::new(lines, "now").records.into_keys().collect()
    }

    #[test]
    fn a_lost_line_never_leaves_two_owners_of_a_slot_or_an_address() {
        assert_eq!(links(vec![put("a", 3, "10.0.0.3"), put("b", 3, "10.0.0.4")]), ["b"]);
        assert_eq!(links(vec![put("a", 3, "10.0.0.3"), put("b", 4, "10.0.0.3")]), ["b"]);
        assert_eq!(links(vec![put("a", 3, "10.0.0.3"), put("b", 4, "10.0.0.4")]), ["a", "b"]);
    }

    #[test]
    fn lines_are_appended_only_behind_this_boots_own() {
        let goes_on = |lines| Folded::new(lines, "now").goes_on;
        let boot = |id: &str| Line::Boot { id: id.into() };
        assert!(goes_on(vec![boot("now"), put("a", 1, "10.0.0.3")]));
        assert!(goes_on(vec![boot("before"), boot("now")]));
        assert!(!goes_on(vec![boot("before")]), "no attachment of that boot, but its line is the last");
        assert!(!goes_on(vec![]));
    }
}
