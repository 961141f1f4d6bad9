//! What netlink says of the node's own devices and ways.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

/// The underlay of this node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Underlay {
    /// Uplinks by ifindex.
    pub uplinks: BTreeMap<u32, UplinkState>,
    /// Way to each other node's address, one an address asked for.
    pub ways: BTreeMap<IpAddr, Way>,
    /// The addresses that were asked for. One without a way leads nowhere; one that is not here may do so yet.
    pub asked: BTreeSet<IpAddr>,
    /// Every address of this node, any device but ours.
    pub local_addresses: Vec<IpAddr>,
    /// Ifindex of `osmia0`, once it is there.
    pub door_host: u32,
    /// Ifindex of `osmia1`.
    pub door_pods: u32,
    /// Ifindex of the collect-metadata device, 0 without tunnel.
    pub tunnel_dev: u32,
    /// Whether this kernel has IPv6.
    pub ipv6: bool,
}

/// An uplink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UplinkState {
    /// Name.
    pub name: String,
    /// MTU, bytes.
    pub mtu: u32,
    /// MAC.
    pub mac: [u8; 6],
    /// Its addresses with prefix lengths, global scope first, in the kernel's order.
    pub addresses: Vec<IpNet>,
}

/// How the kernel would send to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Uplink.
    pub uplink: u32,
    /// Gateway, `None` where the address is on the link.
    pub gateway: Option<IpAddr>,
    /// Source address the kernel would take.
    pub source: Option<IpAddr>,
    /// MTU of this way, bytes.
    pub mtu: u32,
}
