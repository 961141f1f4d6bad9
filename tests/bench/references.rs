//! What Osmia is compared with: the mechanisms of the kernel that other plugins use, at their leanest.
//!
//! Addresses, gateway and permanent neighbours of the pods are as Osmia's, so that no neighbour discovery is in any figure.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Result, bail};
use osmia_lab::Space;

use crate::places::Pair;
use crate::programs::{hand_over, send_on};

/// Makes a veth a network card's: what is larger than the MTU is segmented when sent and merged when received.
pub(crate) const SEGMENT: [&str; 8] = ["gso", "off", "tso", "off", "tx-udp-segmentation", "off", "gro", "on"];

/// Every pod's device.
const DEVICE: &str = "eth0";
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// MAC of the node's end of every pod link.
const GATEWAY_MAC: &str = "02:00:00:00:00:01";
/// The wire between two nodes.
const WIRE: &str = "wire";
const TUNNEL: &str = "vxlan9";
/// Bytes that VXLAN over IPv4 takes of the MTU.
const OUTER: u16 = 50;
const MTU: u16 = 1500;

/// What a node with kube-proxy and a network policy engine has at the least: NAT hooks, conntrack, established passes first.
const CONNTRACK: &str = "table ip bench {
  chain prerouting { type nat hook prerouting priority -100; }
  chain postrouting { type nat hook postrouting priority 100; }
  chain forward {
    type filter hook forward priority 0; policy accept;
    ct state established,related accept
  }
}
";

/// Pod `number` of a node that has pods 10.98.`node`.0/24.
const fn pod_address(node: u8, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 98, node, number)
}

fn pod_mac(node: u8, number: u8) -> String {
    format!("02:00:00:00:{node:02x}:{:02x}", 0x10 + number)
}

/// One veth pair.
pub(crate) fn direct(name: &'static str) -> Result<Pair> {
    let (from, to) = (Space::network("osm-direct-a")?, Space::network("osm-direct-b")?);
    let ends = [(&from, pod_address(0, 1), pod_mac(0, 1)), (&to, pod_address(0, 2), pod_mac(0, 2))];
    let [(_, _, a), (_, _, b)] = &ends;
    from.ip(&format!(
        "link add {DEVICE} address {a} mtu {MTU} type veth peer name {DEVICE} address {b} mtu {MTU} netns {}\n",
        to.net_path().display()
    ))?;
    let [one, two] = &ends;
    for ((space, address, _), (_, other, mac)) in [(one, two), (two, one)] {
        space.ip(&format!(
            "address add {address}/24 dev {DEVICE}\nlink set {DEVICE} up\n\
             neigh replace {other} lladdr {mac} dev {DEVICE} nud permanent\n"
        ))?;
    }
    Ok(pair(name, pod_address(0, 2), from, to, Vec::new()))
}

/// Two pods of a node where a program hands every packet to the other pod.
pub(crate) fn handed_over(name: &'static str) -> Result<Pair> {
    let node = Space::network("osm-peer")?;
    let from = pod(&node, 1, 1, MTU)?;
    let to = pod(&node, 1, 2, MTU)?;
    let links = vec![hand_over(&node, "pod1", "pod2")?, hand_over(&node, "pod2", "pod1")?];
    Ok(Pair { _links: links, ..pair(name, pod_address(1, 2), from, to, vec![node]) })
}

/// A pod on each of two nodes whose programs send every packet on.
pub(crate) fn sent_on(name: &'static str) -> Result<Pair> {
    let nodes = [Space::network("osm-neigh-a")?, Space::network("osm-neigh-b")?];
    let [a, b] = &nodes;
    wire(a, b)?;
    let (from, to) = (pod(a, 1, 1, MTU)?, pod(b, 2, 2, MTU)?);
    let links = vec![
        send_on(a, "pod1", WIRE, wire_address(2))?,
        hand_over(b, WIRE, "pod2")?,
        send_on(b, "pod2", WIRE, wire_address(1))?,
        hand_over(a, WIRE, "pod1")?,
    ];
    Ok(Pair { _links: links, ..pair(name, pod_address(2, 2), from, to, nodes.into()) })
}

/// Two pods of a node that routes by host routes, with conntrack.
pub(crate) fn one_node(name: &'static str) -> Result<Pair> {
    let node = node("osm-node", true)?;
    let from = pod(&node, 1, 1, MTU)?;
    let to = pod(&node, 1, 2, MTU)?;
    Ok(pair(name, pod_address(1, 2), from, to, vec![node]))
}

/// How two nodes are joined.
#[derive(Clone, Copy)]
pub(crate) struct Nodes {
    /// By the kernel's VXLAN device and routes, else by routes alone.
    pub(crate) vxlan: bool,
    /// With conntrack and NAT hooks.
    pub(crate) conntrack: bool,
    /// Over a wire that segments and merges.
    pub(crate) segment: bool,
}

