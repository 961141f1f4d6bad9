//! Pods and the world outside, which knows the node's address alone.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use osmia_lab::packet::{Injector, Ip};
use osmia_lab::{OUTSIDE_V4, OUTSIDE_V6, Proto, Underlay};
use osmia_maps::layout::Stat;

use crate::bench::{Bench, Carry, Pod};
use crate::datagram;

fn pod(underlay: Underlay) -> (Bench, Pod) {
    let mut bench = Bench::new(underlay, Carry::Tunnel4).expect("a bench");
    let pod = bench.pod(0, "a").expect("a pod");
    (bench, pod)
}

fn outside(v6: bool) -> IpAddr {
    if v6 { OUTSIDE_V6.into() } else { OUTSIDE_V4.into() }
}

fn reaches(underlay: Underlay) {
    let (bench, pod) = pod(underlay);
    for v6 in [false, true] {
        for proto in Proto::ALL {
            let node = bench.lab.nodes[0].address(v6);
            bench.passes(proto, &pod.space, &bench.lab.lan.outside, outside(v6), node);
        }
        let arrived = datagram::segmented(&pod.space, &bench.lab.lan.outside, outside(v6)).expect("sockets");
        assert_eq!(arrived, datagram::SEGMENTS, "UDP GSO, IPv6 {v6}; {}", bench.story());
    }
    assert!(bench.stat(0, Stat::MasqOpened).expect("a count") >= 6);
}

#[test]
fn outside_passing() {
    reaches(Underlay::Passing);
}

#[test]
fn outside_segmenting() {
    reaches(Underlay::Segmenting);
}

/// Veths hand checksums on unfinished, and nobody looks at them. Finished by the sender they are proved by the receiver.
#[test]
fn finished_checksums_are_right_at_the_other_end() {
    let (bench, pod) = pod(Underlay::Passing);
    for space in [&pod.space, &bench.lab.lan.outside] {
        let mut off = Command::new("ethtool");
        space.output(off.args(["-K", "eth0", "tx", "off"])).expect("ethtool");
    }
    for v6 in [false, true] {
        for proto in [Proto::Tcp, Proto::Udp] {
            let node = bench.lab.nodes[0].address(v6);
            bench.passes(proto, &pod.space, &bench.lab.lan.outside, outside(v6), node);
        }
    }
}

#[test]
fn two_pods_with_one_port_get_two() {
    let (mut bench, a) = pod(Underlay::Passing);
    let b = bench.pod(0, "b").expect("a second pod");
    for v6 in [false, true] {
        // Other ports for IPv6: a process that another test starts holds the sockets of IPv4 for as long as it is only a copy of this one.
        let (own, far) = if v6 { (5556, 9001) } else { (5555, 9000) };
        let server = bench.lab.lan.outside.run(|| UdpSocket::bind((outside(v6), far))).expect("inside").expect("bound");
        server.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        let clients: Vec<UdpSocket> = [&a, &b]
            .map(|pod| {
                let socket = pod.space.run(|| UdpSocket::bind((datagram::any(outside(v6)), own)));
                let socket = socket.expect("inside").expect("bound");
                socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
                socket.connect((outside(v6), far)).expect("connected");
                socket
            })
            .into();
        let mut seen = Vec::new();
        for (i, client) in clients.iter().enumerate() {
            client.send(&[i as u8]).expect("sent");
            let mut byte = [0];
            let (_, from) = server.recv_from(&mut byte).unwrap_or_else(|e| panic!("{e}; {}", bench.story()));
            assert_eq!(byte, [i as u8]);
            assert_eq!(from.ip(), bench.lab.nodes[0].address(v6));
            assert!((61_000..=65_535).contains(&from.port()), "{from}");
            seen.push(from);
        }
        assert_ne!(seen[0], seen[1]);
        // Each gets its own answer, in the other order.
        for (i, client) in clients.iter().enumerate().rev() {
            server.send_to(&[10 + i as u8], seen[i]).expect("sent");
            let mut byte = [0];
            client
                .recv(&mut byte)
                .unwrap_or_else(|e| panic!("IPv6 {v6}, pod {i}, answer to {}: {e}; {}", seen[i], bench.story()));
            assert_eq!(byte, [10 + i as u8]);
        }
    }
}

#[test]
fn a_datagram_without_checksum_arrives_without_one() {
    let (bench, pod) = pod(Underlay::Passing);
    let server = bench.lab.lan.outside.run(|| UdpSocket::bind((OUTSIDE_V4, 9000))).expect("inside").expect("bound");
    server.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
    let mut packet = Ip::new(pod.v4, OUTSIDE_V4).udp(4000, 9000, b"no checksum");
    packet[26..28].fill(0);
    Injector::inside(&pod.space).and_then(|i| i.send(&packet, OUTSIDE_V4.into())).expect("sent");
    let mut buffer = [0; 64];
    let (length, from) = server.recv_from(&mut buffer).unwrap_or_else(|e| panic!("{e}; {}", bench.story()));
    assert_eq!((&buffer[..length], from.ip()), (&b"no checksum"[..], IpAddr::V4(bench.lab.nodes[0].v4())));
}

#[test]
fn a_narrow_link_far_away_is_learnt_through_the_masquerade() {
    let (bench, pod) = pod(Underlay::Segmenting);
    bench.lab.lan.router.ip("link set outside mtu 1300\n").expect("a narrow link");
    bench.lab.lan.outside.ip("link set eth0 mtu 1300\n").expect("at both ends");
    for v6 in [false, true] {
        let node = bench.lab.nodes[0].address(v6);
        let (arrived, peer) =
            datagram::long(&pod.space, &bench.lab.lan.outside, outside(v6), 1400, 5).expect("sockets");
        assert!(arrived >= 3 && peer == Some(node), "{arrived} from {peer:?}; {}", bench.story());
        bench.passes(Proto::Tcp, &pod.space, &bench.lab.lan.outside, outside(v6), node);
    }
    assert!(bench.stat(0, Stat::IcmpErrorRelated).expect("a count") >= 2, "{}", bench.story());
}
