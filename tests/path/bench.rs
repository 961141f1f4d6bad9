//! Two nodes with the dataplane on them, and pods wired as the plugin would.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use osmia_lab::{Arrival, Lab, Options, Probe, Proto, Space, Subnet, Underlay};
use osmia_maps::layout::node::{N_OUTER_V6, N_PRESENT, N_TUNNEL};
use osmia_maps::layout::route::RouteKind;
use osmia_maps::layout::{Addr, DropReason, Node, Stat};

use crate::dataplane::{Dataplane, GATEWAY_MAC, addr};

/// How the nodes carry pods' packets to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carry {
    Native,
    Tunnel4,
    Tunnel6,
}

impl Carry {
    pub(crate) const fn overhead(self) -> u16 {
        match self {
            Self::Native => 0,
            Self::Tunnel4 => 50,
            Self::Tunnel6 => 70,
        }
    }

    /// Addresses that nodes know each other's packets by.
    const fn is_v6(self) -> bool {
        matches!(self, Self::Tunnel6)
    }
}

pub(crate) const WIRE_MTU: u16 = 1500;

pub(crate) struct Bench {
    pub(crate) lab: Lab,
    pub(crate) planes: Vec<Dataplane>,
    carry: Carry,
}

pub(crate) struct Pod {
    pub(crate) space: Space,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
    /// Of its host-side link.
    pub(crate) link: String,
}

impl Pod {
    pub(crate) fn address(&self, v6: bool) -> IpAddr {
        if v6 { self.v6.into() } else { self.v4.into() }
    }
}

/// Number of the other node in either node's table.
const OTHER: u16 = 2;

impl Bench {
    pub(crate) fn new(underlay: Underlay, carry: Carry) -> Result<Self> {
        let options =
            Options { underlay, nodes: vec![Subnet::Near, Subnet::Near], mtu: WIRE_MTU, ..Options::default() };
        let lab = Lab::build(options)?;
        let mtu = WIRE_MTU - carry.overhead();
        let mut planes = Vec::new();
        for node in &lab.nodes {
            planes.push(Dataplane::start(node, mtu).with_context(|| format!("start the dataplane of {}", node.name))?);
        }
        for (i, plane) in planes.iter_mut().enumerate() {
            let other = &lab.nodes[1 - i];
            plane.route(Ipv4Addr::new(10, 1, 0, 0), 16, RouteKind::Unowned, 0)?;
            plane.route(Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 0), 48, RouteKind::Unowned, 0)?;
            plane.route(block4(i), 24, RouteKind::LocalBlock, 0)?;
            plane.route(block6(i), 64, RouteKind::LocalBlock, 0)?;
            plane.route(block4(1 - i), 24, RouteKind::RemoteBlock, OTHER)?;
            plane.route(block6(1 - i), 64, RouteKind::RemoteBlock, OTHER)?;
            for v6 in [false, true] {
                plane.route(lab.nodes[i].address(v6), if v6 { 128 } else { 32 }, RouteKind::LocalNode, 0)?;
                plane.route(other.address(v6), if v6 { 128 } else { 32 }, RouteKind::RemoteNode, OTHER)?;
            }
            plane.node(OTHER, &row(&lab, i, plane.uplink, carry, mtu))?;
        }
        Ok(Self { lab, planes, carry })
    }

    /// A pod, ready.
    pub(crate) fn pod(&mut self, node: usize, name: &str) -> Result<Pod> {
        let (space, _attachment) = self.lab.sandbox(node, name)?;
        let plane = &mut self.planes[node];
        let slot = plane.next_slot();
        let link = format!("pod{slot}");
        let mtu = WIRE_MTU - self.carry.overhead();
        let v4 = Ipv4Addr::from(u32::from(block4(node)) + slot + 1);
        let v6 = Ipv6Addr::from(u128::from(block6(node)) + u128::from(slot) + 1);
        let host = &self.lab.nodes[node].space;
        host.ip(&format!(
            "link add {link} address {GATEWAY_MAC} mtu {mtu} type veth peer name eth0 mtu {mtu} address 02:00:00:00:00:{slot:02x} netns {}
link set {link} addrgenmode none up
",
            space.net_path().display()
        ))?;
        space.sysctl(&[("net/ipv6/conf/all/accept_dad", "0"), ("net/ipv6/conf/eth0/accept_dad", "0")])?;
        space.ip(&format!(
            "link set eth0 up
address add {v4}/32 dev eth0
address add {v6}/128 dev eth0 nodad
route add 169.254.1.1/32 dev eth0 scope link
route add default via 169.254.1.1
route add default via fe80::1 dev eth0
neighbour add 169.254.1.1 lladdr {GATEWAY_MAC} dev eth0 nud permanent
neighbour add fe80::1 lladdr {GATEWAY_MAC} dev eth0 nud permanent
"
        ))?;
        plane.endpoint(slot, &link, v4, v6)?;
        settled(&space, v6)?;
        Ok(Pod { space, v4, v6, link })
    }

    /// Drops of a node so far, by reason.
    pub(crate) fn drops(&self, node: usize) -> Result<Vec<(DropReason, u64)>> {
        self.planes[node].drops()
    }

    pub(crate) fn dropped(&self, node: usize, reason: DropReason) -> Result<u64> {
        Ok(self.drops(node)?.into_iter().find(|(r, _)| *r == reason).map_or(0, |(_, n)| n))
    }

    pub(crate) fn stat(&self, node: usize, stat: Stat) -> Result<u64> {
        self.planes[node].stat(stat)
    }

    /// What both nodes did and dropped, for messages.
    pub(crate) fn story(&self) -> String {
        let done = |i: usize| {
            Stat::ALL.iter().map(move |s| (s.name(), self.stat(i, *s).unwrap_or(0))).filter(|(_, n)| *n != 0)
        };
        let one =
            |i: usize| format!("n{} did {:?} and dropped {:?}; ", i + 1, done(i).collect::<Vec<_>>(), self.drops(i));
        (0..self.planes.len()).map(one).collect()
    }

    /// A probe that must come through whole, seen as from `peer`.
    pub(crate) fn passes(&self, proto: Proto, from: &Space, to: &Space, destination: IpAddr, peer: IpAddr) {
        let what = format!("{} from {} to {destination}", proto.name(), from.name());
        let arrival = probe(proto, from, to, destination, 4);
        if let Err(line) = arrival.complete(peer) {
            panic!("{what}: {line}; {}", self.story());
        }
    }
}

