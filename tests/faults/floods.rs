//! Floods from outside, of sources that do not exist, at a pod whose living flows must not notice: more openers than the flow tables hold.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use osmia_lab::load::Stream;
use osmia_lab::packet::{Injector, Ip, flags};
use osmia_lab::{Lab, Options, Pod, Proto};

use crate::exchange::Exchange;
use crate::stage::{lab, pod, story};

/// Packets of one flood. The tables of the lab hold far fewer flows.
const FLOOD: u32 = 40_000;

/// The router knows the pods of n1, and nobody the sources of the flood.
fn open_the_way(lab: &Lab) {
    lab.lan.router.sysctl(&[("net/ipv4/conf/all/rp_filter", "0"), ("net/ipv4/conf/outside/rp_filter", "0")]).unwrap();
    let via = lab.nodes[0].v4();
    lab.lan.router.ip(&format!("route add 10.244.1.0/24 via {via}\nroute add blackhole 198.18.0.0/15\n")).unwrap();
}

/// Each packet of a source of its own.
fn flood(lab: &Lab, victim: Ipv4Addr, what: Proto, port: u16) {
    let sender = Injector::inside(&lab.lan.outside).unwrap();
    for number in 0..FLOOD {
        let source = Ipv4Addr::from(0xc612_0000 + (number & 0xffff));
        let ip = Ip::new(source, victim);
        let from = 1024 + (number % 60_000) as u16;
        let packet = match what {
            Proto::Tcp => ip.tcp(from, port, flags::SYN, number, 0),
            _ => ip.udp(from, port, b"flood"),
        };
        sender.send(&packet, victim.into()).unwrap();
    }
}

/// A counter of the pod's own kernel (`/proc/net/snmp`).
fn counted(pod: &Pod, protocol: &str, name: &str) -> u64 {
    let text = pod.space.run(|| fs::read_to_string("/proc/thread-self/net/snmp")).unwrap().unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with(protocol)).map(str::split_whitespace);
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    names.zip(values).find(|(n, _)| *n == name).unwrap().1.parse().unwrap()
}

/// All three floods; `victim` saw each of them, or they prove nothing.
fn floods(lab: &Lab, victim: &Pod) {
    let target = victim.v4.unwrap();
    let open = victim.space.run(|| TcpListener::bind((target, 0))).unwrap().unwrap();
    let open = open.local_addr().map(|a| (open, a.port())).unwrap();
    let arrived = |what: Proto, port: u16, protocol: &str, name: &str| {
        let before = counted(victim, protocol, name);
        flood(lab, target, what, port);
        let seen = counted(victim, protocol, name) - before;
        assert!(seen > u64::from(FLOOD / 2), "{what:?} to {port}: {seen} arrived; {}", story(&lab.nodes[0]));
    };
    arrived(Proto::Tcp, 9, "Tcp:", "InSegs");
    arrived(Proto::Tcp, open.1, "Tcp:", "InSegs");
    arrived(Proto::Udp, 9, "Udp:", "NoPorts");
}

#[test]
fn living_flows_outlast_floods_with_the_agent_alive_and_dead() {
    let lab = lab(Options { agent_flags: vec!["--flow-memory".into(), "4M".into()], ..Options::default() });
    open_the_way(&lab);
    let (victim, near, far) = (pod(&lab, 0, "victim"), pod(&lab, 0, "near"), pod(&lab, 1, "far"));
    let at = |pod: &Pod| -> IpAddr { pod.address(false).unwrap() };
    let exchanges = [&near, &far].map(|peer| Exchange::start((&peer.space, at(peer)), (&victim.space, at(&victim))));
    let stream = Stream::start(&far.space, &victim.space, at(&victim), 4_000_000).unwrap();
    // Long enough for their flows to be established ones.
    thread::sleep(Duration::from_millis(2500));
    for alive in [true, false] {
        if !alive {
            for node in &lab.nodes {
                node.kill_agent().unwrap();
            }
        }
        let before = stream.received();
        floods(&lab, &victim);
        thread::sleep(Duration::from_millis(200));
        let moved = stream.received() - before;
        assert!(moved > 400_000, "agent alive: {alive}; the stream moved {moved} bytes; {}", story(&lab.nodes[0]));
    }
    stream.finish().unwrap();
    for exchange in exchanges {
        let exchanged = exchange.finish();
        assert!(exchanged.asked > 1000, "{exchanged:?}");
        assert_eq!((exchanged.missing, exchanged.strange), (0, 0), "{exchanged:?}; {}", story(&lab.nodes[0]));
    }
}
