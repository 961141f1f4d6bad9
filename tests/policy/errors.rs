//! Fragments and ICMP errors under policy.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use osmia_lab::{Encap, Space};

use crate::stage::{Guest, Stage};

/// More than two pieces.
const LENGTH: usize = 5000;

/// Whether a datagram that is cut on its way arrives.
fn long_arrives(from: &Space, to: &Guest, v6: bool, port: u16, expected: bool) -> bool {
    let address = to.address(v6);
    let receiver = to.space().run(|| UdpSocket::bind((address, port))).unwrap().unwrap();
    let patience = if expected { 5000 } else { 400 };
    receiver.set_read_timeout(Some(Duration::from_millis(patience))).unwrap();
    let any = if v6 { "[::]:0" } else { "0.0.0.0:0" };
    let sender = from.run(|| UdpSocket::bind(any)).unwrap().unwrap();
    sender.send_to(&[7; LENGTH], (address, port)).unwrap();
    let mut buffer = [0; 2 * LENGTH];
    matches!(receiver.recv(&mut buffer), Ok(LENGTH))
}

/// Whether the sender is told that nobody listens.
fn refused(from: &Space, to: SocketAddr) -> bool {
    let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = from.run(|| UdpSocket::bind(any)).unwrap().unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    let mut buffer = [0; 16];
    while Instant::now() < until {
        // The error may be told by the next call, whichever it is.
        let told = [socket.send(b"?").err(), socket.recv(&mut buffer).err()];
        if told.iter().flatten().any(|error| error.kind() == ErrorKind::ConnectionRefused) {
            return true;
        }
    }
    false
}

#[test]
fn fragments_and_errors_follow_the_verdict_of_their_flow() {
    let stage = Stage::new(Encap::Auto, 2);
    stage.namespace("cut", &[]);
    let server = stage.pod(0, "cut", "server", &[("app", "server")]);
    let (near, far) =
        (stage.pod(0, "cut", "near", &[("app", "client")]), stage.pod(1, "cut", "far", &[("app", "client")]));
    // Nobody may be entered but the server on some ports, and it may open nothing.
    stage.policy("cut", "deny", "{podSelector: {}, policyTypes: [Ingress]}");
    stage.policy(
        "cut",
        "in",
        "{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{protocol: UDP, port: 7000, endPort: 7001}]}]}",
    );
    for (name, client) in [("near", &near), ("far", &far)] {
        for v6 in [false, true] {
            let arrives = |port, expected| long_arrives(client.space(), &server, v6, port, expected);
            assert!(arrives(7000, true), "{name}, IPv6 {v6}: a long datagram to an allowed port");
            assert!(!arrives(7002, false), "{name}, IPv6 {v6}: a long datagram to another port");
            let closed = SocketAddr::new(server.address(v6), 7001);
            assert!(refused(client.space(), closed), "{name}, IPv6 {v6}: the error that an allowed port is closed");
        }
    }
}
