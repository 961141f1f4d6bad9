//! A node with an uplink in each subnet. What it sends leaves by the one that its routes name, what it gets arrives on either.

use std::fs;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use osmia_lab::load::Stream;
use osmia_lab::{Encap, Lab, OUTSIDE_V4, OUTSIDE_V6, Options, Pod, Probe, Proto, Space, Subnet, UPLINK};

use crate::exchange::Exchange;
use crate::stage::{becomes, pod, story};

const SECOND: &str = "eth1";
/// Number of n1 in the other subnet.
const NUMBER: u8 = 101;
/// The router's in each.
const ROUTER: u8 = 254;

/// n1 in both subnets, n2 beside it in the one, n3 in the other, whose packets to n1 come by the router.
fn lab(encap: Encap) -> Lab {
    let nodes = vec![Subnet::Near, Subnet::Near, Subnet::Far];
    let lab = Lab::build(Options { encap, nodes, ..Options::default() }).unwrap();
    lab.lan.plug_second(&lab.nodes[0].space, Subnet::Far, NUMBER, SECOND).unwrap();
    let loose = ["all", "near", "far"].map(|name| format!("net/ipv4/conf/{name}/rp_filter"));
    lab.lan.router.sysctl(&loose.each_ref().map(|name| (name.as_str(), "0"))).unwrap();
    if encap == Encap::Native {
        let (v4, v6) = (lab.nodes[0].v4(), lab.nodes[0].v6());
        let lines = format!("route add 10.244.1.0/24 via {v4}\nroute add fd00:10:244:1::/64 via {v6}\n");
        lab.lan.router.ip(&lines).unwrap();
    }
    lab.start_agents().unwrap_or_else(|err| panic!("{err:#}"));
    lab
}

/// Packets of a device of n1 so far: received, sent.
fn packets(lab: &Lab, device: &str) -> (u64, u64) {
    let read = |what: &str| {
        let path = format!("/sys/class/net/{device}/statistics/{what}");
        let text = lab.nodes[0].space.run(|| fs::read_to_string(path)).unwrap().unwrap();
        text.trim().parse::<u64>().unwrap()
    };
    (read("rx_packets"), read("tx_packets"))
}

/// By which uplinks most of what `during` sends arrives at n1 and leaves it.
fn by(lab: &Lab, during: impl FnOnce()) -> (&'static str, &'static str) {
    let devices = [UPLINK, SECOND];
    let before = devices.map(|device| packets(lab, device));
    during();
    let after = devices.map(|device| packets(lab, device));
    let most = |of: &dyn Fn((u64, u64)) -> u64| {
        let [first, second] = [0, 1].map(|i| of(after[i]) - of(before[i]));
        assert!(first.max(second) > 10, "{first} and {second} packets are too few to tell");
        if first > second { UPLINK } else { SECOND }
    };
    (most(&|(received, _)| received), most(&|(_, sent)| sent))
}

/// All protocols from one to the other, seen as from `seen`.
fn passes(lab: &Lab, from: &Space, (to, destination): (&Space, IpAddr), seen: IpAddr) {
    for proto in [Proto::Tcp, Proto::Udp, Proto::Icmp] {
        let probe = Probe { proto, from, to, destination, patience: Duration::from_secs(3) };
        let arrived = probe.run().unwrap().complete(seen);
        let drops = || lab.nodes.iter().map(story).collect::<String>();
        arrived.unwrap_or_else(|why| panic!("{} to {destination}: {why}; {}", proto.name(), drops()));
    }
}

fn address(pod: &Pod, v6: bool) -> IpAddr {
    pod.address(v6).unwrap()
}

fn between_nodes(encap: Encap) {
    let lab = lab(encap);
    let pods = [pod(&lab, 0, "a"), pod(&lab, 1, "near"), pod(&lab, 2, "far")];
    for v6 in [false, true] {
        for (other, used) in [(1, (UPLINK, UPLINK)), (2, (UPLINK, SECOND))] {
            let (a, b) = (&pods[0], &pods[other]);
            let seen = by(&lab, || {
                passes(&lab, &a.space, (&b.space, address(b, v6)), address(a, v6));
                passes(&lab, &b.space, (&a.space, address(a, v6)), address(b, v6));
            });
            assert_eq!(seen, used, "{encap:?} with {}, v6={v6}", b.name);
        }
    }
}

#[test]
fn natively_a_node_sends_by_the_uplink_of_the_other_nodes_subnet() {
    between_nodes(Encap::Native);
}

#[test]
fn in_the_tunnel_a_node_sends_by_the_uplink_of_the_other_nodes_subnet() {
    between_nodes(Encap::Vxlan);
}

/// The default route moves to the other uplink: flows that live go on as from the address they began with, new ones have the new uplink's.
#[test]
fn a_default_route_that_moves_takes_new_flows_along_and_living_ones_too() {
    let lab = lab(Encap::Auto);
    let node = &lab.nodes[0];
    let client = pod(&lab, 0, "client");
    let outside = |v6: bool| (&lab.lan.outside, if v6 { IpAddr::from(OUTSIDE_V6) } else { OUTSIDE_V4.into() });
    for v6 in [false, true] {
        let used = by(&lab, || passes(&lab, &client.space, outside(v6), node.address(v6)));
        assert_eq!(used, (UPLINK, UPLINK), "before, v6={v6}");
    }
    let living = [false, true].map(|v6| {
        let (to, destination) = outside(v6);
        let exchange = Exchange::start((&client.space, address(&client, v6)), (to, destination));
        (exchange, Stream::start(&client.space, to, destination, 1_000_000).unwrap())
    });
    thread::sleep(Duration::from_millis(500));
    let (v4, wide) = (Subnet::Near.v4(ROUTER), Subnet::Near.v6(ROUTER));
    let moved = format!(
        "route add default via {v4} metric 3000\nroute del default via {v4} metric 0
route add default via {wide} metric 3000\nroute del default via {wide} metric 1024\n"
    );
    node.space.ip(&moved).unwrap();
    // As soon as the agent has told the programs.
    let second = |v6: bool| if v6 { Subnet::Far.v6(NUMBER).into() } else { IpAddr::from(Subnet::Far.v4(NUMBER)) };
    assert!(becomes(|| by(&lab, || thread::sleep(Duration::from_millis(200))).1 == SECOND), "{}", story(node));
    for v6 in [false, true] {
        passes(&lab, &client.space, outside(v6), second(v6));
    }
    // Answers to the first uplink's address still come in there.
    let used = by(&lab, || thread::sleep(Duration::from_millis(500)));
    assert_eq!(used, (UPLINK, SECOND), "the living flows");
    for (exchange, stream) in living {
        let before = stream.received();
        thread::sleep(Duration::from_millis(500));
        assert!(stream.received() - before > 200_000, "{}", story(node));
        stream.finish().unwrap();
        let exchanged = exchange.finish();
        assert_eq!((exchanged.missing, exchanged.strange), (0, 0), "{exchanged:?}; {}", story(node));
    }
}
