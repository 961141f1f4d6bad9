//! Rows of the other nodes: which way, in which header, how large.

use std::{collections::BTreeMap, net::IpAddr};

use osmia_maps::layout::{
    Addr, Node,
    node::{N_OUTER_V6, N_PRESENT, N_TUNNEL},
};

use super::{address, outer, to_mtu};
use crate::model::{Cluster, Encap, Numbers, Settings, Underlay, Way, cluster::NodeObject};

/// A row for each numbered node that the underlay has a way to. Without a way there is no row, and its packets are drops with a reason.
pub(super) fn rows(
    cluster: &Cluster,
    this: &NodeObject,
    underlay: &Underlay,
    settings: &Settings,
    numbers: &Numbers,
    problems: &mut Vec<String>,
) -> BTreeMap<u16, Node> {
    let mut rows = BTreeMap::new();
    for (number, name) in numbers.iter() {
        let Some(node) = cluster.nodes.get(name) else { continue };
        match row(this, node, underlay, settings) {
            Ok(row) => {
                if underlay.ipv6
                    && row.flags & N_TUNNEL == 0
                    && row.next_hop6.is_none()
                    && both_have_v6_pods(this, node)
                {
                    let why = "no IPv6 InternalIP of it is reached over the uplink to its IPv4 one, or this node has none: \
                               IPv6 packets for its pods are dropped (NO_ROUTE)";
                    let cure = "give both nodes one there, or use --encap vxlan";
                    problems.push(format!("node {name:?}: {why}; {cure}"));
                }
                rows.insert(number, row);
            }
            Err(why) => problems.push(format!("node {name:?}: {why}")),
        }
    }
    rows
}

fn row(this: &NodeObject, node: &NodeObject, underlay: &Underlay, settings: &Settings) -> Result<Node, String> {
    let Some((source, destination)) = pair(this, node) else {
        return Err("it and this node have no InternalIP of the same family".to_owned());
    };
    let way = way(underlay, destination)?;
    let other_family = node.internal_ips.iter().find(|ip| ip.is_ipv4() != destination.is_ipv4());
    let next_hop = |way: &Way, destination: IpAddr| address(way.gateway.unwrap_or(destination));
    let own = next_hop(way, destination);
    // A packet of the other family takes that family's next hop where it lies on the same uplink. Where there is none, the kernel sends
    // IPv4 to an IPv6 next hop, but takes each next hop of an IPv6 packet for an IPv6 one (bpf_out_neigh_v6 in net/core/filter.c): no
    // native way then.
    let other = other_family
        .and_then(|ip| Some((underlay.ways.get(ip)?, *ip)))
        .filter(|(other, _)| other.uplink == way.uplink)
        .map(|(other, ip)| next_hop(other, ip));
    let (next_hop4, next_hop6) =
        if destination.is_ipv4() { (own, other.unwrap_or(Addr::NONE)) } else { (other.unwrap_or(own), own) };
    let tunnel = match settings.encap {
        Encap::Native => false,
        Encap::Vxlan => true,
        // By what the Node objects say alone, so that both nodes choose the same.
        Encap::Auto => way.gateway.is_some() || (both_have_v6_pods(this, node) && !both_have_v6(this, node)),
    };
    let v6 = destination.is_ipv6();
    let mut flags = N_PRESENT;
    if tunnel {
        flags |= N_TUNNEL;
    }
    if v6 {
        flags |= N_OUTER_V6;
    }
    let overhead = if tunnel { outer::overhead(v6) } else { 0 };
    let outer = outer::template(source, destination, settings.tunnel_port, settings.vni);
    Ok(Node {
        flags,
        uplink: way.uplink,
        mtu: to_mtu(way.mtu.saturating_sub(overhead)),
        zero: [0; 6],
        tunnel: address(destination),
        next_hop4,
        next_hop6,
        next_hop_tunnel: if tunnel { own } else { Addr::NONE },
        outer: outer.filter(|_| tunnel).unwrap_or([0; 72]),
    })
}

/// Whether IPv6 packets go between their pods.
fn both_have_v6_pods(this: &NodeObject, node: &NodeObject) -> bool {
    [this, node].into_iter().all(|node| node.pod_cidrs.iter().any(|cidr| cidr.addr().is_ipv6()))
}

fn both_have_v6(this: &NodeObject, node: &NodeObject) -> bool {
    [this, node].into_iter().all(|node| node.internal_ips.iter().any(IpAddr::is_ipv6))
}

fn way(underlay: &Underlay, destination: IpAddr) -> Result<&Way, String> {
    let way = underlay.ways.get(&destination).ok_or_else(|| format!("no route to {destination}"))?;
    if underlay.uplinks.contains_key(&way.uplink) {
        Ok(way)
    } else {
        Err(format!("the route to {destination} leads over device {}, which is no uplink of ours", way.uplink))
    }
}

/// The two addresses the nodes talk by: this node's first one whose family the other has too.
fn pair(this: &NodeObject, node: &NodeObject) -> Option<(IpAddr, IpAddr)> {
    this.internal_ips.iter().find_map(|own| {
        let theirs = node.internal_ips.iter().find(|ip| ip.is_ipv4() == own.is_ipv4())?;
        Some((*own, *theirs))
    })
}
