//! The underlay with the real kernel: what is found, what is made, and what is mended when somebody else changes it.

use std::{fs, future::Future, net::IpAddr, time::Duration};

use osmia_agent::{
    model::{Cluster, Encap, NodeObject, Settings},
    underlay::{Underlay, Wanted, start},
};
use tokio::{runtime, sync::watch, time};

use crate::space;

const PATIENCE: Duration = Duration::from_secs(5);

fn settings(encap: Encap) -> Settings {
    Settings {
        node: "a".into(),
        encap,
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap(), "fd00:244::/48".parse().unwrap()],
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

fn cluster() -> Cluster {
    let node = |ips: &[&str]| NodeObject {
        internal_ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        ..NodeObject::default()
    };
    let nodes = [
        ("a", node(&["192.0.2.1", "2001:db8::1"])),
        ("b", node(&["192.0.2.2", "2001:db8::2"])),
        ("c", node(&["198.51.100.3"])),
        ("d", node(&["203.0.113.4"])),
    ];
    Cluster { nodes: nodes.map(|(name, node)| (name.to_owned(), node)).into(), ..Cluster::default() }
}

/// An uplink `eth0` with the node's addresses, a gateway to 198.51.100.0/24, and no way to 203.0.113.0/24.
fn lan() {
    space::ip("link add eth0 type veth peer name lan0");
    space::ip("link set lan0 up");
    space::ip("link set eth0 up");
    space::ip("address add 192.0.2.1/24 dev eth0");
    space::ip("address add 2001:db8::1/64 dev eth0 nodad");
    space::ip("route add 198.51.100.0/24 via 192.0.2.254");
}

/// Runs the service in a namespace of its own beside the test.
fn with_service<F: Future<Output = ()>>(
    encap: Encap,
    test: impl FnOnce(watch::Sender<Wanted>, watch::Receiver<Option<Underlay>>) -> F,
) {
    space::enter();
    lan();
    // What the service logs is part of a failure's report.
    let _ = tracing_subscriber::fmt().with_test_writer().with_ansi(false).try_init();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (tell, wanted) = watch::channel(Wanted::new(&cluster(), &settings(encap)));
        let (told, service) = start(wanted).unwrap();
        tokio::spawn(service);
        // The service ends with its last sender, which a test may drop at once.
        let kept = tell.clone();
        test(tell, told).await;
        drop(kept);
    });
}

async fn until(told: &mut watch::Receiver<Option<Underlay>>, what: &str, good: impl Fn(&Underlay) -> bool) -> Underlay {
    let wait = told.wait_for(|underlay| underlay.as_ref().is_some_and(&good));
    if let Ok(underlay) = time::timeout(PATIENCE, wait).await {
        return underlay.unwrap().clone().unwrap();
    }
    panic!("not within {PATIENCE:?}: {what}; told {:?}", *told.borrow())
}

/// Waits for what the kernel shows.
async fn until_ip(arguments: &str, what: &str, good: impl Fn(&str) -> bool) -> String {
    let begin = time::Instant::now();
    loop {
        let text = space::ip(arguments);
        if good(&text) {
            return text;
        }
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}; ip {arguments}:\n{text}");
        time::sleep(Duration::from_millis(10)).await;
    }
}

fn complete(underlay: &Underlay) -> bool {
    underlay.door_host != 0 && underlay.door_pods != 0 && !underlay.ways.is_empty()
}

#[test]
fn uplinks_ways_and_our_devices_are_told() {
    with_service(Encap::Auto, |_tell, mut told| async move {
        let underlay = until(&mut told, "all devices", |u| complete(u) && u.tunnel_dev != 0).await;
        let eth0 = space::ifindex("eth0");
        let uplink = underlay.uplinks.get(&eth0).expect("eth0 holds the node's address");
        assert_eq!((uplink.name.as_str(), uplink.mtu, underlay.uplinks.len()), ("eth0", 1500, 1));
        assert_eq!(uplink.addresses.first().map(ToString::to_string).as_deref(), Some("192.0.2.1/24"));
        assert_eq!(underlay.door_host, space::ifindex("osmia0"));
        assert_eq!(underlay.door_pods, space::ifindex("osmia1"));
        assert_eq!(underlay.tunnel_dev, space::ifindex("osmia-vx"));

        let way = |ip: &str| underlay.ways.get(&ip.parse::<IpAddr>().unwrap()).copied();
        let near = way("192.0.2.2").expect("b is on the LAN");
        assert_eq!((near.uplink, near.gateway, near.mtu), (eth0, None, 1500));
        assert_eq!(near.source, Some("192.0.2.1".parse().unwrap()));
        assert_eq!(way("198.51.100.3").expect("c is behind the gateway").gateway, Some("192.0.2.254".parse().unwrap()));
        assert_eq!(way("2001:db8::2").expect("b by IPv6").gateway, None);
        assert_eq!(way("203.0.113.4"), None, "nothing leads to d");
    });
}

