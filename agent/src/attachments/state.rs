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
                Line::Boot { id } => foreign = id != boot,
                Line::Put(_) if foreign => folded.other_boot += 1,
                _ if foreign => {}
                Line::Put(record) => {
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
