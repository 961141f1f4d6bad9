//! Which devices are uplinks. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use netlink_packet_route::link::InfoKind;

use super::{
    is_ours,
    picture::{Address, Picture},
};
use crate::model::UplinkState;

/// The uplinks, and what was wrong with the candidates that are none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Choice {
    pub(super) uplinks: BTreeMap<u32, UplinkState>,
    /// One line each, for the operator.
    pub(super) refused: BTreeSet<String>,
}

/// Devices that hold an address of this node's object or a default route, or those named. Of a bond or bridge the master, not its parts.
pub(super) fn choose(picture: &Picture, own: &[IpAddr], names: &[String]) -> Choice {
    let mut choice = Choice::default();
    let mut candidates = BTreeSet::new();
    if names.is_empty() {
        candidates.extend(&picture.default_over);
        let holding = picture.addresses.iter().filter(|address| own.contains(&address.net.addr()));
        candidates.extend(holding.map(|address| address.ifindex));
    }
    for name in names {
        match picture.find(name) {
            Some((ifindex, _)) => {
                candidates.insert(ifindex);
            }
            None => {
                choice.refused.insert(format!("uplink {name:?} is named in the settings and is not there"));
            }
        }
    }
    for candidate in candidates {
        let ifindex = master(picture, candidate);
        let Some(device) = picture.devices.get(&ifindex) else { continue };
        if is_ours(&device.name) {
            continue;
        }
        let Ok(mac) = <[u8; 6]>::try_from(device.mac.as_slice()) else {
            choice.refused.insert(no_ethernet(&device.name));
            continue;
        };
        if !device.ethernet {
            choice.refused.insert(no_ethernet(&device.name));
            continue;
        }
        let addresses = addresses(picture, ifindex);
        choice.uplinks.insert(ifindex, UplinkState { name: device.name.clone(), mtu: device.mtu, mac, addresses });
    }
    choice
}

fn no_ethernet(name: &str) -> String {
    format!("device {name:?} has no Ethernet header and cannot be an uplink; name the uplinks with --uplink")
}

/// The bond, bridge or team that a device is part of, else itself. A VRF is no such thing: its devices keep their addresses.
fn master(picture: &Picture, ifindex: u32) -> u32 {
    let kind = |ifindex: &u32| picture.devices.get(ifindex).and_then(|device| device.kind.as_ref());
    let whole = |master: &u32| !matches!(kind(master), Some(InfoKind::Vrf) | None);
    picture.devices.get(&ifindex).and_then(|device| device.master).filter(whole).unwrap_or(ifindex)
}

/// Usable addresses of a device: global ones first, those running out last, else in the kernel's order.
fn addresses(picture: &Picture, ifindex: u32) -> Vec<IpNet> {
    let mut held: Vec<&Address> =
        picture.addresses.iter().filter(|a| a.ifindex == ifindex && !a.tentative && !a.failed).collect();
    held.sort_by_key(|address| (is_link_local(address.net.addr()), address.passing));
    held.into_iter().map(|address| address.net).collect()
}

/// Addresses of this node on any device but ours. Loopback addresses and IPv6 link-local ones, which mean a link, are no addresses that a
/// pod could mean this node by.
pub(super) fn local_addresses(picture: &Picture) -> Vec<IpAddr> {
    let foreign = |ifindex: &u32| picture.devices.get(ifindex).is_some_and(|device| !is_ours(&device.name));
    let held = picture.addresses.iter().filter(|address| foreign(&address.ifindex) && !address.failed);
    let unique: BTreeSet<IpAddr> = held
        .map(|address| address.net.addr())
        .filter(|ip| !ip.is_loopback() && !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()))
        .collect();
    unique.into_iter().collect()
}

