//! Beside kube-proxy: what a pod sends to the service range goes through its node's stack, which rewrites it (DNAT by nft) and has the
//! answer's address put back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use osmia_lab::{Encap, Lab, Options, Pod, Space, Underlay};

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
fn dnat(node: &Space, service: IpAddr, backend: IpAddr) {
    let family = if backend.is_ipv4() { "ip" } else { "ip6" };
    let rules = format!(
        "table {family} service\ndelete table {family} service\ntable {family} service {{
            chain before {{ type nat hook prerouting priority dstnat; {family} daddr {service} dnat to {backend}; }}
        }}\n"
    );
    let ended = node.feed(Command::new("nft").args(["-f", "-"]), &rules).expect("nft");
    assert!(ended.status.success(), "{}", ended.text());
}

fn a_service_reaches_its_pods(encap: Encap, underlay: Underlay) {
    let agent_flags = vec!["--service-cidr".to_owned(), RANGES.to_owned()];
    let stage = Stage::prepared(Options { encap, underlay, agent_flags, ..Options::default() }, forwards);
    let (client, near, far) = (stage.pod(0, "client"), stage.pod(0, "near"), stage.pod(1, "far"));
    let mtu = mtu(&client.space);
    for v6 in [false, true] {
        let service = if v6 { SERVICE6.into() } else { SERVICE4.into() };
        let address = |pod: &Pod| pod.address(v6).expect("an address of the family");
        for backend in [&near, &far] {
            dnat(&stage.lab.nodes[0].space, service, address(backend));
            let way = Way { from: &client.space, to: &backend.space, destination: service, listen: address(backend) };
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
