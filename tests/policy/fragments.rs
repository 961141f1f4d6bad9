//! Pieces of datagrams under policy, in every order and with every lie, and what the pod's kernel makes of those that come through.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use osmia_lab::packet::{Injector, Ip, checksum};
use osmia_lab::{Encap, Space};

use crate::stage::{Guest, Stage};

const LENGTH: usize = 1400;
/// Where it is cut; the first piece is no smaller than the least that IPv6 lets one be.
const CUT: usize = 1240;
const OPEN: u16 = 7000;
const SHUT: u16 = 7002;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;

/// A datagram to this port, in its two pieces.
fn pieces(ip: &Ip, port: u16, id: u16) -> [Vec<u8>; 2] {
    let whole = ip.udp(9000, port, &[7; LENGTH]);
    let data = &whole[whole.len() - LENGTH - 8..];
    [(0, &data[..CUT], true), (CUT, &data[CUT..], false)].map(|(at, data, more)| piece(ip, id, at, more, UDP, data))
}

fn piece(ip: &Ip, id: u16, at: usize, more: bool, proto: u8, data: &[u8]) -> Vec<u8> {
    let offset = (at / 8) as u16;
    if ip.source.is_ipv6() {
        // RFC 8200 4.5.
        let [o0, o1] = (offset << 3 | u16::from(more)).to_be_bytes();
        let [i0, i1] = id.to_be_bytes();
        return ip.packet(FRAGMENT, &[&[proto, 0, o0, o1, 0, 0, i0, i1][..], data].concat());
    }
    let mut packet = ip.packet(proto, data);
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[6..8].copy_from_slice(&(offset | u16::from(more) << 13).to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum);
    packet
}

fn listens(on: &Guest, v6: bool, port: u16) -> UdpSocket {
    on.space().run(|| UdpSocket::bind((on.address(v6), port))).unwrap().unwrap()
}

fn send(from: &Space, to: IpAddr, packets: &[&[u8]]) {
    let injector = Injector::inside(from).unwrap();
    packets.iter().for_each(|packet| injector.send(packet, to).unwrap());
}

/// Whether a whole datagram is there, or comes.
fn comes(socket: &UdpSocket, patience: Duration) -> bool {
    socket.set_read_timeout(Some(patience)).unwrap();
    match socket.recv(&mut [0; 2 * LENGTH]) {
        Ok(length) => {
            assert_eq!(length, LENGTH, "what comes is the datagram");
            true
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn pieces_of_a_datagram_come_through_in_any_order_where_its_port_is_open_and_nowhere_else() {
    let stage = Stage::new(Encap::Auto, 2);
    stage.namespace("cut", &[]);
    let server = stage.pod(0, "cut", "server", &[("app", "server")]);
    let (near, far) = (stage.pod(0, "cut", "near", &[]), stage.pod(1, "cut", "far", &[]));
    stage.policy(
        "cut",
        "in",
        "{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress], ingress: [{ports: [{protocol: UDP, port: 7000}]}]}",
    );
    let next = Cell::new(0x4000_u16);
    let id = || next.replace(next.get() + 1);
    for (name, client) in [("near", &near), ("far", &far)] {
        for v6 in [false, true] {
            let (open, shut) = (listens(&server, v6, OPEN), listens(&server, v6, SHUT));
            let ip = Ip::new(client.address(v6), server.address(v6));
            let cut = |port| pieces(&ip, port, id());
            let sends = |packets: &[&[u8]]| send(client.space(), server.address(v6), packets);
            let [first, later] = cut(OPEN);
            sends(&[&first, &later]);
            assert!(comes(&open, Duration::from_secs(5)), "{name}, IPv6 {v6}: in order\n{}", stage.story());
            let [first, later] = cut(OPEN);
            sends(&[&later, &first]);
            assert!(comes(&open, Duration::from_secs(5)), "{name}, IPv6 {v6}: the last one first\n{}", stage.story());
            let [first, later] = cut(OPEN);
            sends(&[&later, &later, &first, &later]);
            assert!(comes(&open, Duration::from_secs(5)), "{name}, IPv6 {v6}: one thrice\n{}", stage.story());
            // To a port that is shut: in order, turned round, and behind the first piece of one that is open, under its name.
            let [first, later] = cut(SHUT);
            sends(&[&first, &later, &first, &later]);
            let [first, later] = cut(SHUT);
            sends(&[&later, &first]);
            let same = id();
            let ([opens, _], [shuts, rest]) = (pieces(&ip, OPEN, same), pieces(&ip, SHUT, same));
            sends(&[&opens, &shuts, &rest]);
            let same = id();
            let ([opens, rest], [shuts, _]) = (pieces(&ip, OPEN, same), pieces(&ip, SHUT, same));
            sends(&[&rest, &shuts, &opens]);
            // The last one of all is one that comes: what came before it has been looked at.
            let [first, later] = cut(OPEN);
            sends(&[&later, &first]);
            assert!(comes(&open, Duration::from_secs(5)), "{name}, IPv6 {v6}: the last of all\n{}", stage.story());
            assert!(!comes(&shut, Duration::from_millis(50)), "{name}, IPv6 {v6}: a port that is shut");
        }
    }
}
