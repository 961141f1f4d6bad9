//! Node numbers: the names that flow entries use for nodes.
//!
//! Invariant: a number keeps its node as long as the node is in the cluster, also over a restart of the agent, and a freed number is
//! given again only after [`Numbers::settle`], which the caller calls once the rows without it are in the maps and the route
//! generation was raised. Number 0 is this node.

use std::collections::{BTreeMap, BTreeSet};

use osmia_maps::layout::{Addr, Node, maps::MAX_NODES};

use super::{Cluster, cluster::NodeObject};
use crate::compile::address;

/// Which node has which number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    given: BTreeMap<String, u16>,
    /// Numbers that flow entries may still quote.
    unsettled: BTreeSet<u16>,
    /// Numbers of pinned rows that no node has claimed yet, by the address in the row.
    pinned: BTreeMap<Addr, u16>,
}

impl Numbers {
    /// Starts from the rows an earlier agent left.
    #[must_use]
    pub fn recover(rows: &BTreeMap<u16, Node>) -> Self {
        let pinned: BTreeMap<Addr, u16> =
            rows.iter().filter(|(number, _)| **number != 0).map(|(number, row)| (row.tunnel, *number)).collect();
        // Rows that share an address: only one of them can be claimed, none may be given to somebody else.
        Self { unsettled: rows.keys().copied().collect(), pinned, ..Self::default() }
    }

    /// Gives each other node of the cluster a number and takes those of nodes that are gone. Names of nodes that got none, since all
    /// numbers are in use.
    pub fn assign(&mut self, cluster: &Cluster, this: &str) -> Vec<String> {
        let gone = |name: &String| name == this || !cluster.nodes.contains_key(name);
        let freed: Vec<String> = self.given.keys().filter(|name| gone(name)).cloned().collect();
        for name in freed {
            if let Some(number) = self.given.remove(&name) {
                self.unsettled.insert(number);
            }
        }
        let new: Vec<(&String, &NodeObject)> =
            cluster.nodes.iter().filter(|(name, _)| *name != this && !self.given.contains_key(*name)).collect();
        // Those with a pinned row first, so that nobody takes their number.
        let mut rest = Vec::new();
        for (name, node) in new {
            match node.internal_ips.iter().find_map(|ip| self.pinned.remove(&address(*ip))) {
                Some(number) => {
                    self.unsettled.remove(&number);
                    self.given.insert(name.clone(), number);
                }
                None => rest.push(name.clone()),
            }
        }
        let mut taken: BTreeSet<u16> = self.given.values().copied().collect();
        taken.extend(&self.unsettled);
        let mut free = (1..MAX_NODES as u16).filter(|number| !taken.contains(number));
        let mut without = Vec::new();
        for name in rest {
            match free.next() {
                Some(number) => {
                    self.given.insert(name, number);
                }
                None => without.push(name),
            }
        }
        without
    }

    /// The rows of the last assignment are in the maps and the route generation was raised: freed numbers may be given again.
    pub fn settle(&mut self) {
        self.unsettled.clear();
        self.pinned.clear();
    }

    /// The number of a node other than this one.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<u16> {
        self.given.get(name).copied()
    }

    /// Nodes by number.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &str)> {
        self.given.iter().map(|(name, number)| (*number, name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(names: &[(&str, &str)]) -> Cluster {
        let mut cluster = Cluster::default();
        for (name, ip) in names {
            let node = NodeObject { internal_ips: vec![ip.parse().unwrap()], ..NodeObject::default() };
            cluster.nodes.insert((*name).to_owned(), node);
        }
        cluster
    }

    fn row(ip: &str) -> Node {
        Node {
            flags: 1,
            uplink: 2,
            mtu: 1500,
            zero: [0; 6],
            tunnel: address(ip.parse().unwrap()),
            next_hop4: Addr::NONE,
            next_hop6: Addr::NONE,
            next_hop_tunnel: Addr::NONE,
            outer: [0; 72],
        }
    }

    #[test]
    fn a_node_keeps_its_number_while_others_come_and_go() {
        let mut numbers = Numbers::default();
        numbers.assign(&cluster(&[("me", "10.0.0.1"), ("b", "10.0.0.2")]), "me");
        let b = numbers.of("b").unwrap();
        numbers.assign(&cluster(&[("me", "10.0.0.1"), ("a", "10.0.0.3"), ("b", "10.0.0.2")]), "me");
        assert_eq!(numbers.of("b"), Some(b));
        assert_ne!(numbers.of("a"), Some(b));
        assert_eq!(numbers.of("me"), None, "number 0 is this node");
    }

    #[test]
    fn a_freed_number_rests_until_it_is_settled() {
        let mut numbers = Numbers::default();
        numbers.assign(&cluster(&[("a", "10.0.0.2")]), "me");
        let a = numbers.of("a").unwrap();
        numbers.assign(&cluster(&[("b", "10.0.0.3")]), "me");
        let b = numbers.of("b").unwrap();
        assert_ne!(a, b);
        numbers.settle();
        numbers.assign(&cluster(&[("b", "10.0.0.3"), ("c", "10.0.0.4")]), "me");
        assert_eq!(numbers.of("c"), Some(a));
    }

    #[test]
    fn a_restart_finds_the_numbers_again_by_address() {
        let rows = BTreeMap::from([(7, row("10.0.0.2")), (1, row("10.0.0.9"))]);
        let mut numbers = Numbers::recover(&rows);
        numbers.assign(&cluster(&[("b", "10.0.0.2"), ("a", "10.0.0.3")]), "me");
        assert_eq!(numbers.of("b"), Some(7));
        assert_eq!(numbers.of("a"), Some(2), "1 still stands in flows of a node that is gone");
        numbers.settle();
        numbers.assign(&cluster(&[("b", "10.0.0.2"), ("a", "10.0.0.3"), ("c", "10.0.0.4")]), "me");
        assert_eq!(numbers.of("c"), Some(1));
    }

    #[test]
    fn a_full_table_names_who_got_none() {
        let mut full = Cluster::default();
        for i in 0..MAX_NODES {
            full.nodes.insert(format!("n{i:05}"), NodeObject::default());
        }
        let mut numbers = Numbers::default();
        assert_eq!(numbers.assign(&full, "me"), ["n08191"]);
        full.nodes.remove("n00000");
        assert_eq!(numbers.assign(&full, "me"), ["n08191"], "its number is not settled yet");
        numbers.settle();
        assert!(numbers.assign(&full, "me").is_empty());
    }
}
