//! ICMP errors reach the socket whose packet they quote.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use osmia_lab::packet::{Injector, Ip};
use osmia_lab::{OUTSIDE_V4, OUTSIDE_V6, Space, Underlay};
use osmia_maps::layout::{DropReason, Stat};

use crate::bench::{Bench, Carry};
use crate::datagram::any;
use crate::icmp_listener::IcmpListener;

/// A connected socket learns that nobody listens there.
fn is_refused(bench: &Bench, from: &Space, to: IpAddr) {
    let socket = from.run(|| UdpSocket::bind((any(to), 0))).expect("inside").expect("bound");
    socket.connect((to, 9)).expect("connected");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let mut buffer = [0; 8];
    for _ in 0..3 {
        let _ = socket.send(b"anybody?");
        match socket.recv(&mut buffer) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => return,
            _ => {}
        }
    }
    panic!("{} is not told that {to} refuses; {}", from.name(), bench.story());
}

#[test]
fn a_closed_port_is_told_to_whoever_asked() {
    for carry in [Carry::Native, Carry::Tunnel4, Carry::Tunnel6] {
        let mut bench = Bench::new(Underlay::Passing, carry).expect("a bench");
        let a = bench.pod(0, "a").expect("pod a");
        let near = bench.pod(0, "near").expect("a pod beside it");
        let far = bench.pod(1, "far").expect("a pod far away");
        for v6 in [false, true] {
            let [n1, n2] = [0, 1].map(|i| bench.lab.nodes[i].address(v6));
            let outside = if v6 { OUTSIDE_V6.into() } else { OUTSIDE_V4.into() };
            for to in [near.address(v6), far.address(v6), n1, n2, outside] {
                is_refused(&bench, &a.space, to);
            }
            is_refused(&bench, &bench.lab.nodes[0].space, a.address(v6));
            is_refused(&bench, &bench.lab.nodes[0].space, far.address(v6));
        }
    }
}

#[test]
fn used_up_hops_are_told_with_the_packet() {
    let mut bench = Bench::new(Underlay::Passing, Carry::Tunnel4).expect("a bench");
    let a = bench.pod(0, "a").expect("pod a");
    let far = bench.pod(1, "far").expect("a pod far away");
    for v6 in [false, true] {
        let listener = IcmpListener::inside(&a.space, v6).expect("a socket");
        let packet = Ip { hops: 1, ..Ip::new(a.address(v6), far.address(v6)) }.udp(4000, 33_434, b"how far");
        Injector::inside(&a.space).and_then(|i| i.send(&packet, far.address(v6))).expect("sent");
        let message = listener.wait(if v6 { 3 } else { 11 }, 0);
        let message = message.unwrap_or_else(|| panic!("no answer; {}", bench.story()));
        let header = if v6 { 40 } else { 20 };
        assert_eq!(message[8 + header..], packet[header..], "quoted whole, as it is short");
    }
    assert_eq!(bench.stat(0, Stat::TimeExceededSent).expect("a count"), 2);
}

#[test]
fn an_error_about_nothing_goes_nowhere() {
    let mut bench = Bench::new(Underlay::Passing, Carry::Tunnel4).expect("a bench");
    let a = bench.pod(0, "a").expect("pod a");
    let near = bench.pod(0, "near").expect("a pod beside it");
    let listener = IcmpListener::inside(&near.space, false).expect("a socket");
    let quoted = Ip::new(near.v4, a.v4).udp(1, 2, b"never sent");
    let mut error = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
    let sum = checksum(&error);
    error[2..4].copy_from_slice(&sum);
    let packet = Ip::new(a.v4, near.v4).packet(1, &error);
    Injector::inside(&a.space).and_then(|i| i.send(&packet, near.v4.into())).expect("sent");
    assert_eq!(listener.wait(3, 1), None);
    assert_eq!(bench.dropped(0, DropReason::IcmpNoFlow).expect("a count"), 1);
}

/// RFC 1071; of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 = bytes.as_chunks().0.iter().map(|w| u32::from(u16::from_be_bytes(*w))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
