use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::spec::Version;

fn ours() -> CniResult {
    let via =
        |text: &str, gateway: &str| Address { address: text.parse().unwrap(), gateway: Some(gateway.parse().unwrap()) };
    let host =
        Interface { name: "osm0".into(), mac: "02:6f:73:6d:00:01".into(), mtu: Some(1450), ..Interface::default() };
    let pod = Interface {
        name: "eth0".into(),
        mac: "02:00:00:00:00:05".into(),
        mtu: Some(1450),
        sandbox: "/var/run/netns/cni-1".into(),
        addresses: vec![via("10.1.0.5/32", "169.254.1.1"), via("fd00::5/128", "fe80::1")],
        ..Interface::default()
    };
    let route = |dst: &str, gw: &str| Route::via(dst.parse().unwrap(), gw.parse().unwrap());
    CniResult {
        interfaces: vec![host, pod],
        routes: vec![route("0.0.0.0/0", "169.254.1.1"), route("::/0", "fe80::1")],
        ..CniResult::default()
    }
}

/// R2, R3, R6, R7, R8.
#[test]
fn the_layout_before_1_0_0() {
    for version in [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0] {
        assert_eq!(
            ours().to_json(version),
            json!({
                "cniVersion": version.as_str(),
                "interfaces": [
                    {"name": "osm0", "mac": "02:6f:73:6d:00:01"},
                    {"name": "eth0", "mac": "02:00:00:00:00:05", "sandbox": "/var/run/netns/cni-1"},
                ],
                "ips": [
                    {"version": "4", "interface": 1, "address": "10.1.0.5/32", "gateway": "169.254.1.1"},
                    {"version": "6", "interface": 1, "address": "fd00::5/128", "gateway": "fe80::1"},
                ],
                "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}, {"dst": "::/0", "gw": "fe80::1"}],
            })
        );
    }
}

/// R4, R5, R10: no `version` from 1.0.0 on, `mtu` from 1.1.0 on.
#[test]
fn the_layouts_of_1_x() {
    let old = ours().to_json(Version::V1_0_0);
    assert!(old["ips"][0].get("version").is_none() && old["interfaces"][1].get("mtu").is_none());
    let new = ours().to_json(Version::V1_1_0);
    assert!(new["ips"][0].get("version").is_none());
    assert_eq!((&new["interfaces"][0]["mtu"], &new["interfaces"][1]["mtu"]), (&json!(1450), &json!(1450)));
    assert!(new["interfaces"][0].get("sandbox").is_none());
}

/// R1: the oldest layout, which a cache may still hold.
#[test]
fn reads_the_layout_of_0_1_0() {
    let value = json!({
        "ip4": {"ip": "10.1.0.5/24", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0"}]},
        "ip6": {"ip": "fd00::5/64"},
        "dns": {"nameservers": ["10.0.0.10"]},
    });
    let result = CniResult::from_json(&value).unwrap();
    let addresses: Vec<_> = result.unattached.iter().map(|a| a.address.to_string()).collect();
    assert_eq!(addresses, ["10.1.0.5/24", "fd00::5/64"]);
    assert_eq!((result.routes.len(), result.routes[0].gw), (1, None));
    assert_eq!(result.dns.nameservers, ["10.0.0.10"]);
}

/// cni.md section 0, take-away 7: an index equal to the length is refused when read and cannot be written.
#[test]
fn an_index_outside_the_list_is_refused() {
    for index in [1_i64, 2, -1, i64::MAX] {
        let value = json!({"interfaces": [{"name": "a"}], "ips": [{"address": "10.0.0.1/32", "interface": index}]});
        assert!(matches!(CniResult::from_json(&value), Err(ResultError::Index { .. })), "{index}");
    }
    let value =
        json!({"interfaces": null, "ips": [{"address": "10.0.0.1/32", "interface": null}], "routes": null, "dns": {}});
    assert_eq!(CniResult::from_json(&value).unwrap().unattached.len(), 1);
}

#[test]
fn garbage_is_an_error() {
    for value in [
        json!(null),
        json!(5),
        json!("x"),
        json!({"ips": 1}),
        json!({"ips": [{"address": "10.0.0.1"}]}),
        json!({"interfaces": [{}]}),
    ] {
        assert!(CniResult::from_json(&value).is_err(), "{value}");
    }
}

fn address() -> impl Strategy<Value = Address> {
    let net = prop_oneof![
        (any::<[u8; 4]>(), 0..=32u8).prop_map(|(a, p)| IpNet::new(IpAddr::from(a), p).unwrap()),
        (any::<[u8; 16]>(), 0..=128u8).prop_map(|(a, p)| IpNet::new(IpAddr::from(a), p).unwrap()),
    ];
    (net, proptest::option::of(any::<IpAddr>())).prop_map(|(address, gateway)| Address { address, gateway })
}

fn interface() -> impl Strategy<Value = Interface> {
    let text = "[a-z0-9/.:]{0,12}";
    let mtu = proptest::option::of(1..=u32::MAX);
    (text, text, mtu, text, text, text, proptest::collection::vec(address(), 0..4)).prop_map(
        |(name, mac, mtu, sandbox, socket_path, pci_id, addresses)| Interface {
            name,
            mac,
            mtu,
            sandbox,
            socket_path,
            pci_id,
            addresses,
        },
    )
}

fn route() -> impl Strategy<Value = Route> {
    let number = || proptest::option::of(any::<u32>());
    (address(), number(), number(), number(), number(), proptest::option::of(any::<u8>())).prop_map(
        |(a, mtu, advmss, priority, table, scope)| Route {
            dst: a.address,
            gw: a.gateway,
            mtu,
            advmss,
            priority,
            table,
            scope,
        },
    )
}

fn result() -> impl Strategy<Value = CniResult> {
    let list = || proptest::collection::vec("[a-z0-9.]{1,9}", 0..3);
    let dns = (list(), "[a-z.]{0,9}", list(), list()).prop_map(|(nameservers, domain, search, options)| Dns {
        nameservers,
        domain,
        search,
        options,
    });
    let lists = (
        proptest::collection::vec(interface(), 0..4),
        proptest::collection::vec(address(), 0..3),
        proptest::collection::vec(route(), 0..4),
    );
    (lists, dns).prop_map(|((interfaces, unattached, routes), dns)| CniResult { interfaces, unattached, routes, dns })
}

/// What is left of a result in an older version.
fn cut(mut result: CniResult, version: Version) -> CniResult {
    if version < Version::V1_1_0 {
        for i in &mut result.interfaces {
            (i.mtu, i.socket_path, i.pci_id) = (None, String::new(), String::new());
        }
        for r in &mut result.routes {
            *r = Route { mtu: None, advmss: None, priority: None, table: None, scope: None, ..r.clone() };
        }
    }
    result
}

proptest! {
    #[test]
    fn a_result_survives_each_version(result in result(), version in proptest::sample::select(Version::ALL.to_vec())) {
        let json = result.to_json(version);
        prop_assert_eq!(CniResult::from_json(&json).unwrap(), cut(result, version));
    }

    /// Take-away 7, for any result.
    #[test]
    fn no_index_ever_points_outside(result in result(), version in proptest::sample::select(Version::ALL.to_vec())) {
        let json = result.to_json(version);
        let count = json["interfaces"].as_array().unwrap().len() as u64;
        for ip in json["ips"].as_array().unwrap() {
            prop_assert!(ip.get("interface").is_none_or(|i| i.as_u64().unwrap() < count));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,80}") {
        let _ = serde_json::from_str::<Value>(&text).map(|v| CniResult::from_json(&v));
    }
}