#[test]
fn the_door_has_one_mac_no_arp_no_address_and_the_pods_mtu() {
    with_service(Encap::Auto, |_tell, mut told| async move {
        until(&mut told, "the door", complete).await;
        let host = space::ip("-d link show osmia0");
        assert!(host.contains("02:6f:73:6d:00:01") && host.contains("NOARP"), "{host}");
        assert!(host.contains("mtu 1450") && host.contains("addrgenmode none") && host.contains(",UP"), "{host}");
        let pods = space::ip("-d link show osmia1");
        assert!(pods.contains("mtu 1450") && pods.contains("addrgenmode none") && pods.contains(",UP"), "{pods}");
        for end in ["osmia0", "osmia1"] {
            let addresses = space::ip(&format!("address show {end}"));
            assert!(!addresses.contains("inet"), "{addresses}");
        }
        let tunnel = space::ip("-d link show osmia-vx");
        for part in ["vxlan external", "dstport 4789", "udp6zerocsumrx", "02:6f:73:6d:00:03", "mtu 1450"] {
            assert!(tunnel.contains(part), "no {part}: {tunnel}");
        }
        let v4 = space::ip("route show 10.244.0.0/16");
        assert!(v4.contains("dev osmia0") && v4.contains("src 192.0.2.1"), "{v4}");
        let v6 = space::ip("-6 route show fd00:244::/48");
        assert!(v6.contains("dev osmia0") && v6.contains("src 2001:db8::1"), "{v6}");
        let forward = fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
        assert_eq!(forward.trim(), "0", "ip_forward was touched");
    });
}

#[test]
fn what_others_break_is_mended() {
    with_service(Encap::Auto, |_tell, mut told| async move {
        until(&mut told, "the door", complete).await;
        let v4 = |text: &str| text.contains("dev osmia0") && text.contains("src 192.0.2.1");
        let v6 = |text: &str| text.contains("dev osmia0") && text.contains("src 2001:db8::1");

        space::ip("link set osmia0 down");
        until_ip("route show 10.244.0.0/16", "the v4 route after osmia0 was down", v4).await;
        until_ip("-6 route show fd00:244::/48", "the v6 route after osmia0 was down", v6).await;

        space::ip("route del 10.244.0.0/16");
        until_ip("route show 10.244.0.0/16", "a removed route", v4).await;

        // The kernel deletes the v4 route and strips the source from the v6 one.
        space::ip("address del 192.0.2.1/24 dev eth0");
        space::ip("address del 2001:db8::1/64 dev eth0");
        time::sleep(Duration::from_millis(100)).await;
        space::ip("address add 192.0.2.1/24 dev eth0");
        space::ip("address add 2001:db8::1/64 dev eth0");
        until_ip("route show 10.244.0.0/16", "the v4 route after its source came back", v4).await;
        // Tentative for a second or so: the source is refused until then.
        until_ip("-6 route show fd00:244::/48", "the v6 route after its source came back", v6).await;

        space::ip("link set osmia1 mtu 9000");
        until_ip("link show osmia1", "the MTU", |text| text.contains("mtu 1450")).await;
        space::ip("link set osmia0 address 02:00:00:00:00:99 arp on");
        let right = |text: &str| text.contains("02:6f:73:6d:00:01") && text.contains("NOARP");
        until_ip("link show osmia0", "MAC and NOARP", right).await;
        space::ip("route add 10.99.0.0/16 dev osmia0");
        until_ip("route show dev osmia0", "a stray route", |text| !text.contains("10.99.0.0/16")).await;

        let before = space::ifindex("osmia0");
        space::ip("link del osmia1");
        let after = until(&mut told, "a new door", |u| complete(u) && u.door_host != before).await;
        assert_eq!(after.door_host, space::ifindex("osmia0"));
        until_ip("route show 10.244.0.0/16", "the route over the new door", v4).await;
        space::ip("link del osmia-vx");
        until(&mut told, "a new tunnel device", |u| {
            u.tunnel_dev == space::ifindex_or_0("osmia-vx") && u.tunnel_dev != 0
        })
        .await;
    });
}

#[test]
fn the_uplinks_mtu_and_address_are_followed() {
    with_service(Encap::Vxlan, |tell, mut told| async move {
        until(&mut told, "the door", complete).await;
        space::ip("link set eth0 mtu 9000");
        until(&mut told, "the new MTU", |u| u.uplinks.values().any(|uplink| uplink.mtu == 9000)).await;
        until_ip("link show osmia0", "the door's MTU", |text| text.contains("mtu 8950")).await;

        // The node moves to another address: routes follow.
        space::ip("address add 192.0.2.77/24 dev eth0");
        let mut cluster = cluster();
        cluster.nodes.get_mut("a").unwrap().internal_ips = vec!["192.0.2.77".parse().unwrap()];
        tell.send(Wanted::new(&cluster, &settings(Encap::Vxlan))).unwrap();
        until_ip("route show 10.244.0.0/16", "the new source", |text| text.contains("src 192.0.2.77")).await;
    });
}

