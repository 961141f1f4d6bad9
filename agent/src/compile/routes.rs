//! The route table: whose is a prefix.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use ipnet::IpNet;
use osmia_maps::layout::{Route, RouteKey, route::RouteKind};

use crate::model::{Cluster, Numbers, Settings, Underlay, cluster::NodeObject};

/// All prefixes. Where two claims meet at one prefix the more certain one wins: this node's own before other nodes', addresses before
/// blocks, blocks before ranges; between two nodes the first by name, and that is a problem.
pub(super) fn rows(
    cluster: &Cluster,
    this: &NodeObject,
    underlay: &Underlay,
    settings: &Settings,
    numbers: &Numbers,
    problems: &mut Vec<String>,
) -> BTreeMap<RouteKey, Route> {
    let mut table = Table { rows: BTreeMap::new(), owners: BTreeMap::new(), problems };
    let own_addresses = underlay.local_addresses.iter().chain(&this.internal_ips).filter(|ip| is_reachable(**ip));
    for ip in own_addresses {
        table.claim(IpNet::from(*ip), RouteKind::LocalNode, 0, &settings.node);
    }
    for cidr in &this.pod_cidrs {
        table.claim(*cidr, RouteKind::LocalBlock, 0, &settings.node);
    }
    let mut others: Vec<(&str, u16)> = numbers.iter().map(|(number, name)| (name, number)).collect();
    others.sort_unstable();
    let known = |name: &str| cluster.nodes.get(name);
    for (name, number) in &others {
        for ip in known(name).into_iter().flat_map(|node| &node.internal_ips) {
            table.claim(IpNet::from(*ip), RouteKind::RemoteNode, *number, name);
        }
    }
    for (name, number) in &others {
        for cidr in known(name).into_iter().flat_map(|node| &node.pod_cidrs) {
            table.claim(*cidr, RouteKind::RemoteBlock, *number, name);
        }
    }
    for cidr in &settings.service_cidrs {
        table.range(*cidr, RouteKind::Stack);
    }
    for cidr in &settings.cluster_cidrs {
        table.range(*cidr, RouteKind::Unowned);
    }
    table.rows
}

struct Table<'a> {
    rows: BTreeMap<RouteKey, Route>,
    owners: BTreeMap<RouteKey, &'a str>,
    problems: &'a mut Vec<String>,
}

impl<'a> Table<'a> {
    fn claim(&mut self, prefix: IpNet, kind: RouteKind, node: u16, owner: &'a str) {
        let key = super::prefix(prefix);
        if let Some(first) = self.owners.get(&key) {
            if *first != owner {
                self.problems.push(format!("{prefix} is claimed by node {owner:?} and by {first:?}, who has it"));
            }
            return;
        }
        self.owners.insert(key, owner);
        self.rows.insert(key, Route { kind: kind as u8, zero: 0, node });
    }

    fn range(&mut self, prefix: IpNet, kind: RouteKind) {
        self.rows.entry(super::prefix(prefix)).or_insert(Route { kind: kind as u8, zero: 0, node: 0 });
    }
}

/// Addresses of this node that a pod may reach: not those that are meaningful on one link or inside one namespace only. IPv4
/// link-local ones stay: node-local DNS listens there.
fn is_reachable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(a) => !a.is_loopback() && !a.is_unspecified() && !a.is_multicast() && !a.is_broadcast(),
        IpAddr::V6(a) => {
            !(a.is_loopback() || a == Ipv6Addr::UNSPECIFIED || a.is_multicast() || a.is_unicast_link_local())
        }
    }
}
