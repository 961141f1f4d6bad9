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
    /// The kernel's routes that what leaves the cluster goes by, sorted: flows remember the answer they got.
    pub exits: Vec<Exit>,
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

/// A route over an uplink, or to nowhere. What matters is whether it is another one than before.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Exit {
    /// Number of its table.
    pub table: u32,
    /// Destination; `None` for a default route.
    pub to: Option<IpNet>,
    /// 4 or 6 for a default route.
    pub family: u8,
    /// Metric (RTA_PRIORITY).
    pub metric: u32,
    /// Type (rtm_type).
    pub kind: u8,
    /// Ifindex and gateway of each hop.
    pub hops: Vec<(u32, Option<IpAddr>)>,
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