/// Waits until a namespace takes packets to its own address. Without DAD the kernel sends from a new IPv6 address at once, but its local route
/// is made by a worker (`addrconf_dad_work`) that waits for the RTNL lock; until then an answer is dropped (`Ip6InAddrErrors`).
fn settled(space: &Space, v6: Ipv6Addr) -> Result<()> {
    for _ in 0..500 {
        let route =
            space.output(Command::new("ip").args(["-6", "route", "show", "table", "local", &v6.to_string()]))?;
        if route.contains("local") {
            return Ok(());
        }
        sleep(Duration::from_millis(10));
    }
    bail!("{} has no local route for {v6} after 5 s", space.name())
}

/// Runs a probe; its receiver waits this many seconds at most.
pub(crate) fn probe(proto: Proto, from: &Space, to: &Space, destination: IpAddr, seconds: u64) -> Arrival {
    let probe = Probe { proto, from, to, destination, patience: Duration::from_secs(seconds) };
    probe.run().expect("the probe's sockets")
}

pub(crate) fn block4(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, node as u8 + 1, 0)
}

pub(crate) fn block6(node: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd01, 0, 0, node as u16 + 1, 0, 0, 0, 0)
}

/// The row of the other node in the table of node `i`.
fn row(lab: &Lab, i: usize, uplink: u32, carry: Carry, mtu: u16) -> Node {
    let (this, other) = (&lab.nodes[i], &lab.nodes[1 - i]);
    let (src, dst) = (this.address(carry.is_v6()), other.address(carry.is_v6()));
    let flags = match carry {
        Carry::Native => N_PRESENT,
        Carry::Tunnel4 => N_PRESENT | N_TUNNEL,
        Carry::Tunnel6 => N_PRESENT | N_TUNNEL | N_OUTER_V6,
    };
    Node {
        flags,
        uplink,
        mtu,
        zero: [0; 6],
        tunnel: addr(dst),
        next_hop4: addr(other.v4().into()),
        next_hop6: addr(other.v6().into()),
        next_hop_tunnel: if carry == Carry::Native { Addr::NONE } else { addr(dst) },
        outer: template(src, dst),
    }
}

/// The outer header as the agent writes it: lengths, IPv4 checksum, source port and inner EtherType zero.
fn template(src: IpAddr, dst: IpAddr) -> [u8; 72] {
    let mut bytes = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            [&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0][..], &src.octets(), &dst.octets()].concat()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            [&[0x60, 0, 0, 0, 0, 0, 17, 64][..], &src.octets(), &dst.octets()].concat()
        }
        _ => panic!("nodes of two families"),
    };
    bytes.extend([0, 0, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0]);
    bytes.extend([0x02, 0x6f, 0x73, 0x6d, 0, 3, 0x02, 0x6f, 0x73, 0x6d, 0, 2]);
    bytes.resize(72, 0);
    bytes.try_into().expect("72 bytes")
}

/// The object under test.
pub(crate) fn object() -> Result<PathBuf> {
    let path = std::env::var_os("OSMIA_OBJECT").context("OSMIA_OBJECT is not set: run `cargo xtask test path`")?;
    Ok(path.into())
}
