//! What the cluster's objects and the settings ask of the underlay. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

use crate::{
    compile::addresses_to_resolve,
    model::{Cluster, Encap, NodeObject, Settings},
};

/// Input of the service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// This node's object.
    pub(super) this: Option<NodeObject>,
    /// Addresses whose way is to be told.
    pub(super) peers: BTreeSet<IpAddr>,
    /// Routes over the door, with the source that the node's own packets take.
    pub(super) routes: BTreeMap<IpNet, Option<IpAddr>>,
    /// Whether any pod of the cluster may have an IPv6 address.
    pub(super) pods6: bool,
    /// The settings.
    pub(super) settings: Settings,
}

impl Wanted {
    /// From the cluster as it is known.
    #[must_use]
    pub fn new(cluster: &Cluster, settings: &Settings) -> Self {
        let this = cluster.nodes.get(&settings.node).cloned();
        let own = this.as_ref().map(|node| node.internal_ips.clone()).unwrap_or_default();
        let ranges: BTreeSet<IpNet> = if settings.cluster_cidrs.is_empty() {
            cluster.nodes.values().flat_map(|node| &node.pod_cidrs).map(IpNet::trunc).collect()
        } else {
            settings.cluster_cidrs.iter().map(IpNet::trunc).collect()
        };
        let source = |range: &IpNet| own.iter().copied().find(|ip| ip.is_ipv4() == range.addr().is_ipv4());
        Self {
            peers: addresses_to_resolve(cluster, &settings.node),
            pods6: ranges.iter().any(|range| range.addr().is_ipv6()),
            routes: ranges.iter().map(|range| (*range, source(range))).collect(),
            this,
            settings: settings.clone(),
        }
    }

    /// Addresses of this node's object.
    pub(super) fn own(&self) -> &[IpAddr] {
        self.this.as_ref().map_or(&[], |node| &node.internal_ips)
    }

    /// Whether packets may travel in the tunnel.
    pub(super) fn tunnel(&self) -> bool {
        self.settings.encap != Encap::Native
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::underlay) fn settings() -> Settings {
        Settings {
            node: "a".into(),
            encap: Encap::Auto,
            cluster_cidrs: Vec::new(),
            service_cidrs: Vec::new(),
            deny_link_local: false,
            mark: 1 << 24,
            tunnel_port: 4789,
            vni: 1,
            masquerade_ports: (61000, 65535),
            uplinks: Vec::new(),
            flow_memory: 1 << 20,
        }
    }

    fn node(ips: &[&str], cidrs: &[&str]) -> NodeObject {
        NodeObject {
            internal_ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            pod_cidrs: cidrs.iter().map(|net| net.parse().unwrap()).collect(),
            ..NodeObject::default()
        }
    }

    fn cluster() -> Cluster {
        let a = node(&["192.0.2.1", "2001:db8::1"], &["10.0.1.0/24", "fd00:1::/64"]);
        let b = node(&["192.0.2.2"], &["10.0.2.0/24"]);
        Cluster { nodes: [("a".to_owned(), a), ("b".to_owned(), b)].into(), ..Cluster::default() }
    }

    #[test]
    fn without_cluster_ranges_each_block_has_a_route() {
        let wanted = Wanted::new(&cluster(), &settings());
        let (v4, v6) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        let expected = [("10.0.1.0/24", v4), ("10.0.2.0/24", v4), ("fd00:1::/64", v6)];
        let expected = expected.map(|(net, source): (&str, IpAddr)| (net.parse().unwrap(), Some(source)));
        assert_eq!(wanted.routes, BTreeMap::from(expected));
        assert_eq!(wanted.peers, BTreeSet::from(["192.0.2.2".parse().unwrap()]));
        assert!(wanted.pods6);
    }

    #[test]
    fn cluster_ranges_replace_the_blocks() {
        let settings = Settings { cluster_cidrs: vec!["10.0.0.7/16".parse().unwrap()], ..settings() };
        let wanted = Wanted::new(&cluster(), &settings);
        let range: IpNet = "10.0.0.0/16".parse().unwrap();
        assert_eq!(wanted.routes.keys().collect::<Vec<_>>(), [&range], "host bits are no part of a range");
        assert!(!wanted.pods6);
    }

    #[test]
    fn a_family_that_the_node_lacks_has_a_route_without_source() {
        let mut cluster = cluster();
        cluster.nodes.insert("a".into(), node(&["2001:db8::1"], &["10.0.1.0/24"]));
        let wanted = Wanted::new(&cluster, &settings());
        assert_eq!(wanted.routes.get(&"10.0.1.0/24".parse().unwrap()), Some(&None));
    }
}
