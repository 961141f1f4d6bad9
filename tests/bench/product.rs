//! Osmia as it ships, with policy in force: the lab's nodes with agents, pods by the plugin.
//!
//! The lab's LAN is a bridge, which costs more than what is measured. Here two nodes are joined by one veth pair, as the references'
//! nodes are.
//!
//! Invariant: every product that is handed out isolates the load's ends in both directions, and what it must refuse it has refused; it has as
//! many policies and ranges as it is called by.

mod count;
mod rules;

use std::process::Command;

use anyhow::{Context, Result, ensure};
use osmia_lab::{Encap, Lab, Options, POD_NAMESPACE, Pod, Proto, Server, Subnet, UPLINK, Underlay};

pub(crate) use self::count::PolicyRows;
use self::rules::Ends;
pub(crate) use self::rules::{LAST_PORT, Rules};
use crate::hook::Hook;
use crate::places::Pair;
use crate::probe::PORT;
use crate::references::SEGMENT;

/// MTU of the wire, bytes.
const MTU: u16 = 1500;

/// Two pods that are isolated and one that is not on a node; another that is isolated on a second node.
pub(crate) struct Product {
    pub(crate) lab: Lab,
    client: Pod,
    neighbour: Pod,
    stranger: Pod,
    /// `None`: there is one node.
    remote: Option<Pod>,
}

impl Product {
    /// Where there is more than one policy, on one node.
    pub(crate) fn build(encap: Encap, underlay: Underlay, rules: Rules) -> Result<Self> {
        let two = rules == Rules::One;
        let nodes = vec![Subnet::Near; if two { 2 } else { 1 }];
        let lab = Lab::build(Options { encap, underlay, mtu: MTU, nodes, ..Options::default() })?;
        if two {
            join(&lab, underlay)?;
        }
        lab.start_agents()?;
        let client = pod(&lab, 0, "client", "client")?;
        let neighbour = pod(&lab, 0, "neighbour", "server")?;
        let stranger = pod(&lab, 0, "stranger", "stranger")?;
        let remote = if two { Some(pod(&lab, 1, "remote", "server")?) } else { None };
        let product = Self { lab, client, neighbour, stranger, remote };
        product.enforce(rules).context("bring policy into force")?;
        Ok(product)
    }

    /// From a pod to another one of its node.
    pub(crate) fn same_node(&self, name: &'static str) -> Result<Pair> {
        self.pair(name, &self.neighbour)
    }

    /// From a pod to one of the other node.
    pub(crate) fn across(&self, name: &'static str) -> Result<Pair> {
        self.pair(name, self.remote.as_ref().context("there is no other node")?)
    }

    /// The program at the client's link, and the one at its neighbour's.
    pub(crate) fn hooks(&self) -> Result<[Hook; 2]> {
        let node = self.lab.node(0)?;
        Ok([Hook::of(node, &self.client, &self.neighbour)?, Hook::of(node, &self.neighbour, &self.client)?])
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

    fn servers(&self) -> impl Iterator<Item = &Pod> {
        [&self.neighbour].into_iter().chain(&self.remote)
    }

    fn enforce(&self, rules: Rules) -> Result<()> {
        let servers = self.servers().map(|pod| pod.address(false)).collect::<Result<_>>()?;
        let ends = Ends { client: self.client.address(false)?, servers };
        for (file, text) in rules.others() {
            self.lab.write(file, &text)?;
        }
        self.lab.enforce(POD_NAMESPACE, "load", &rules.load(&ends))?;
        for node in &self.lab.nodes {
            count::check(node, rules)?;
        }
        for server in self.servers() {
            twin(&self.client, server, PORT, true)?;
            twin(&self.client, server, LAST_PORT, false)?;
            twin(&self.stranger, server, PORT, false)?;
            twin(server, &self.stranger, PORT, false)?;
        }
        twin(&self.client, &self.stranger, PORT, false)
    }
}

/// That a datagram arrives or does not, as its receiver sees it.
fn twin(from: &Pod, to: &Pod, port: u16, arrives: bool) -> Result<()> {
    let server = Server::start(&to.space, Proto::Udp, port)?;
    let arrived = server.hears(&from.space, to.address(false)?, arrives)?;
    let word = if arrived { "reaches" } else { "does not reach" };
    ensure!(arrived == arrives, "{} {word} {} on port {port}: policy is not in force as written", from.name, to.name);
    Ok(())
}

fn pod(lab: &Lab, node: usize, name: &str, role: &str) -> Result<Pod> {
    let mut object = lab.object(node, POD_NAMESPACE, name, &[("role", role)])?;
    lab.add_told(node, &mut object)
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
