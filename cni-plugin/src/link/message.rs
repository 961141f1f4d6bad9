//! The netlink messages, typed, one function each.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkExtentMask, LinkFlags,
    LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::spec::Mac;

/// `RT_TABLE_LOCAL` of linux/rtnetlink.h.
const LOCAL_TABLE: u8 = 255;

/// One end of a veth, before it exists.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its MTU, bytes.
    pub mtu: u32,
}

impl End<'_> {
    fn attributes(&self) -> Vec<LinkAttribute> {
        vec![
            LinkAttribute::IfName(self.name.to_owned()),
            LinkAttribute::Mtu(self.mtu),
            LinkAttribute::Address(self.mac.0.to_vec()),
        ]
    }
}

/// A veth whose peer is born in another namespace under its final name, MAC and MTU. Moving it there costs 17 ms instead.
#[must_use]
pub fn new_veth(host: &End<'_>, peer: &End<'_>, namespace: BorrowedFd<'_>) -> RouteNetlinkMessage {
    let mut inside = LinkMessage::default();
    inside.attributes = peer.attributes();
    inside.attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
    let mut message = LinkMessage::default();
    message.attributes = host.attributes();
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(inside))),
    ]));
    RouteNetlinkMessage::NewLink(message)
}

/// No IPv6 address is ever made up for the host's end. Before it is up: a link-local address would be there at once.
#[must_use]
pub fn no_address_generation(name: &str) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    let mode = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    message.attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::AfSpecUnspec(vec![mode])];
    RouteNetlinkMessage::SetLink(message)
}

/// Brings a link up, by name.
#[must_use]
pub fn up(name: &str) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
    RouteNetlinkMessage::SetLink(message)
}

/// Asks for one link, by name, without its statistics.
#[must_use]
pub fn get_link(name: &str) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.attributes =
        vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]), LinkAttribute::IfName(name.to_owned())];
    RouteNetlinkMessage::GetLink(message)
}

/// Deletes a link, by name.
#[must_use]
pub fn delete_link(name: &str) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
    RouteNetlinkMessage::DelLink(message)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// A pod's address: /32, or /128 without duplicate address detection (for a second the pod could not send) and without a route to
/// itself in the main table.
#[must_use]
pub fn new_address(index: u32, address: IpAddr) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.index = index;
    message.header.scope = AddressScope::Universe;
    message.header.prefix_len = if address.is_ipv4() { 32 } else { 128 };
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    if address.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad | AddressFlags::Noprefixroute));
    }
    RouteNetlinkMessage::NewAddress(message)
}

/// A neighbour that never has to be asked for.
#[must_use]
pub fn new_neighbour(index: u32, address: IpAddr, mac: Mac) -> RouteNetlinkMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    let destination = match address {
        IpAddr::V4(a) => NeighbourAddress::Inet(a),
        IpAddr::V6(a) => NeighbourAddress::Inet6(a),
    };
    message.attributes =
        vec![NeighbourAttribute::Destination(destination), NeighbourAttribute::LinkLayerAddress(mac.0.to_vec())];
    RouteNetlinkMessage::NewNeighbour(message)
}

fn route(index: u32, family: AddressFamily, scope: RouteScope) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Boot;
    message.header.scope = scope;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![RouteAttribute::Oif(index)];
    message
}

fn route_address(address: IpAddr) -> RouteAttribute {
    RouteAttribute::Gateway(match address {
        IpAddr::V4(a) => RouteAddress::Inet(a),
        IpAddr::V6(a) => RouteAddress::Inet6(a),
    })
}

/// The IPv4 gateway is on the link, though no prefix says so. IPv6 needs no such route for a link-local one.
#[must_use]
pub fn new_link_route(index: u32, gateway: std::net::Ipv4Addr) -> RouteNetlinkMessage {
    let mut message = route(index, AddressFamily::Inet, RouteScope::Link);
    message.header.destination_prefix_length = 32;
    message.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(gateway)));
    RouteNetlinkMessage::NewRoute(message)
}

/// What comes for a pod's IPv6 address is for the pod. The kernel says the same of each address, but for one without duplicate address
/// detection in a worker (`addrconf_dad_work`, net/ipv6/addrconf.c), which waits for a lock while other pods start: until then the pod
/// would not answer.
#[must_use]
pub fn new_local_route(index: u32, address: std::net::Ipv6Addr) -> RouteNetlinkMessage {
    let mut message = route(index, AddressFamily::Inet6, RouteScope::Universe);
    message.header.table = LOCAL_TABLE;
    message.header.kind = RouteType::Local;
    message.header.destination_prefix_length = 128;
    message.attributes.push(RouteAttribute::Destination(RouteAddress::Inet6(address)));
    RouteNetlinkMessage::NewRoute(message)
}

/// The default route of the gateway's family.
#[must_use]
pub fn new_default_route(index: u32, gateway: IpAddr) -> RouteNetlinkMessage {
    let mut message = route(index, family(gateway), RouteScope::Universe);
    message.attributes.push(route_address(gateway));
    RouteNetlinkMessage::NewRoute(message)
}
