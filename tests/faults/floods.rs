//! Floods from outside, of sources that do not exist, at a pod whose living flows must not notice: more openers than the flow tables hold.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::thread;
use std::time::Duration;

use osmia_lab::load::Stream;
use osmia_lab::packet::{Injector, Ip, flags};
use osmia_lab::{Lab, OUTSIDE_V4, OUTSIDE_V6, Options, Pod, Proto};

use crate::exchange::Exchange;
use crate::idle::Idle;
use crate::stage::{lab, pod, story};

/// Packets of one flood. The tables of the lab hold far fewer flows.
const FLOOD: u32 = 20_000;
const MEMORY: [&str; 2] = ["--flow-memory", "4M"];

/// The router knows the pods of n1, and nobody the sources of the flood.
fn open_the_way(lab: &Lab) {
    lab.lan.router.sysctl(&[("net/ipv4/conf/all/rp_filter", "0"), ("net/ipv4/conf/outside/rp_filter", "0")]).unwrap();
    let (v4, v6) = (lab.nodes[0].v4(), lab.nodes[0].v6());
    lab.lan
        .router
        .ip(&format!(
            "route add 10.244.1.0/24 via {v4}
route add fd00:10:244:1::/64 via {v6}
route add blackhole 198.18.0.0/15
route add blackhole 2001:db8:ffff::/48
"
        ))
        .unwrap();
}

/// Sources that do not exist, and that no table has.
fn stranger(number: u32, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 1, number as u16).into()
    } else {
        Ipv4Addr::from(0xc612_0000 + (number & 0xffff)).into()
    }
}

/// Each packet of a source of its own.
fn flood(lab: &Lab, victim: IpAddr, what: Proto, port: u16) {
    let sender = Injector::inside(&lab.lan.outside).unwrap();
    for number in 0..FLOOD {
        let ip = Ip::new(stranger(number, victim.is_ipv6()), victim);
        let from = 1024 + (number % 60_000) as u16;
        let packet = match what {
            Proto::Tcp => ip.tcp(from, port, flags::SYN, number, 0),
            _ => ip.udp(from, port, b"flood"),
        };
        sender.send(&packet, victim).unwrap();
    }
}

/// A counter of the pod's own kernel (`/proc/net/snmp`, which has TCP of both families; `/proc/net/snmp6`).
fn counted(pod: &Pod, what: Proto, v6: bool) -> u64 {
    let read = |name: &str| pod.space.run(|| fs::read_to_string(name)).unwrap().unwrap();
    if what == Proto::Udp && v6 {
        let text = read("/proc/thread-self/net/snmp6");
        let line = text.lines().find_map(|line| line.strip_prefix("Udp6NoPorts"));
        return line.unwrap().trim().parse().unwrap();
    }
    let (protocol, name) = if what == Proto::Tcp { ("Tcp:", "InSegs") } else { ("Udp:", "NoPorts") };
    let text = read("/proc/thread-self/net/snmp");
    let mut lines = text.lines().filter(|line| line.starts_with(protocol)).map(str::split_whitespace);
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    names.zip(values).find(|(n, _)| *n == name).unwrap().1.parse().unwrap()
}

/// All three floods; `victim` saw each of them, or they prove nothing.
fn floods(lab: &Lab, victim: &Pod, v6: bool) {
    let target = victim.address(v6).unwrap();
    let open = victim.space.run(|| TcpListener::bind((target, 0))).unwrap().unwrap();
    let port = open.local_addr().unwrap().port();
    for (what, port) in [(Proto::Tcp, 9), (Proto::Tcp, port), (Proto::Udp, 9)] {
        let before = counted(victim, what, v6);
        flood(lab, target, what, port);
        let seen = counted(victim, what, v6) - before;
        assert!(
            seen > u64::from(FLOOD / 2),
            "{what:?} to {target} port {port}: {seen} arrived; {}",
            story(&lab.nodes[0])
        );
    }
}

/// A pod that is flooded while it talks, by UDP and TCP, to a pod beside it, to one of another node and to a host outside, which only an
/// established flow outlives: its masquerade port is in its entries alone. With an agent that lives, then dead.
fn outlasts(v6: bool) {
    let lab = lab(Options { agent_flags: MEMORY.map(str::to_owned).to_vec(), ..Options::default() });
    open_the_way(&lab);
    let (victim, near, far) = (pod(&lab, 0, "victim"), pod(&lab, 0, "near"), pod(&lab, 1, "far"));
    let at = |pod: &Pod| -> IpAddr { pod.address(v6).unwrap() };
    let outside = (&lab.lan.outside, if v6 { IpAddr::from(OUTSIDE_V6) } else { OUTSIDE_V4.into() });
    let inside = (&victim.space, at(&victim));
    let exchanges = [
        Exchange::start((&near.space, at(&near)), inside),
        Exchange::start((&far.space, at(&far)), inside),
        Exchange::start(inside, outside),
    ];
    let mut idle = Idle::start(inside, outside);
    let streams = [
        Stream::start(&far.space, &victim.space, at(&victim), 4_000_000).unwrap(),
        Stream::start(&victim.space, outside.0, outside.1, 4_000_000).unwrap(),
    ];
    // Long enough for their flows to be established ones.
    thread::sleep(Duration::from_millis(2500));
    idle.talk().unwrap();
    for alive in [true, false] {
        if !alive {
            for node in &lab.nodes {
                node.kill_agent().unwrap();
            }
        }
        let before = streams.each_ref().map(Stream::received);
        floods(&lab, &victim, v6);
        thread::sleep(Duration::from_millis(200));
        idle.talk()
            .unwrap_or_else(|err| panic!("agent alive: {alive}: the idle flows: {err}; {}", story(&lab.nodes[0])));
        for (stream, before) in streams.iter().zip(before) {
            let moved = stream.received() - before;
            assert!(moved > 200_000, "agent alive: {alive}; a stream moved {moved} bytes; {}", story(&lab.nodes[0]));
        }
    }
    for stream in streams {
        stream.finish().unwrap();
    }
    for exchange in exchanges {
        let exchanged = exchange.finish();
        assert!(exchanged.asked > 1000, "{exchanged:?}");
        assert_eq!((exchanged.missing, exchanged.strange), (0, 0), "{exchanged:?}; {}", story(&lab.nodes[0]));
    }
}

#[test]
fn living_flows_outlast_floods_with_the_agent_alive_and_dead() {
    outlasts(false);
}

#[test]
fn living_flows_of_ipv6_outlast_floods_with_the_agent_alive_and_dead() {
    outlasts(true);
}
