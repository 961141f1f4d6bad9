//! Beside kube-proxy: what a pod sends to the service range, and what the outside sends to a node's port, goes through the node's stack,
//! which rewrites it (DNAT by nft) and puts the address back in the answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use osmia_lab::{Encap, Lab, Options, Pod, Space, UPLINK, Underlay};

use crate::exchange::Way;
use crate::stage::{Stage, mtu};

const SERVICE4: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
const SERVICE6: Ipv6Addr = Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, 10);
const RANGES: &str = "10.96.0.0/16,fd96::/112";

/// What kube-proxy asks of a node.
fn forwards(lab: &Lab) {
    let settings = [("net/ipv4/ip_forward", "1"), ("net/ipv6/conf/all/forwarding", "1")];
    lab.nodes[0].space.sysctl(&settings).expect("forwarding");
}

/// Every packet to the service goes to `backend`.
fn service(node: &Space, service: IpAddr, backend: IpAddr) {
    let family = family(backend);
    nft(node, family, &format!("chain before {{ {BEFORE} {family} daddr {service} dnat to {backend}; }}"));
}

/// What the outside sends to the node goes to `backend`, as from the node. Its tunnel port stays its own.
fn node_ports(node: &Space, address: IpAddr, backend: IpAddr) {
    let family = family(backend);
    let outside = format!("iifname {UPLINK} {family} daddr {address} meta l4proto {{ tcp, udp }} th dport != 4789");
    let chains = format!(
        "chain before {{ {BEFORE} {outside} dnat to {backend}; }}
         chain after {{ type nat hook postrouting priority srcnat; iifname {UPLINK} ct status dnat masquerade; }}"
    );
    nft(node, family, &chains);
}

const BEFORE: &str = "type nat hook prerouting priority dstnat;";

const fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ip" } else { "ip6" }
}

/// Sets the chains, in place of earlier ones.
fn nft(node: &Space, family: &str, chains: &str) {
    let table = format!("table {family} service");
    let rules = format!("{table}\ndelete {table}\n{table} {{\n{chains}\n}}\n");
    let ended = node.feed(Command::new("nft").args(["-f", "-"]), &rules).expect("nft");
    assert!(ended.status.success(), "{}", ended.text());
}

fn a_service_reaches_its_pods(encap: Encap, underlay: Underlay) {
    let agent_flags = vec!["--service-cidr".to_owned(), RANGES.to_owned()];
    let stage = Stage::prepared(Options { encap, underlay, agent_flags, ..Options::default() }, forwards);
    let (client, near, far) = (stage.pod(0, "client"), stage.pod(0, "near"), stage.pod(1, "far"));
    let mtu = mtu(&client.space);
    for v6 in [false, true] {
        let virtual_address = if v6 { SERVICE6.into() } else { SERVICE4.into() };
        let address = |pod: &Pod| pod.address(v6).expect("an address of the family");
        for backend in [&near, &far] {
            service(&stage.lab.nodes[0].space, virtual_address, address(backend));
            let way =
                Way { from: &client.space, to: &backend.space, destination: virtual_address, listen: address(backend) };
            // Sockets are connected to the service: an answer with another source would not be theirs.
            stage.streams(&way, mtu, address(&client));
        }
    }
}

#[test]
fn a_service_reaches_pods_here_and_there_as_they_are() {
    a_service_reaches_its_pods(Encap::Native, Underlay::Passing);
}

#[test]
fn a_service_reaches_pods_here_and_there_in_the_tunnel() {
    a_service_reaches_its_pods(Encap::Vxlan, Underlay::Passing);
}

#[test]
fn a_service_reaches_pods_here_and_there_over_a_segmenting_wire() {
    a_service_reaches_its_pods(Encap::Vxlan, Underlay::Segmenting);
}

/// A port of the node that stands for a pod of another one, as NodePort services have it: both addresses are rewritten.
#[test]
fn a_port_of_the_node_reaches_a_pod_on_another_over_a_segmenting_wire() {
    let options = Options { encap: Encap::Vxlan, underlay: Underlay::Segmenting, ..Options::default() };
    let stage = Stage::prepared(options, forwards);
    let far = stage.pod(1, "far");
    let mtu = mtu(&far.space);
    for v6 in [false, true] {
        let (node, pod) = (stage.lab.nodes[0].address(v6), far.address(v6).expect("an address of the family"));
        node_ports(&stage.lab.nodes[0].space, node, pod);
        let outside = &stage.lab.lan.outside;
        let way = Way { from: outside, to: &far.space, destination: node, listen: pod };
        stage.streams(&way, mtu, node);
    }
}
