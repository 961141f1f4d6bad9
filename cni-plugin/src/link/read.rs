//! Reads back what is there: links, addresses, routes, neighbours.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rustix::io::Errno;

use super::message;
use super::netlink::Ask;
use super::{Netlink, NetlinkError};
use crate::spec::Mac;

/// A link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Index of its peer in the peer's namespace; for a veth.
    pub peer: Option<u32>,
    /// Its MAC.
    pub mac: Option<Mac>,
    /// Its MTU, bytes.
    pub mtu: u32,
    /// It is administratively up.
    pub up: bool,
}

/// An address of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnLink {
    /// Address and prefix length.
    pub address: IpNet,
    /// It may be used: duplicate address detection is over and found nothing.
    pub usable: bool,
}

/// A unicast route of any table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteThere {
    /// Destination.
    pub dst: IpNet,
    /// Gateway; none for one on link.
    pub gw: Option<IpAddr>,
}

/// A link by name; none if there is none.
///
/// # Errors
/// The kernel refused.
pub fn link(netlink: &mut Netlink, name: &str) -> Result<Option<Link>, NetlinkError> {
    let answers = match netlink.batch(vec![Ask::new("reading a link", message::get_link(name))]) {
        Ok(answers) => answers,
        Err(error) if error.errno() == Some(Errno::NODEV) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(answers.into_iter().find_map(|answer| {
        let RouteNetlinkMessage::NewLink(answer) = answer else { return None };
        let mut link = Link {
            index: answer.header.index,
            peer: None,
            mac: None,
            mtu: 0,
            up: answer.header.flags.contains(LinkFlags::Up),
        };
        for attribute in answer.attributes {
            match attribute {
                LinkAttribute::Link(peer) => link.peer = Some(peer),
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::Address(bytes) => link.mac = Mac::try_from(bytes.as_slice()).ok(),
                _ => {}
            }
        }
        Some(link)
    }))
}

/// The addresses of a link, filtered by the kernel.
///
/// # Errors
/// The kernel refused.
pub fn addresses(netlink: &mut Netlink, index: u32) -> Result<Vec<OnLink>, NetlinkError> {
    let mut ask = AddressMessage::default();
    ask.header.index = index;
    let answers = netlink.dump("reading addresses", &RouteNetlinkMessage::GetAddress(ask))?;
    let unusable = AddressFlags::Tentative | AddressFlags::Dadfailed;
    Ok(answers
        .into_iter()
        .filter_map(|answer| {
            let RouteNetlinkMessage::NewAddress(answer) = answer else { return None };
            let (mut local, mut address) = (None, None);
            let mut usable =
                !answer.header.flags.intersects(AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed);
            for attribute in answer.attributes {
                match attribute {
                    AddressAttribute::Local(ip) => local = Some(ip),
                    AddressAttribute::Address(ip) => address = Some(ip),
                    AddressAttribute::Flags(flags) => usable &= !flags.intersects(unusable),
                    _ => {}
                }
            }
            let address = IpNet::new(local.or(address)?, answer.header.prefix_len).ok()?;
            (answer.header.index == index).then_some(OnLink { address, usable })
        })
        .collect())
}

/// All unicast routes of the namespace, of every table: the sbr plugin moves a pod's routes into one of its own.
///
/// # Errors
/// The kernel refused.
pub fn routes(netlink: &mut Netlink, ipv6: bool) -> Result<Vec<RouteThere>, NetlinkError> {
    use netlink_packet_route::AddressFamily::{Inet, Inet6};
    let mut routes = Vec::new();
    for family in [Inet, Inet6].into_iter().filter(|f| *f == Inet || ipv6) {
        let mut ask = RouteMessage::default();
        ask.header.address_family = family;
        let answers = netlink.dump("reading routes", &RouteNetlinkMessage::GetRoute(ask))?;
        routes.extend(answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => unicast(&route),
            _ => None,
        }));
    }
    Ok(routes)
}

fn unicast(route: &RouteMessage) -> Option<RouteThere> {
    use netlink_packet_route::AddressFamily::Inet;
    if route.header.kind != RouteType::Unicast {
        return None;
    }
    let ip = |address: &RouteAddress| match address {
        RouteAddress::Inet(a) => Some(IpAddr::V4(*a)),
        RouteAddress::Inet6(a) => Some(IpAddr::V6(*a)),
        _ => None,
    };
    let inet = route.header.address_family == Inet;
    // A default route has no destination.
    let mut dst: IpAddr =
        if inet { std::net::Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let mut gw = None;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(address) => dst = ip(address)?,
            RouteAttribute::Gateway(address) => gw = ip(address),
            _ => {}
        }
    }
    Some(RouteThere { dst: IpNet::new(dst, route.header.destination_prefix_length).ok()?, gw })
}

/// The permanent neighbours of a link.
///
/// # Errors
/// The kernel refused.
pub fn permanent_neighbours(netlink: &mut Netlink, index: u32) -> Result<Vec<(IpAddr, Mac)>, NetlinkError> {
    let mut ask = NeighbourMessage::default();
    ask.attributes = vec![NeighbourAttribute::IfIndex(index)];
    let answers = netlink.dump("reading neighbours", &RouteNetlinkMessage::GetNeighbour(ask))?;
    Ok(answers
        .into_iter()
        .filter_map(|answer| {
            let RouteNetlinkMessage::NewNeighbour(answer) = answer else { return None };
            if answer.header.ifindex != index || answer.header.state != NeighbourState::Permanent {
                return None;
            }
            let (mut address, mut mac) = (None, None);
            for attribute in answer.attributes {
                match attribute {
                    NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => address = Some(IpAddr::V4(a)),
                    NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => address = Some(IpAddr::V6(a)),
                    NeighbourAttribute::LinkLayerAddress(bytes) => mac = Mac::try_from(bytes.as_slice()).ok(),
                    _ => {}
                }
            }
            address.zip(mac)
        })
        .collect())
}