#[test]
fn native_has_no_tunnel_device_and_the_uplinks_mtu() {
    with_service(Encap::Native, |tell, mut told| async move {
        until(&mut told, "the door", complete).await;
        until_ip("link show osmia0", "the door's MTU", |text| text.contains("mtu 1500")).await;
        assert_eq!(space::ifindex_or_0("osmia-vx"), 0);
        tell.send(Wanted::new(&cluster(), &settings(Encap::Vxlan))).unwrap();
        until(&mut told, "a tunnel device", |u| u.tunnel_dev != 0).await;
        tell.send(Wanted::new(&cluster(), &settings(Encap::Native))).unwrap();
        until(&mut told, "no tunnel device", |u| u.tunnel_dev == 0).await;
        assert_eq!(space::ifindex_or_0("osmia-vx"), 0);
    });
}

#[test]
fn an_uplink_without_link_local_address_gets_one() {
    with_service(Encap::Native, |_tell, mut told| async move {
        until(&mut told, "the door", complete).await;
        let has = |text: &str| text.contains("inet6 fe80::");
        until_ip("-6 address show eth0", "a link-local address", has).await;
        space::ip("link set eth0 addrgenmode none");
        space::ip("-6 address flush dev eth0 scope link");
        until_ip("-6 address show eth0", "a new link-local address", has).await;
    });
}

#[test]
fn a_storm_of_events_loses_nothing() {
    with_service(Encap::Native, |_tell, mut told| async move {
        until(&mut told, "the door", complete).await;
        // More than a socket's buffer holds, all at once, while the service cannot run.
        let lines: String = (0..4000)
            .map(|i| format!("address {} 10.{}.{}.1/32 dev lan0\n", ["add", "del"][i % 2], i / 2 / 200, i / 2 % 200))
            .collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), lines).unwrap();
        space::ip(&format!("-batch {}", file.path().display()));
        space::ip("link set eth0 mtu 1400");
        until(&mut told, "the MTU after the storm", |u| u.uplinks.values().any(|uplink| uplink.mtu == 1400)).await;
        until_ip("link show osmia0", "the door's MTU", |text| text.contains("mtu 1400")).await;
    });
}

#[test]
fn without_ipv6_all_that_is_ipv4_is_there() {
    with_service(Encap::Auto, |tell, mut told| async move {
        until(&mut told, "the door", complete).await;
        fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        let underlay = until(&mut told, "no IPv6", |u| !u.ipv6).await;
        assert!(underlay.ways.keys().all(IpAddr::is_ipv4) && underlay.ways.len() == 2, "{underlay:?}");
        // From nothing, too.
        space::ip("link del osmia0");
        space::ip("link del osmia-vx");
        tell.send_modify(|_| ());
        let before = underlay.door_host;
        until(&mut told, "a new door", |u| complete(u) && u.door_host != before && u.tunnel_dev != 0).await;
        until_ip("route show 10.244.0.0/16", "the v4 route", |text| text.contains("src 192.0.2.1")).await;
    });
}

#[test]
fn a_tunnel_port_that_is_taken_does_not_keep_the_routes_away() {
    space::enter();
    lan();
    space::ip("link add other type vxlan external dstport 4789");
    space::ip("link set other up");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_tell, wanted) = watch::channel(Wanted::new(&cluster(), &settings(Encap::Auto)));
        let (mut told, service) = start(wanted).unwrap();
        tokio::spawn(service);
        let underlay = until(&mut told, "the door", complete).await;
        assert_eq!(underlay.uplinks.len(), 1);
        until_ip("route show 10.244.0.0/16", "the v4 route", |text| text.contains("src 192.0.2.1")).await;
        assert_eq!(told.borrow().as_ref().map(|u| u.tunnel_dev), Some(0));
        space::ip("link del other");
        until(&mut told, "the tunnel device once the port is free", |u| u.tunnel_dev != 0).await;
    });
}

#[test]
fn beside_kube_proxy_alone_the_stack_forwards() {
    with_service(Encap::Auto, |tell, mut told| async move {
        until(&mut told, "the door", complete).await;
        let forward = || fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
        assert_eq!(forward().trim(), "0");
        let settings = Settings { service_cidrs: vec!["10.96.0.0/12".parse().unwrap()], ..settings(Encap::Auto) };
        tell.send(Wanted::new(&cluster(), &settings)).unwrap();
        let begin = time::Instant::now();
        while forward().trim() != "1" {
            assert!(begin.elapsed() < PATIENCE, "ip_forward stays 0 with service ranges");
            time::sleep(Duration::from_millis(10)).await;
        }
    });
}
