//! Echo requests by raw sockets: the destination's own socket sees the request, its kernel answers it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, bind, ipproto, recvfrom, sendto,
    socket_with,
};

use super::payload;
use super::{Arrival, Probe};
use crate::folder::random;
use crate::packet::checksum;

const SIZES: [usize; 5] = [12, 56, 512, 1000, 1300];
const BETWEEN: Duration = Duration::from_millis(2);
const HEADER: usize = 8;
/// Echo request and reply, ICMP and ICMPv6.
const V4: (u8, u8) = (8, 0);
const V6: (u8, u8) = (128, 129);

pub(super) fn run(probe: &Probe<'_>) -> Result<Arrival> {
    let seed = random();
    let v6 = probe.destination.is_ipv6();
    let (bound, ready) = channel();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            probe.to.run(|| {
                let socket = raw(v6).context("the receiver's socket")?;
                bind(&socket, &SocketAddr::new(probe.destination, 0)).context("bind the receiver")?;
                bound.send(()).context("the sender is gone")?;
                let request = if v6 { V6.0 } else { V4.0 };
                receive(&socket, request, seed, probe.patience)
            })?
        });
        if ready.recv_timeout(Duration::from_secs(10)).is_err() {
            let error = receiver.join().map_err(|_| anyhow!("the receiver panicked"))?;
            return Err(error.err().unwrap_or_else(|| anyhow!("the receiver did not start")))
                .context(probe.to.name().to_owned());
        }
        let (returned, note) = probe.from.run(|| send(probe.destination, seed, probe.patience))??;
        let mut arrival = receiver.join().map_err(|_| anyhow!("the receiver panicked"))??;
        arrival.returned = returned;
        arrival.note = note;
        Ok(arrival)
    })
}

fn raw(v6: bool) -> Result<OwnedFd> {
    let (family, protocol) =
        if v6 { (AddressFamily::INET6, ipproto::ICMPV6) } else { (AddressFamily::INET, ipproto::ICMP) };
    Ok(socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol))?)
}

/// Messages of type `wanted` with the probe's payload, until all came or the time is over.
fn receive(socket: &OwnedFd, wanted: u8, seed: u64, patience: Duration) -> Result<Arrival> {
    let mut arrival = Arrival { sent: SIZES.len(), whole: true, ..Arrival::default() };
    let mut seen = BTreeSet::new();
    let until = Instant::now() + patience;
    let mut buffer = [0; 2048];
    while seen.len() < SIZES.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        set_socket_timeout(socket, Timeout::Recv, Some(left))?;
        let (length, peer) = match recvfrom(socket, &mut buffer, RecvFlags::empty()) {
            Ok((length, _, peer)) => (length, peer),
            // The loop's condition ends it; an ICMP error is nothing that arrived.
            Err(_) => continue,
        };
        let Some(peer) = peer.and_then(address) else { continue };
        let bytes = buffer.get(..length).unwrap_or_default();
        // An IPv4 raw socket shows the IP header as well.
        let skip = if peer.is_ipv4() { bytes.first().map_or(0, |b| usize::from(b & 15) * 4) } else { 0 };
        let Some((head, body)) = bytes.get(skip..).and_then(|b| b.split_at_checked(HEADER)) else { continue };
        if head.first() != Some(&wanted) {
            continue;
        }
        let Some((index, whole)) = payload::read(seed, body) else { continue };
        arrival.peers.insert(peer);
        arrival.whole &= whole && SIZES.get(index as usize) == Some(&body.len());
        seen.insert(index);
    }
    arrival.count = seen.len();
    Ok(arrival)
}

fn send(destination: IpAddr, seed: u64, patience: Duration) -> Result<(usize, Option<String>)> {
    let v6 = destination.is_ipv6();
    let socket = raw(v6).context("the sender's socket")?;
    let any: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    bind(&socket, &SocketAddr::new(any, 0)).context("bind the sender")?;
    let target = SocketAddr::new(destination, 0);
    let mut note = None;
    let identifier = (seed as u16).to_be_bytes();
    for (index, size) in (0..).zip(SIZES) {
        let message = request(v6, identifier, index, &payload::make(seed, index, size));
        if let Err(err) = sendto(&socket, &message, SendFlags::empty(), &target) {
            note = Some(format!("send: {}", std::io::Error::from(err)));
        }
        thread::sleep(BETWEEN);
    }
    let replies = receive(&socket, if v6 { V6.1 } else { V4.1 }, seed, patience)?;
    let whole = replies.whole && replies.peers.iter().all(|p| *p == destination);
    Ok((if whole { replies.count } else { 0 }, note))
}

fn request(v6: bool, identifier: [u8; 2], sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = vec![if v6 { V6.0 } else { V4.0 }, 0, 0, 0];
    message.extend(identifier);
    message.extend((sequence as u16).to_be_bytes());
    message.extend(body);
    if !v6 {
        // The kernel writes the checksum of ICMPv6 only (RFC 3542, 3.1).
        let sum = checksum(&[&message]);
        message.splice(2..4, sum);
    }
    message
}

fn address(peer: SocketAddrAny) -> Option<IpAddr> {
    SocketAddr::try_from(peer).ok().map(|a| a.ip().to_canonical())
}