/// A pod on each of two nodes.
pub(crate) fn two_nodes(name: &'static str, how: Nodes) -> Result<Pair> {
    let nodes = [node("osm-node-a", how.conntrack)?, node("osm-node-b", how.conntrack)?];
    let [a, b] = &nodes;
    wire(a, b)?;
    let mtu = if how.vxlan { MTU - OUTER } else { MTU };
    for (space, own, other) in [(a, 1, 2), (b, 2, 1)] {
        let (own_wire, other_wire) = (wire_address(own), wire_address(other));
        let others = format!("10.98.{other}.0");
        if how.segment {
            space.output(Command::new("ethtool").args(["-K", WIRE]).args(SEGMENT))?;
        }
        if how.vxlan {
            let mac = |node| format!("02:00:00:09:00:{node:02x}");
            let (own_mac, other_mac) = (mac(own), mac(other));
            space.ip(&format!(
                "link add {TUNNEL} address {own_mac} mtu {mtu} type vxlan id 9 dstport 4789 local {own_wire} dev {WIRE} nolearning\n\
                 address add 10.98.{own}.0/32 dev {TUNNEL}\n\
                 link set {TUNNEL} up\n\
                 neigh replace {others} lladdr {other_mac} dev {TUNNEL} nud permanent\n\
                 route add {others}/24 via {others} dev {TUNNEL} onlink\n"
            ))?;
            space.output(
                Command::new("bridge")
                    .args(["fdb", "append", &other_mac, "dev", TUNNEL, "dst"])
                    .arg(other_wire.to_string()),
            )?;
        } else {
            space.ip(&format!("route add {others}/24 via {other_wire}\n"))?;
        }
    }
    let from = pod(a, 1, 1, mtu)?;
    let to = pod(b, 2, 2, mtu)?;
    Ok(pair(name, pod_address(2, 2), from, to, nodes.into()))
}

/// Joins two nodes.
fn wire(a: &Space, b: &Space) -> Result<()> {
    let peer = b.net_path();
    a.ip(&format!(
        "link add {WIRE} address {} mtu {MTU} type veth peer name {WIRE} address {} mtu {MTU} netns {}\n",
        wire_mac(1),
        wire_mac(2),
        peer.display()
    ))?;
    for (space, own, other) in [(a, 1, 2), (b, 2, 1)] {
        space.ip(&format!(
            "address add {}/24 dev {WIRE}\nlink set {WIRE} up\nneigh replace {} lladdr {} dev {WIRE} nud permanent\n",
            wire_address(own),
            wire_address(other),
            wire_mac(other)
        ))?;
    }
    Ok(())
}

const fn wire_address(node: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 31, 9, node)
}

fn wire_mac(node: u8) -> String {
    format!("02:00:00:08:00:{node:02x}")
}

fn pair(name: &'static str, address: Ipv4Addr, from: Space, to: Space, between: Vec<Space>) -> Pair {
    Pair { name, device: DEVICE.into(), address: address.into(), from, to, _between: between, _links: Vec::new() }
}

/// A node that routes.
fn node(name: &str, conntrack: bool) -> Result<Space> {
    let space = Space::network(name)?;
    space.sysctl(&[("net/ipv4/ip_forward", "1")])?;
    if conntrack {
        let out = space.feed(Command::new("nft").args(["-f", "-"]), CONNTRACK)?;
        if !out.status.success() {
            bail!("nft in {name}: {}", out.text());
        }
        // Connections that are over would fill the table, which the whole machine shares.
        space.sysctl(&[("net/netfilter/nf_conntrack_tcp_timeout_time_wait", "1")])?;
    }
    Ok(space)
}

/// A pod with a host route on its node.
fn pod(node: &Space, node_number: u8, number: u8, mtu: u16) -> Result<Space> {
    let space = Space::network(format!("osm-pod-{number}"))?;
    let (address, mac) = (pod_address(node_number, number), pod_mac(node_number, number));
    node.ip(&format!(
        "link add pod{number} address {GATEWAY_MAC} mtu {mtu} type veth peer name {DEVICE} address {mac} mtu {mtu} netns {}\n\
         link set pod{number} up\n",
        space.net_path().display()
    ))?;
    space.ip(&format!(
        "address add {address}/32 dev {DEVICE}\n\
         link set {DEVICE} up\n\
         route add {GATEWAY} dev {DEVICE} scope link\n\
         route add default via {GATEWAY}\n\
         neigh replace {GATEWAY} lladdr {GATEWAY_MAC} dev {DEVICE} nud permanent\n"
    ))?;
    node.ip(&format!(
        "route add {address} dev pod{number}\n\
         neigh replace {address} lladdr {mac} dev pod{number} nud permanent\n"
    ))?;
    Ok(space)
}
