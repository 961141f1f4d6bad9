//! Pure: model → the rows that ought to be in the maps.
//!
//! Invariant: no I/O, no clock, the same model gives the same rows whatever the order of the events that led to it. What contradicts
//! itself is decided the same way on every node and said as a problem, never dropped in silence.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use osmia_maps::layout::{
    Addr, Config, Node, Route, RouteKey, Uplink,
    config::{C_DENY_LINK_LOCAL, C_IPV6, C_STACK_SERVICES},
};

use crate::model::{Cluster, Encap, Exit, Numbers, Settings, Underlay, UplinkState, cluster::NodeObject};

mod nodes;
mod outer;
pub mod policy;
mod routes;

pub use outer::{INNER_DESTINATION, INNER_SOURCE};

/// The one MAC of `osmia0` and of all host-side pod links: the pods' gateway ("osm").
pub const GATEWAY_MAC: [u8; 6] = [0x02, 0x6f, 0x73, 0x6d, 0x00, 0x01];

/// Packet-too-big answers an endpoint gets a second: enough for every path of a busy pod to be learnt in one second.
const TOO_BIG_RATE: u32 = 100;

/// Bytes of one flow in the tables: two established rows and their share of probation, in either family.
const BYTES_A_FLOW: u64 = 1320;

/// MTU where no uplink tells one, bytes: Ethernet's.
const DEFAULT_MTU: u32 = 1500;

/// All rows of the tables that follow from the model. Endpoints are rows of attachments and are written at commit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desired {
    /// The running configuration. `ticks_per_second` is 0 here: who measured it fills it in.
    pub config: Config,
    /// Uplinks by ifindex.
    pub uplinks: BTreeMap<u32, Uplink>,
    /// Other nodes by number.
    pub nodes: BTreeMap<u16, Node>,
    /// Whose is a prefix.
    pub routes: BTreeMap<RouteKey, Route>,
    /// No row: the kernel's routes that flows out of the cluster were decided by. Others make another route generation.
    pub exits: Vec<Exit>,
}

/// The rows and what is wrong with the model they come from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Compiled {
    /// The rows.
    pub desired: Desired,
    /// What an operator should mend, one line each.
    pub problems: Vec<String>,
}

/// Compiles the model.
#[must_use]
pub fn compile(cluster: &Cluster, underlay: &Underlay, settings: &Settings, numbers: &Numbers) -> Compiled {
    let mut problems = Vec::new();
    let absent = NodeObject::default();
    let this = cluster.nodes.get(&settings.node).unwrap_or_else(|| {
        problems.push(format!("no Node object {:?}: this node has no pod ranges and no address", settings.node));
        &absent
    });
    if underlay.uplinks.is_empty() {
        problems.push("no uplink: no device holds a node address or a default route".to_owned());
    }
    let desired = Desired {
        config: config(this, underlay, settings),
        uplinks: underlay.uplinks.iter().map(|(ifindex, state)| (*ifindex, uplink(this, state))).collect(),
        nodes: nodes::rows(cluster, this, underlay, settings, numbers, &mut problems),
        routes: routes::rows(cluster, this, underlay, settings, numbers, &mut problems),
        exits: underlay.exits.clone(),
    };
    Compiled { desired, problems }
}

/// The addresses whose way the underlay has to tell: those of the other nodes.
#[must_use]
pub fn addresses_to_resolve(cluster: &Cluster, this: &str) -> BTreeSet<IpAddr> {
    let others = cluster.nodes.iter().filter(|(name, _)| *name != this);
    others.flat_map(|(_, node)| node.internal_ips.iter().copied()).collect()
}

/// MTU of pods on this node, bytes.
///
/// The smallest uplink's, less the outer header where one may be written. Which header follows from this node's own first address:
/// a node that is reached by the other family has its smaller path MTU in its row.
#[must_use]
pub fn pod_mtu(this: Option<&NodeObject>, underlay: &Underlay, settings: &Settings) -> u16 {
    let smallest = underlay.uplinks.values().map(|uplink| uplink.mtu).min().unwrap_or(DEFAULT_MTU);
    let v6 = this.and_then(|node| node.internal_ips.first()).is_some_and(IpAddr::is_ipv6);
    let overhead = match settings.encap {
        Encap::Native => 0,
        Encap::Vxlan | Encap::Auto => outer::overhead(v6),
    };
    to_mtu(smallest.saturating_sub(overhead))
}

fn config(this: &NodeObject, underlay: &Underlay, settings: &Settings) -> Config {
    let mut flags = 0;
    if underlay.ipv6 {
        flags |= C_IPV6;
    }
    if !settings.service_cidrs.is_empty() {
        flags |= C_STACK_SERVICES;
    }
    if settings.deny_link_local {
        flags |= C_DENY_LINK_LOCAL;
    }
    let (node4, node6) = first_of_each(this.internal_ips.iter().copied());
    let (masq_min, masq_max) = settings.masquerade_ports;
    Config {
        mark: settings.mark,
        flags,
        door_host: underlay.door_host,
        door_pods: underlay.door_pods,
        tunnel_dev: underlay.tunnel_dev,
        vni: settings.vni,
        tunnel_port: settings.tunnel_port.to_be_bytes(),
        pod_mtu: pod_mtu(Some(this), underlay, settings),
        masq_min,
        masq_max,
        gateway_mac: GATEWAY_MAC,
        node4,
        // A quarter of what the tables hold: one busy pod leaves room for the others.
        endpoint_flows: u32::try_from(settings.flow_memory / BYTES_A_FLOW / 4).unwrap_or(u32::MAX).max(256),
        node6,
        too_big_rate: TOO_BIG_RATE,
        ..Config::default()
    }
}

/// Masquerade takes the Node's address where the uplink holds it, else the uplink's first global one.
fn uplink(this: &NodeObject, state: &UplinkState) -> Uplink {
    let held = state.addresses.iter().map(IpNet::addr);
    let preferred = this.internal_ips.iter().copied().filter(|ip| held.clone().any(|held| held == *ip));
    let global = held.clone().filter(|ip| !is_link_local(*ip));
    let (v4, v6) = first_of_each(preferred.chain(global).chain(held.clone().filter(IpAddr::is_ipv4)));
    Uplink { v4, v6, mtu: state.mtu, mac: state.mac, ..Uplink::default() }
}

fn first_of_each(addresses: impl Iterator<Item = IpAddr>) -> ([u8; 4], [u8; 16]) {
    let (mut v4, mut v6) = (None, None);
    for address in addresses {
        match address {
            IpAddr::V4(a) => v4 = v4.or(Some(a.octets())),
            IpAddr::V6(a) => v6 = v6.or(Some(a.octets())),
        }
    }
    (v4.unwrap_or_default(), v6.unwrap_or_default())
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    }
}

fn to_mtu(bytes: u32) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// An address as the tables hold it.
#[must_use]
pub fn address(ip: IpAddr) -> Addr {
    match ip {
        IpAddr::V4(a) => Addr::v4(a.octets()),
        IpAddr::V6(a) => Addr::v6(a.octets()),
    }
}

/// A range as the tables hold it.
#[must_use]
pub fn prefix(range: IpNet) -> RouteKey {
    let base = match range {
        IpNet::V4(_) => Addr::MAPPED_BITS,
        IpNet::V6(_) => 0,
    };
    RouteKey { bits: base + u32::from(range.prefix_len()), addr: address(range.network()).0 }
}

#[cfg(test)]
mod tests;
