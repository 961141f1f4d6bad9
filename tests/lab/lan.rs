//! The world around the nodes: two subnets, a router between them, and a host outside the cluster.
//!
//! ```text
//!   n1 ─┐                                   (172.30.1.0/24, fd30:0:0:1::/64)
//!   n2 ─┴─ bridge near ─┐
//!                       ├─ router ── outside  (203.0.113.0/24, 2001:db8::/64)
//!   n3 ─── bridge far ──┘                   (172.30.2.0/24, fd30:0:0:2::/64)
//! ```
//!
//! The router knows no pod range: what a pod sends outside comes back only by masquerade, and what goes natively across subnets is
//! lost. All bridges live in one namespace, where a capture sees every frame between nodes.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Result;

use crate::options::Families;
use crate::space::Space;

/// A subnet that nodes stand in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subnet {
    /// The first.
    Near,
    /// Behind the router.
    Far,
}

impl Subnet {
    const fn number(self) -> u8 {
        match self {
            Self::Near => 1,
            Self::Far => 2,
        }
    }

    const fn bridge(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }

    /// Address of the node with this number.
    #[must_use]
    pub const fn v4(self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(172, 30, self.number(), host)
    }

    /// As [`Self::v4`].
    #[must_use]
    pub const fn v6(self, host: u8) -> Ipv6Addr {
        Ipv6Addr::new(0xfd30, 0, 0, self.number() as u16, 0, 0, 0, host as u16)
    }
}

/// The router's number in each subnet.
const ROUTER: u8 = 254;
/// The outside host.
pub const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// The outside host.
pub const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
const OUTSIDE_ROUTER_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 254);
const OUTSIDE_ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 254);
/// A node's uplink.
pub const UPLINK: &str = "eth0";

/// Bridges, router and outside host.
#[derive(Debug)]
pub struct Lan {
    /// Where the bridges are.
    pub bridges: Space,
    /// The router.
    pub router: Space,
    /// The host outside the cluster.
    pub outside: Space,
    mtu: u16,
}

impl Lan {
    /// Builds it. `mtu` is that of every device, in bytes.
    ///
    /// # Errors
    /// A namespace or a device was refused.
    pub fn build(mtu: u16) -> Result<Self> {
        let bridges = Space::network("lan")?;
        let router = Space::network("router")?;
        let outside = Space::network("outside")?;
        for space in [&bridges, &router, &outside] {
            quick_addresses(space)?;
        }
        bridges.sysctl(&[("net/ipv6/conf/all/disable_ipv6", "1"), ("net/ipv6/conf/default/disable_ipv6", "1")])?;
        let forward = [("net/ipv4/ip_forward", "1"), ("net/ipv6/conf/all/forwarding", "1")];
        router.sysctl(&forward)?;
        let (to_router, to_outside) = (router.net_path(), outside.net_path());
        let (to_router, to_outside) = (to_router.display(), to_outside.display());
        bridges.ip(&format!(
            "link add near type bridge mcast_snooping 0
link add far type bridge mcast_snooping 0
link add near-r mtu {mtu} type veth peer name near mtu {mtu} netns {to_router}
link add far-r mtu {mtu} type veth peer name far mtu {mtu} netns {to_router}
link set near-r master near up
link set far-r master far up
link set near up
link set far up
"
        ))?;
        let [n4, n6] = [Subnet::Near.v4(ROUTER).to_string(), Subnet::Near.v6(ROUTER).to_string()];
        let [f4, f6] = [Subnet::Far.v4(ROUTER).to_string(), Subnet::Far.v6(ROUTER).to_string()];
        router.ip(&format!(
            "link add outside mtu {mtu} type veth peer name {UPLINK} mtu {mtu} netns {to_outside}
address add {n4}/24 dev near
address add {n6}/64 dev near nodad
address add {f4}/24 dev far
address add {f6}/64 dev far nodad
address add {OUTSIDE_ROUTER_V4}/24 dev outside
address add {OUTSIDE_ROUTER_V6}/64 dev outside nodad
link set near up
link set far up
link set outside up
"
        ))?;
        outside.ip(&format!(
            "address add {OUTSIDE_V4}/24 dev {UPLINK}
address add {OUTSIDE_V6}/64 dev {UPLINK} nodad
link set {UPLINK} up
route add default via {OUTSIDE_ROUTER_V4}
route add default via {OUTSIDE_ROUTER_V6}
"
        ))?;
        Ok(Self { bridges, router, outside, mtu })
    }

    /// Gives the node with number `host` its uplink, and an address and a default route of each family that `families` gives nodes.
    pub(crate) fn plug(&self, node: &Space, subnet: Subnet, host: u8, families: Families) -> Result<()> {
        let (mtu, bridge, path) = (self.mtu, subnet.bridge(), node.net_path());
        self.bridges.ip(&format!(
            "link add node{host} mtu {mtu} type veth peer name {UPLINK} mtu {mtu} netns {}
link set node{host} master {bridge} up
",
            path.display()
        ))?;
        let (mut addresses, mut routes) = (String::new(), String::new());
        if families.nodes_v4() {
            addresses += &format!("address add {}/24 dev {UPLINK}\n", subnet.v4(host));
            routes += &format!("route add default via {}\n", subnet.v4(ROUTER));
        }
        if families.nodes_v6() {
            addresses += &format!("address add {}/64 dev {UPLINK} nodad\n", subnet.v6(host));
            routes += &format!("route add default via {}\n", subnet.v6(ROUTER));
        }
        node.ip(&format!("{addresses}link set {UPLINK} up\n{routes}"))
    }
}

impl Lan {
    /// Gives a node a second uplink `device` in `subnet`, with addresses of number `host` and default routes that the first one's precede.
    ///
    /// # Errors
    /// The kernel refused, such as for a number that is taken.
    pub fn plug_second(&self, node: &Space, subnet: Subnet, host: u8, device: &str) -> Result<()> {
        let (mtu, bridge, path) = (self.mtu, subnet.bridge(), node.net_path());
        self.bridges.ip(&format!(
            "link add node{host} mtu {mtu} type veth peer name {device} mtu {mtu} netns {}
link set node{host} master {bridge} up
",
            path.display()
        ))?;
        node.ip(&format!(
            "address add {}/24 dev {device}
address add {}/64 dev {device} nodad
link set {device} up
route add default via {} metric 2000
route add default via {} metric 2000
",
            subnet.v4(host),
            subnet.v6(host),
            subnet.v4(ROUTER),
            subnet.v6(ROUTER)
        ))
    }
}

/// Addresses are usable at once: no duplicate address detection, no router advertisements.
pub(crate) fn quick_addresses(space: &Space) -> Result<()> {
    let mut settings = Vec::new();
    for name in ["accept_dad", "accept_ra"] {
        for scope in ["all", "default"] {
            settings.push(format!("net/ipv6/conf/{scope}/{name}"));
        }
    }
    let settings: Vec<_> = settings.iter().map(|name| (name.as_str(), "0")).collect();
    space.sysctl(&settings)
}
