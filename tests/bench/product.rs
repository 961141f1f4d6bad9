//! Osmia as it ships: two of the lab's nodes with agents, pods by the plugin.
//!
//! The lab's LAN is a bridge, which costs more than what is measured. Here the two nodes are joined by one veth pair, as the references'
//! nodes are.

use std::process::Command;

use anyhow::Result;
use osmia_lab::{Encap, Lab, Options, Pod, Subnet, UPLINK, Underlay};

use crate::places::Pair;
use crate::references::SEGMENT;

/// MTU of the wire, bytes.
const MTU: u16 = 1500;

/// Two nodes, two pods on the first, one on the second.
pub(crate) struct Product {
    pub(crate) lab: Lab,
    client: Pod,
    neighbour: Pod,
    remote: Pod,
}

impl Product {
    pub(crate) fn build(encap: Encap, underlay: Underlay) -> Result<Self> {
        let options =
            Options { encap, underlay, mtu: MTU, nodes: vec![Subnet::Near, Subnet::Near], ..Options::default() };
        let lab = Lab::build(options)?;
        join(&lab, underlay)?;
        lab.start_agents()?;
        let client = lab.add_pod(0, "client")?;
        let neighbour = lab.add_pod(0, "neighbour")?;
        let remote = lab.add_pod(1, "remote")?;
        Ok(Self { lab, client, neighbour, remote })
    }

    /// From a pod to another one of its node.
    pub(crate) fn same_node(&self, name: &'static str) -> Result<Pair> {
        self.pair(name, &self.neighbour)
    }

    /// From a pod to one of the other node.
    pub(crate) fn across(&self, name: &'static str) -> Result<Pair> {
        self.pair(name, &self.remote)
    }

    fn pair(&self, name: &'static str, to: &Pod) -> Result<Pair> {
        Ok(Pair {
            name,
            from: self.client.space.try_clone()?,
            to: to.space.try_clone()?,
            device: to.attachment.ifname.clone(),
            address: to.address(false)?,
            _between: Vec::new(),
            _links: Vec::new(),
        })
    }
}

/// Puts a veth pair in the place of both nodes' uplinks to the LAN.
fn join(lab: &Lab, underlay: Underlay) -> Result<()> {
    let (one, two) = (lab.node(0)?, lab.node(1)?);
    for node in [one, two] {
        node.space.ip(&format!("link del {UPLINK}\n"))?;
    }
    let peer = two.space.net_path();
    let peer = peer.display();
    one.space.ip(&format!("link add {UPLINK} mtu {MTU} type veth peer name {UPLINK} mtu {MTU} netns {peer}\n"))?;
    for node in [one, two] {
        let (v4, v6) = (node.v4(), node.v6());
        node.space.ip(&format!(
            "address add {v4}/24 dev {UPLINK}\naddress add {v6}/64 dev {UPLINK} nodad\nlink set {UPLINK} up\n"
        ))?;
        if underlay == Underlay::Segmenting {
            node.space.output(Command::new("ethtool").args(["-K", UPLINK]).args(SEGMENT))?;
        }
    }
    Ok(())
}