pub(super) fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::picture::Device, *};

    fn device(name: &str) -> Device {
        Device {
            name: name.to_owned(),
            mtu: 1500,
            mac: vec![2, 0, 0, 0, 0, 1],
            ethernet: true,
            up: true,
            arp: true,
            master: None,
            kind: None,
            silent6: false,
            vxlan: Vec::new(),
        }
    }

    fn address(ifindex: u32, net: &str) -> Address {
        Address { ifindex, net: net.parse().unwrap(), tentative: false, failed: false, passing: false }
    }

    fn picture() -> Picture {
        let mut picture = Picture { ipv6: true, ..Picture::default() };
        picture.devices.insert(1, Device { ethernet: false, mac: vec![0; 6], ..device("lo") });
        picture.devices.insert(2, device("eth0"));
        picture.devices.insert(3, device("eth1"));
        picture.devices.insert(4, device("osmia0"));
        picture.addresses.push(address(1, "127.0.0.1/8"));
        picture.addresses.push(address(2, "192.0.2.1/24"));
        picture.addresses.push(address(3, "198.51.100.1/24"));
        picture
    }

    fn names(choice: &Choice) -> Vec<&str> {
        choice.uplinks.values().map(|uplink| uplink.name.as_str()).collect()
    }

    fn own() -> Vec<IpAddr> {
        vec!["192.0.2.1".parse().unwrap()]
    }

    #[test]
    fn the_node_address_and_the_default_route_make_uplinks() {
        let mut picture = picture();
        assert_eq!(names(&choose(&picture, &own(), &[])), ["eth0"]);
        picture.default_over.insert(3);
        assert_eq!(names(&choose(&picture, &own(), &[])), ["eth0", "eth1"]);
        assert_eq!(names(&choose(&picture, &[], &[])), ["eth1"]);
        // A default route over the door is nobody's way out.
        picture.default_over.insert(4);
        assert_eq!(names(&choose(&picture, &[], &[])), ["eth1"]);
    }

    #[test]
    fn names_override_and_a_missing_one_is_said() {
        let choice = choose(&picture(), &own(), &["eth1".into(), "eth9".into()]);
        assert_eq!(names(&choice), ["eth1"]);
        assert!(choice.refused.iter().any(|line| line.contains("eth9")));
    }

    #[test]
    fn a_device_without_ethernet_is_refused_with_its_name() {
        let mut picture = picture();
        picture.devices.insert(5, Device { ethernet: false, mac: Vec::new(), ..device("wg0") });
        picture.default_over.insert(5);
        let choice = choose(&picture, &own(), &[]);
        assert_eq!(names(&choice), ["eth0"]);
        assert!(choice.refused.iter().any(|line| line.contains("wg0")), "{:?}", choice.refused);
    }

    #[test]
    fn of_a_bond_the_master_counts_and_of_a_vrf_the_device() {
        let mut picture = picture();
        picture.devices.insert(6, Device { kind: Some(InfoKind::Bond), ..device("bond0") });
        picture.devices.insert(7, Device { kind: Some(InfoKind::Vrf), ..device("vrf0") });
        picture.devices.get_mut(&2).unwrap().master = Some(6);
        assert_eq!(names(&choose(&picture, &own(), &[])), ["bond0"]);
        picture.devices.get_mut(&2).unwrap().master = Some(7);
        assert_eq!(names(&choose(&picture, &own(), &[])), ["eth0"]);
    }

    #[test]
    fn global_addresses_come_first_and_unusable_ones_not_at_all() {
        let mut picture = picture();
        picture.addresses = vec![
            address(2, "fe80::1/64"),
            Address { passing: true, ..address(2, "2001:db8::9/64") },
            Address { tentative: true, ..address(2, "2001:db8::8/64") },
            Address { failed: true, ..address(2, "2001:db8::7/64") },
            address(2, "2001:db8::1/64"),
        ];
        let held = addresses(&picture, 2);
        let expected: [IpNet; 3] = ["2001:db8::1/64", "2001:db8::9/64", "fe80::1/64"].map(|net| net.parse().unwrap());
        assert_eq!(held, expected);
    }

    #[test]
    fn local_addresses_are_those_a_pod_can_mean() {
        let mut picture = picture();
        picture.addresses.push(address(4, "203.0.113.1/32"));
        picture.addresses.push(address(2, "fe80::2/64"));
        picture.addresses.push(address(3, "169.254.20.10/32"));
        let expected: [IpAddr; 3] = ["169.254.20.10", "192.0.2.1", "198.51.100.1"].map(|ip| ip.parse().unwrap());
        assert_eq!(local_addresses(&picture), expected);
    }
}
