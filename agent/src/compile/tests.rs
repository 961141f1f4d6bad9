use ipnet::IpNet;
use osmia_maps::layout::{
    node::{N_OUTER_V6, N_PRESENT, N_TUNNEL},
    route::RouteKind,
};
use proptest::prelude::*;

use super::*;
use crate::model::{Event, Way};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn node(ips: &[&str], cidrs: &[&str]) -> NodeObject {
    NodeObject {
        uid: String::new(),
        internal_ips: ips.iter().map(|text| ip(text)).collect(),
        pod_cidrs: cidrs.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

fn settings(encap: Encap) -> Settings {
    Settings {
        node: "a".into(),
        encap,
        cluster_cidrs: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/16".parse().unwrap()],
        service_cidrs: vec![],
        deny_link_local: false,
        mark: 1 << 24,
        tunnel_port: 4789,
        vni: 1,
        masquerade_ports: (61_000, 65_535),
        uplinks: vec![],
        flow_memory: 64 << 20,
    }
}

fn underlay() -> Underlay {
    let way = |gateway: Option<&str>, mtu| Way { uplink: 2, gateway: gateway.map(ip), source: None, mtu };
    Underlay {
        uplinks: BTreeMap::from([(
            2,
            UplinkState {
                name: "eth0".into(),
                mtu: 1500,
                mac: [2; 6],
                addresses: vec![
                    "192.0.2.9/24".parse().unwrap(),
                    "192.0.2.1/24".parse().unwrap(),
                    "fe80::9/64".parse().unwrap(),
                    "2001:db8::1/64".parse().unwrap(),
                ],
            },
        )]),
        ways: BTreeMap::from([
            (ip("192.0.2.2"), way(None, 1500)),
            (ip("2001:db8::2"), way(None, 1500)),
            (ip("198.51.100.3"), way(Some("192.0.2.254"), 1400)),
        ]),
        local_addresses: vec![ip("127.0.0.1"), ip("192.0.2.1"), ip("::1"), ip("fe80::9"), ip("169.254.20.10")],
        door_host: 10,
        door_pods: 11,
        tunnel_dev: 12,
        ipv6: true,
        ..Underlay::default()
    }
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    for (name, node) in [
        ("a", node(&["192.0.2.1", "2001:db8::1"], &["10.1.0.0/24", "fd00:1::/64"])),
        ("b", node(&["192.0.2.2", "2001:db8::2"], &["10.2.0.0/24", "fd00:2::/64"])),
        ("c", node(&["198.51.100.3"], &["10.3.0.0/24"])),
    ] {
        cluster.nodes.insert(name.into(), node);
    }
    cluster
}

fn run(cluster: &Cluster, underlay: &Underlay, settings: &Settings) -> (Compiled, Numbers) {
    let mut numbers = Numbers::default();
    numbers.assign(cluster, &settings.node);
    (compile(cluster, underlay, settings, &numbers), numbers)
}

fn route(compiled: &Compiled, prefix: &str) -> Option<(RouteKind, u16)> {
    let prefix: IpNet = prefix.parse().unwrap();
    let base = if prefix.addr().is_ipv4() { 96 } else { 0 };
    let key = RouteKey { bits: base + u32::from(prefix.prefix_len()), addr: address(prefix.network()).0 };
    compiled.desired.routes.get(&key).map(|route| (RouteKind::from_byte(route.kind).unwrap(), route.node))
}

#[test]
fn every_prefix_has_its_owner() {
    let mut settings = settings(Encap::Auto);
    settings.service_cidrs = vec!["10.96.0.0/12".parse().unwrap()];
    let (compiled, numbers) = run(&cluster(), &underlay(), &settings);
    assert_eq!(compiled.problems, Vec::<String>::new());
    let b = numbers.of("b").unwrap();
    for (prefix, wanted) in [
        ("10.1.0.0/24", Some((RouteKind::LocalBlock, 0))),
        ("fd00:1::/64", Some((RouteKind::LocalBlock, 0))),
        ("10.2.0.0/24", Some((RouteKind::RemoteBlock, b))),
        ("fd00:2::/64", Some((RouteKind::RemoteBlock, b))),
        ("192.0.2.2/32", Some((RouteKind::RemoteNode, b))),
        ("2001:db8::2/128", Some((RouteKind::RemoteNode, b))),
        ("192.0.2.1/32", Some((RouteKind::LocalNode, 0))),
        ("2001:db8::1/128", Some((RouteKind::LocalNode, 0))),
        ("169.254.20.10/32", Some((RouteKind::LocalNode, 0))),
        ("10.96.0.0/12", Some((RouteKind::Stack, 0))),
        ("10.0.0.0/8", Some((RouteKind::Unowned, 0))),
        ("fd00::/16", Some((RouteKind::Unowned, 0))),
        // Mean something in their own place only.
        ("127.0.0.1/32", None),
        ("::1/128", None),
        ("fe80::9/128", None),
    ] {
        assert_eq!(route(&compiled, prefix), wanted, "{prefix}");
    }
    assert_eq!(compiled.desired.config.flags, C_IPV6 | C_STACK_SERVICES);
}

#[test]
fn auto_is_native_inside_a_subnet_and_vxlan_across() {
    let (compiled, numbers) = run(&cluster(), &underlay(), &settings(Encap::Auto));
    let b = &compiled.desired.nodes[&numbers.of("b").unwrap()];
    assert_eq!((b.flags, b.mtu, b.uplink), (N_PRESENT, 1500, 2));
    assert_eq!((b.next_hop4, b.next_hop6), (address(ip("192.0.2.2")), address(ip("2001:db8::2"))));
    let c = &compiled.desired.nodes[&numbers.of("c").unwrap()];
    assert_eq!((c.flags, c.mtu), (N_PRESENT | N_TUNNEL, 1350), "the way's MTU, not the uplink's");
    assert_eq!((c.tunnel, c.next_hop_tunnel), (address(ip("198.51.100.3")), address(ip("192.0.2.254"))));
    assert_eq!(c.outer[12..20], [192, 0, 2, 1, 198, 51, 100, 3]);
    assert_eq!(compiled.desired.config.pod_mtu, 1450);
}

#[test]
fn native_and_vxlan_are_for_all() {
    let (native, _) = run(&cluster(), &underlay(), &settings(Encap::Native));
    assert!(native.desired.nodes.values().all(|node| node.flags & N_TUNNEL == 0));
    assert_eq!(native.desired.config.pod_mtu, 1500);
    let (vxlan, _) = run(&cluster(), &underlay(), &settings(Encap::Vxlan));
    assert!(vxlan.desired.nodes.values().all(|node| node.flags & N_TUNNEL != 0));
}

#[test]
fn v4_pods_over_v6_nodes() {
    let mut cluster = Cluster::default();
    cluster.nodes.insert("a".into(), node(&["2001:db8::1"], &["10.1.0.0/24"]));
    cluster.nodes.insert("b".into(), node(&["2001:db8::2"], &["10.2.0.0/24"]));
    let (vxlan, numbers) = run(&cluster, &underlay(), &settings(Encap::Vxlan));
    let b = &vxlan.desired.nodes[&numbers.of("b").unwrap()];
    assert_eq!((b.flags, b.mtu), (N_PRESENT | N_TUNNEL | N_OUTER_V6, 1430));
    assert_eq!(vxlan.desired.config.pod_mtu, 1430);
    assert_eq!((vxlan.desired.config.node4, vxlan.desired.config.node6[15]), ([0; 4], 1));
    let (native, _) = run(&cluster, &underlay(), &settings(Encap::Native));
    assert_eq!(native.desired.nodes[&1].next_hop4, address(ip("2001:db8::2")), "IPv4 packets go to an IPv6 next hop");
}

#[test]
fn v6_pods_over_v4_nodes_are_tunnelled_or_said() {
    let mut cluster = cluster();
    cluster.nodes.insert("b".into(), node(&["192.0.2.2"], &["10.2.0.0/24", "fd00:2::/64"]));
    let (native, numbers) = run(&cluster, &underlay(), &settings(Encap::Native));
    let b = &native.desired.nodes[&numbers.of("b").unwrap()];
    assert_eq!((b.flags, b.next_hop4, b.next_hop6), (N_PRESENT, address(ip("192.0.2.2")), Addr::NONE));
    let said: Vec<_> = native.problems.iter().filter(|said| said.contains("node \"b\"")).collect();
    assert!(matches!(&said[..], [one] if one.contains("IPv6 packets for its pods are dropped")), "{said:?}");
    let (auto, _) = run(&cluster, &underlay(), &settings(Encap::Auto));
    let b = &auto.desired.nodes[&numbers.of("b").unwrap()];
    assert_eq!((b.flags, b.mtu, b.next_hop_tunnel), (N_PRESENT | N_TUNNEL, 1450, address(ip("192.0.2.2"))));
    assert_eq!(auto.problems, Vec::<String>::new());
    let (without, _) = run(&cluster, &Underlay { ipv6: false, ..underlay() }, &settings(Encap::Native));
    assert!(!without.problems.join(" ").contains("IPv6 packets"), "nobody here sends them");
    // Without pods of IPv6 there is nothing to say, and no tunnel.
    cluster.nodes.insert("b".into(), node(&["192.0.2.2"], &["10.2.0.0/24"]));
    for encap in [Encap::Native, Encap::Auto] {
        let (compiled, numbers) = run(&cluster, &underlay(), &settings(encap));
        assert_eq!(compiled.desired.nodes[&numbers.of("b").unwrap()].flags, N_PRESENT);
        assert!(!compiled.problems.join(" ").contains("IPv6 packets"), "{:?}", compiled.problems);
    }
}

#[test]
fn masquerade_takes_the_nodes_own_address() {
    let (compiled, _) = run(&cluster(), &underlay(), &settings(Encap::Native));
    let uplink = compiled.desired.uplinks[&2];
    assert_eq!((uplink.v4, uplink.v6[15], uplink.mtu), ([192, 0, 2, 1], 1, 1500));
}

#[test]
fn what_is_wrong_is_said_and_goes_nowhere_else() {
    let mut cluster = cluster();
    cluster.nodes.insert("d".into(), node(&["203.0.113.4"], &["10.2.0.0/24", "10.4.0.0/24"]));
    cluster.nodes.insert("e".into(), node(&[], &["10.1.0.0/24"]));
    let (compiled, numbers) = run(&cluster, &underlay(), &settings(Encap::Auto));
    let said = compiled.problems.join("\n");
    for part in ["no route to 203.0.113.4", "10.2.0.0/24 is claimed", "10.1.0.0/24 is claimed", "no InternalIP"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(route(&compiled, "10.1.0.0/24"), Some((RouteKind::LocalBlock, 0)));
    assert_eq!(route(&compiled, "10.2.0.0/24"), Some((RouteKind::RemoteBlock, numbers.of("b").unwrap())));
    // Its packets are drops with a reason (no row), not packets to the outside.
    let d = numbers.of("d").unwrap();
    assert_eq!(route(&compiled, "10.4.0.0/24"), Some((RouteKind::RemoteBlock, d)));
    assert!(!compiled.desired.nodes.contains_key(&d));
}

#[test]
fn without_its_own_node_object_the_rest_still_stands() {
    let mut cluster = cluster();
    cluster.nodes.remove("a");
    let (compiled, _) = run(&cluster, &underlay(), &settings(Encap::Auto));
    assert!(compiled.problems[0].contains("no Node object \"a\""));
    assert_eq!(route(&compiled, "192.0.2.1/32"), Some((RouteKind::LocalNode, 0)));
    assert_eq!(route(&compiled, "10.0.0.0/8"), Some((RouteKind::Unowned, 0)));
}

/// Routes with the node's address in the place of its number: what a packet sees.
fn seen(cluster: &Cluster, events: &[Event], order: &[usize]) -> BTreeMap<RouteKey, (u8, Addr)> {
    let mut cluster = cluster.clone();
    let mut numbers = Numbers::default();
    let settings = settings(Encap::Native);
    for i in order {
        cluster.apply(events[*i].clone());
        numbers.assign(&cluster, "a");
        if i % 3 == 0 {
            numbers.settle();
        }
    }
    let mut underlay = underlay();
    for address in addresses_to_resolve(&cluster, "a") {
        underlay.ways.insert(address, Way { uplink: 2, gateway: None, source: None, mtu: 1500 });
    }
    let desired = compile(&cluster, &underlay, &settings, &numbers).desired;
    let owner = |route: &Route| desired.nodes.get(&route.node).map_or(Addr::NONE, |node| node.tunnel);
    desired.routes.iter().map(|(key, route)| (*key, (route.kind, owner(route)))).collect()
}

fn event() -> impl Strategy<Value = (usize, Option<(u8, Vec<u8>)>)> {
    (0..6_usize, proptest::option::of((0..8_u8, proptest::collection::vec(0..12_u8, 0..3))))
}

proptest! {
    #[test]
    fn the_order_of_events_does_not_matter(
        said in proptest::collection::btree_map(0..6_usize, event(), 0..6),
        shuffle in Just((0..6_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let events: Vec<Event> = said.iter().map(|(name, (_, node_or_gone))| {
            let name = format!("n{name}");
            match node_or_gone {
                None => Event::NodeGone(name),
                Some((ip, cidrs)) => {
                    let cidrs: Vec<String> = cidrs.iter().map(|c| format!("10.{c}.0.0/16")).collect();
                    Event::Node(name, node(&[&format!("192.0.2.{ip}")], &cidrs.iter().map(String::as_str).collect::<Vec<_>>()))
                }
            }
        }).collect();
        let straight: Vec<usize> = (0..events.len()).collect();
        let shuffled: Vec<usize> = shuffle.into_iter().filter(|i| *i < events.len()).collect();
        prop_assert_eq!(seen(&cluster(), &events, &straight), seen(&cluster(), &events, &shuffled));
    }
}
