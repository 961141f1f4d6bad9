//! Beside kube-proxy: what pods send to a service range goes through the node's stack, is rewritten there (DNAT by nft), and comes back to
//! us with the pod's source, on its way to a pod of this node, to one of another node, or outside.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use osmia_lab::{OUTSIDE_V4, OUTSIDE_V6, Space, Underlay};
use osmia_maps::layout::Config;
use osmia_maps::layout::config::C_STACK_SERVICES;
use osmia_maps::layout::route::RouteKind;

use crate::bench::{Bench, Carry};
use crate::datagram::any;

const SERVICE4: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
const SERVICE6: Ipv6Addr = Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, 1);

/// Node n1 as kube-proxy has it: forwarding on, service ranges left to the stack.
fn beside_kube_proxy(underlay: Underlay, carry: Carry) -> Bench {
    let mut bench = Bench::new(underlay, carry).expect("a bench");
    let plane = &mut bench.planes[0];
    plane.route(Ipv4Addr::new(10, 96, 0, 0), 16, RouteKind::Stack, 0).expect("a route");
    plane.route(Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, 0), 112, RouteKind::Stack, 0).expect("a route");
    let config = Config { flags: plane.config.flags | C_STACK_SERVICES, ..plane.config };
    plane.configure(config).expect("configured");
    let settings = [
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
        ("net/ipv4/conf/all/send_redirects", "0"),
        ("net/ipv4/conf/osmia0/send_redirects", "0"),
    ];
    bench.lab.nodes[0].space.sysctl(&settings).expect("forwarding");
    bench
}

/// Every connection to the service ends at `backend`.
fn dnat(node: &Space, backend: IpAddr) {
    let (family, service) = match backend {
        IpAddr::V4(_) => ("ip", IpAddr::from(SERVICE4)),
        IpAddr::V6(_) => ("ip6", IpAddr::from(SERVICE6)),
    };
    let rules = format!(
        "table {family} service\ndelete table {family} service\ntable {family} service {{
            chain before {{ type nat hook prerouting priority dstnat; {family} daddr {service} dnat to {backend}; }}
        }}\n"
    );
    let ended = node.feed(Command::new("nft").args(["-f", "-"]), &rules).expect("nft");
    assert!(ended.status.success(), "{}", ended.text());
}

/// A connection there and back through the service, and datagrams.
fn reaches(bench: &Bench, from: &Space, to: &Space, backend: IpAddr, seen: IpAddr) {
    dnat(&bench.lab.nodes[0].space, backend);
    let service = if backend.is_ipv4() { SERVICE4.into() } else { SERVICE6.into() };
    for (name, outcome) in [("tcp", stream(from, to, service, backend)), ("udp", datagrams(from, to, service, backend))]
    {
        match outcome {
            Ok(peer) => assert_eq!(peer, seen, "{name} to {service}, which is {backend}"),
            Err(e) => panic!("{name} to {service}, which is {backend}: {e:#}; {}", bench.story()),
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(4);
const LENGTH: usize = 300_000;

/// Who the backend saw, once a stream has come whole and its answer is back.
fn stream(from: &Space, to: &Space, service: IpAddr, backend: IpAddr) -> Result<IpAddr> {
    let listener = to.run(|| TcpListener::bind((backend, 0)))??;
    let port = listener.local_addr()?.port();
    let mut client = from.run(|| TcpStream::connect_timeout(&(service, port).into(), PATIENCE))?.context("connect")?;
    let (mut server, peer) = listener.accept()?;
    client.set_read_timeout(Some(PATIENCE))?;
    server.set_read_timeout(Some(PATIENCE))?;
    let payload: Vec<u8> = (0..LENGTH).map(|i| (i * 31 / 7) as u8).collect();
    let mut got = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| client.write_all(&payload).and_then(|()| client.shutdown(Shutdown::Write)));
        server.read_to_end(&mut got)
    })
    .context("receive")?;
    ensure!(got == payload, "{} of {LENGTH} bytes, or others", got.len());
    server.write_all(b"whole")?;
    drop(server);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).context("the answer")?;
    ensure!(answer == b"whole", "answered {answer:?}");
    Ok(peer.ip())
}

/// Who the backend saw, once datagrams have come and gone back.
fn datagrams(from: &Space, to: &Space, service: IpAddr, backend: IpAddr) -> Result<IpAddr> {
    let server = to.run(|| UdpSocket::bind((backend, 0)))??;
    let client = from.run(|| UdpSocket::bind((any(service), 0)))??;
    client.connect((service, server.local_addr()?.port()))?;
    client.set_read_timeout(Some(PATIENCE))?;
    server.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = [0; 2000];
    let mut seen = None;
    for length in [1, 500, 1300] {
        client.send(&vec![7; length])?;
        let (got, peer) = server.recv_from(&mut buffer).context("receive")?;
        ensure!(got == length, "{got} of {length} bytes");
        server.send_to(&buffer[..got], peer)?;
        ensure!(client.recv(&mut buffer).context("the answer")? == length, "another answer");
        seen = Some(peer.ip());
    }
    seen.context("nothing was sent")
}

#[test]
fn a_service_reaches_pods_here_and_there_and_hosts_outside() {
    for (underlay, carry) in [(Underlay::Passing, Carry::Tunnel4), (Underlay::Segmenting, Carry::Native)] {
        let mut bench = beside_kube_proxy(underlay, carry);
        let a = bench.pod(0, "a").expect("pod a");
        let near = bench.pod(0, "near").expect("a pod beside it");
        let far = bench.pod(1, "far").expect("a pod far away");
        for v6 in [false, true] {
            let node = bench.lab.nodes[0].address(v6);
            let outside = if v6 { OUTSIDE_V6.into() } else { OUTSIDE_V4.into() };
            reaches(&bench, &a.space, &near.space, near.address(v6), a.address(v6));
            reaches(&bench, &a.space, &far.space, far.address(v6), a.address(v6));
            reaches(&bench, &a.space, &bench.lab.lan.outside, outside, node);
        }
    }
}
