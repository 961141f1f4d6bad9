//! The pods' gateway: link-local, the same for every pod of every node, answered by the dataplane.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// For IPv4.
pub const V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// For IPv6.
pub const V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Of an address's family.
#[must_use]
pub fn of(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { IpAddr::V4(V4) } else { IpAddr::V6(V6) }
}

/// The default route's destination, of an address's family.
#[must_use]
pub fn everything(address: IpAddr) -> IpNet {
    if address.is_ipv4() { Ipv4Net::default().into() } else { Ipv6Net::default().into() }
}
