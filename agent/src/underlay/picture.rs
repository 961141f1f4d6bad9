//! One look at the node's network: devices, addresses, routes of the main table.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use anyhow::{Context as _, Result};
use futures_util::TryStreamExt as _;
use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    link::{
        AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo,
        LinkLayerType, LinkMessage,
    },
    route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType, RouteVia},
};
use rtnetlink::{Handle, RouteMessageBuilder};

use crate::model::Exit;

/// A device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) mtu: u32,
    /// Empty where it has no Ethernet address.
    pub(super) mac: Vec<u8>,
    pub(super) ethernet: bool,
    pub(super) up: bool,
    pub(super) arp: bool,
    /// Ifindex of the device it is a part of, such as a bond or bridge.
    pub(super) master: Option<u32>,
    pub(super) kind: Option<InfoKind>,
    /// The kernel makes no IPv6 addresses for it by itself.
    pub(super) silent6: bool,
    /// A VXLAN device's attributes.
    pub(super) vxlan: Vec<InfoVxlan>,
}

/// An address of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) ifindex: u32,
    pub(super) net: IpNet,
    /// It is being tried whether somebody else has it: not to be used yet.
    pub(super) tentative: bool,
    /// Somebody else has it.
    pub(super) failed: bool,
    /// Running out, or temporary: not to be used for what is new.
    pub(super) passing: bool,
}

/// A unicast route of the main table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MainRoute {
    pub(super) destination: IpNet,
    pub(super) ifindex: u32,
    pub(super) source: Option<IpAddr>,
    /// As it came, to be removed by.
    pub(super) message: RouteMessage,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Picture {
    pub(super) devices: BTreeMap<u32, Device>,
    /// In the kernel's order.
    pub(super) addresses: Vec<Address>,
    /// Devices that default routes lead over.
    pub(super) default_over: BTreeSet<u32>,
    /// Every route, of any table and device, that leads away from the node or nowhere.
    pub(super) exits: Vec<Exit>,
    /// Routes over the device asked for.
    pub(super) door_routes: Vec<MainRoute>,
    /// Whether this kernel has IPv6.
    pub(super) ipv6: bool,
}

impl Picture {
    /// Looks.
    pub(super) async fn take(handle: &Handle, door: &str) -> Result<Self> {
        let mut picture = Self { ipv6: super::sysctl::has_ipv6(), ..Self::default() };
        let mut links = handle.link().get().execute();
        while let Some(message) = links.try_next().await.context("listing devices")? {
            picture.devices.insert(message.header.index, device(&message));
        }
        let mut addresses = handle.address().get().execute();
        while let Some(message) = addresses.try_next().await.context("listing addresses")? {
            picture.addresses.extend(address(&message));
        }
        let door = picture.find(door).map(|(ifindex, _)| ifindex);
        let families = [
            Some(RouteMessageBuilder::<Ipv4Addr>::new().build()),
            picture.ipv6.then(|| RouteMessageBuilder::<Ipv6Addr>::new().build()),
        ];
        for family in families.into_iter().flatten() {
            let mut routes = handle.route().get(family).execute();
            while let Some(message) = routes.try_next().await.context("listing routes")? {
                picture.note(message, door);
            }
        }
        Ok(picture)
    }

    /// A device by name.
    pub(super) fn find(&self, name: &str) -> Option<(u32, &Device)> {
        self.devices.iter().find(|(_, device)| device.name == name).map(|(ifindex, device)| (*ifindex, device))
    }

