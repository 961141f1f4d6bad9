//! Pods of one node, pods of two nodes as they are, and what a flood does to them.

use std::net::{IpAddr, UdpSocket};

use osmia_lab::packet::{Injector, Ip, flags};
use osmia_lab::{Proto, Underlay};
use osmia_maps::layout::{DropReason, Stat};

use crate::bench::{Bench, Carry};

#[test]
fn pods_of_one_node_reach_each_other_and_nothing_else_is_written() {
    let mut bench = Bench::new(Underlay::Passing, Carry::Native).expect("a bench");
    let one = bench.pod(0, "one").expect("a pod");
    let two = bench.pod(0, "two").expect("a pod");
    for v6 in [false, true] {
        for proto in Proto::ALL {
            bench.passes(proto, &one.space, &two.space, two.address(v6), one.address(v6));
            bench.passes(proto, &two.space, &one.space, one.address(v6), two.address(v6));
        }
    }
    assert_ne!(bench.stat(0, Stat::ForwardPeer).expect("a counter"), 0);
    for stat in [Stat::ForwardNative, Stat::ForwardStack, Stat::ForwardUplink] {
        assert_eq!(bench.stat(0, stat).expect("a counter"), 0, "{}: {}", stat.name(), bench.story());
    }
}

#[test]
fn pods_of_two_nodes_reach_each_other_as_they_are() {
    for underlay in [Underlay::Passing, Underlay::Segmenting] {
        let mut bench = Bench::new(underlay, Carry::Native).expect("a bench");
        let near = bench.pod(0, "near").expect("a pod");
        let far = bench.pod(1, "far").expect("a pod");
        for v6 in [false, true] {
            for proto in Proto::ALL {
                bench.passes(proto, &near.space, &far.space, far.address(v6), near.address(v6));
                bench.passes(proto, &far.space, &near.space, near.address(v6), far.address(v6));
            }
        }
        for node in [0, 1] {
            assert_ne!(bench.stat(node, Stat::ForwardNative).expect("a counter"), 0);
            assert_eq!(bench.stat(node, Stat::ForwardTunnel).expect("a counter"), 0);
        }
    }
}

#[test]
fn a_pod_that_sends_as_another_reaches_nobody() {
    let mut bench = Bench::new(Underlay::Passing, Carry::Native).expect("a bench");
    let one = bench.pod(0, "one").expect("a pod");
    let two = bench.pod(0, "two").expect("a pod");
    let three = bench.pod(0, "three").expect("a pod");
    // A living flow of `one` to `two`, and its very packets from `three`.
    let (socket, port) = receiver(&two.space, two.v4.into());
    bench.passes(Proto::Udp, &one.space, &two.space, two.v4.into(), one.v4.into());
    let sender = Injector::inside(&three.space).expect("a raw socket");
    for _ in 0..20 {
        let forged = Ip::new(one.v4, two.v4).udp(4000, port, b"forged");
        sender.send(&forged, two.v4.into()).expect("sent");
    }
    assert!(socket.recv(&mut [0; 16]).is_err(), "a forged datagram arrived; {}", bench.story());
    assert_eq!(bench.dropped(0, DropReason::SourceGuard).expect("a counter"), 20, "{}", bench.story());
    let own = Ip::new(three.v4, two.v4).udp(4000, port, b"own");
    sender.send(&own, two.v4.into()).expect("sent");
    assert_eq!(socket.recv(&mut [0; 16]).expect("its own datagram"), 3, "else the forged ones prove nothing");
}

/// More openers than both tables have rows, at a closed and at an open port, while a connection of before goes on.
#[test]
fn a_flood_of_openers_leaves_a_living_connection_alone() {
    let mut bench = Bench::new(Underlay::Passing, Carry::Native).expect("a bench");
    let client = bench.pod(0, "client").expect("a pod");
    let server = bench.pod(0, "server").expect("a pod");
    let rogue = bench.pod(0, "rogue").expect("a pod");
    let (socket, port) = receiver(&server.space, server.v4.into());
    let asking = client.space.run(|| UdpSocket::bind((client.v4, 0))).expect("inside").expect("a socket");
    asking.set_read_timeout(Some(std::time::Duration::from_secs(2))).expect("a timeout");
    let exchange = |text: &[u8]| {
        asking.send_to(text, (server.v4, port)).expect("sent");
        let mut bytes = [0; 64];
        let (length, from) = socket.recv_from(&mut bytes).expect("a question");
        assert_eq!(&bytes[..length], text);
        socket.send_to(b"answer", from).expect("answered");
        assert_eq!(asking.recv(&mut bytes).expect("an answer"), 6);
    };
    exchange(b"one");
    std::thread::sleep(std::time::Duration::from_millis(2200));
    exchange(b"two");
    assert_eq!(bench.stat(0, Stat::FlowPromoted).expect("a counter"), 1, "{}", bench.story());

    let sender = Injector::inside(&rogue.space).expect("a raw socket");
    let ip = Ip::new(rogue.v4, server.v4);
    for source in 0..20_000_u16 {
        sender.send(&ip.tcp(1024 + source, 9, flags::SYN, 1, 0), server.v4.into()).expect("sent");
        sender.send(&ip.udp(1024 + source, 9, b"flood"), server.v4.into()).expect("sent");
    }
    let opened = bench.stat(0, Stat::FlowOpened).expect("a counter");
    assert!(opened > 3 * 4096, "only {opened} flows opened: no flood");
    assert_eq!(bench.stat(0, Stat::FlowPromoted).expect("a counter"), 1, "the flood got into the established table");
    let rejudged = bench.stat(0, Stat::FlowRejudged).expect("a counter");
    exchange(b"three");
    assert_eq!(bench.stat(0, Stat::FlowRejudged).expect("a counter"), rejudged, "the connection was pushed out");
}

fn receiver(space: &osmia_lab::Space, address: IpAddr) -> (UdpSocket, u16) {
    let socket = space.run(|| UdpSocket::bind((address, 0))).expect("inside").expect("a socket");
    socket.set_read_timeout(Some(std::time::Duration::from_millis(700))).expect("a timeout");
    let port = socket.local_addr().expect("an address").port();
    (socket, port)
}