    fn note(&mut self, message: RouteMessage, door: Option<u32>) {
        let mut table = u32::from(message.header.table);
        let (mut destination, mut source, mut gateway, mut metric) = (None, None, None, 0);
        let (mut over, mut hops) = (Vec::new(), Vec::new());
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Table(id) => table = *id,
                RouteAttribute::Destination(to) => destination = ip(to),
                RouteAttribute::PrefSource(from) => source = ip(from),
                RouteAttribute::Oif(ifindex) => over.push(*ifindex),
                RouteAttribute::Gateway(to) => gateway = ip(to),
                RouteAttribute::Via(RouteVia::Inet6(to)) => gateway = Some(IpAddr::V6(*to)),
                RouteAttribute::Priority(number) => metric = *number,
                RouteAttribute::MultiPath(each) => {
                    over.extend(each.iter().map(|hop| hop.interface_index));
                    hops.extend(each.iter().map(|hop| (hop.interface_index, gateway_of(&hop.attributes))));
                }
                _ => {}
            }
        }
        let leads = |kind| {
            matches!(kind, RouteType::Unicast | RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit)
        };
        if leads(message.header.kind) {
            if hops.is_empty() {
                hops.extend(over.iter().map(|ifindex| (*ifindex, gateway)));
            }
            let to = destination.and_then(|to| IpNet::new(to, message.header.destination_prefix_length).ok());
            let family = if message.header.address_family == AddressFamily::Inet6 { 6 } else { 4 };
            self.exits.push(Exit { table, to, family, metric, kind: message.header.kind.into(), hops });
        }
        if table != u32::from(RouteHeader::RT_TABLE_MAIN) || message.header.kind != RouteType::Unicast {
            return;
        }
        if message.header.destination_prefix_length == 0 {
            self.default_over.extend(&over);
        } else if let (Some(to), Some(door)) = (destination, door.filter(|door| over.contains(door)))
            && let Ok(destination) = IpNet::new(to, message.header.destination_prefix_length)
        {
            self.door_routes.push(MainRoute { destination, ifindex: door, source, message });
        }
    }
}

fn gateway_of(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(to) => ip(to),
        RouteAttribute::Via(RouteVia::Inet6(to)) => Some(IpAddr::V6(*to)),
        _ => None,
    })
}

pub(super) fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(a) => Some(IpAddr::V4(*a)),
        RouteAddress::Inet6(a) => Some(IpAddr::V6(*a)),
        _ => None,
    }
}

/// The name in a link message.
pub(super) fn name(message: &LinkMessage) -> Option<&str> {
    message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

fn device(message: &LinkMessage) -> Device {
    let header = &message.header;
    let mut device = Device {
        name: name(message).unwrap_or_default().to_owned(),
        mtu: 0,
        mac: Vec::new(),
        ethernet: header.link_layer_type == LinkLayerType::Ether,
        up: header.flags.contains(LinkFlags::Up),
        arp: !header.flags.contains(LinkFlags::Noarp),
        master: None,
        kind: None,
        silent6: false,
        vxlan: Vec::new(),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
            LinkAttribute::Address(mac) => device.mac.clone_from(mac),
            LinkAttribute::Controller(master) => device.master = Some(*master).filter(|&m| m != 0),
            LinkAttribute::LinkInfo(infos) => note_info(&mut device, infos),
            LinkAttribute::AfSpecUnspec(families) => device.silent6 |= silent6(families),
            _ => {}
        }
    }
    device
}

fn note_info(device: &mut Device, infos: &[LinkInfo]) {
    for info in infos {
        match info {
            LinkInfo::Kind(kind) => device.kind = Some(kind.clone()),
            LinkInfo::Data(InfoData::Vxlan(attributes)) => device.vxlan.clone_from(attributes),
            _ => {}
        }
    }
}

fn silent6(families: &[AfSpecUnspec]) -> bool {
    let inet6 = families.iter().filter_map(|family| match family {
        AfSpecUnspec::Inet6(attributes) => Some(attributes),
        _ => None,
    });
    inet6.flatten().any(|attribute| matches!(attribute, AfSpecInet6::AddrGenMode(In6AddrGenMode::None)))
}

fn address(message: &AddressMessage) -> Option<Address> {
    let header = &message.header;
    let (mut local, mut peer) = (None, None);
    // Flags beyond the header's 8 bits come as an attribute.
    let mut long = AddressFlags::empty();
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => peer = Some(*ip),
            AddressAttribute::Flags(flags) => long = *flags,
            _ => {}
        }
    }
    let net = IpNet::new(local.or(peer)?, header.prefix_len).ok()?;
    let has = |short: AddressHeaderFlags, flag: AddressFlags| header.flags.contains(short) || long.contains(flag);
    // For IPv6 the bit of "secondary" means temporary (RFC 8981).
    let temporary = net.addr().is_ipv6() && has(AddressHeaderFlags::Secondary, AddressFlags::Secondary);
    Some(Address {
        ifindex: header.index,
        net,
        tentative: has(AddressHeaderFlags::Tentative, AddressFlags::Tentative),
        failed: has(AddressHeaderFlags::Dadfailed, AddressFlags::Dadfailed),
        passing: temporary || has(AddressHeaderFlags::Deprecated, AddressFlags::Deprecated),
    })
}
