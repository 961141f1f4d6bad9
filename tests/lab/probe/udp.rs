//! Datagrams of several sizes, echoed one by one.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::payload;
use super::{Arrival, Probe};
use crate::folder::random;

/// All below the smallest MTU of a pod.
const SIZES: [usize; 5] = [12, 100, 512, 1000, 1300];
const BETWEEN: Duration = Duration::from_millis(2);

pub(super) fn run(probe: &Probe<'_>) -> Result<Arrival> {
    let seed = random();
    let (bound, port) = channel();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            probe.to.run(|| {
                let socket = UdpSocket::bind((probe.destination, 0)).context("bind the receiver")?;
                bound.send(socket.local_addr()?.port()).context("the sender is gone")?;
                receive(&socket, seed, probe.patience)
            })?
        });
        let Ok(port) = port.recv_timeout(Duration::from_secs(10)) else {
            let error = receiver.join().map_err(|_| anyhow!("the receiver panicked"))?;
            return Err(error.err().unwrap_or_else(|| anyhow!("the receiver did not start")))
                .context(probe.to.name().to_owned());
        };
        let target = SocketAddr::new(probe.destination, port);
        let (returned, note) = probe.from.run(|| send(target, seed, probe.patience))??;
        let mut arrival = receiver.join().map_err(|_| anyhow!("the receiver panicked"))??;
        arrival.returned = returned;
        arrival.note = note;
        Ok(arrival)
    })
}

fn receive(socket: &UdpSocket, seed: u64, patience: Duration) -> Result<Arrival> {
    let mut arrival = Arrival { sent: SIZES.len(), whole: true, ..Arrival::default() };
    let mut seen = BTreeSet::new();
    let until = Instant::now() + patience;
    let mut buffer = [0; 2048];
    while seen.len() < SIZES.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_read_timeout(Some(left))?;
        // A time-out ends the loop above; an ICMP error is nothing that arrived.
        let Ok((length, peer)) = socket.recv_from(&mut buffer) else { continue };
        let bytes = buffer.get(..length).unwrap_or_default();
        let Some((index, whole)) = payload::read(seed, bytes) else { continue };
        arrival.peers.insert(peer.ip().to_canonical());
        arrival.whole &= whole && SIZES.get(index as usize) == Some(&length);
        seen.insert(index);
        // Not sent is not returned.
        let _ = socket.send_to(bytes, peer);
    }
    arrival.count = seen.len();
    Ok(arrival)
}

fn send(target: SocketAddr, seed: u64, patience: Duration) -> Result<(usize, Option<String>)> {
    let any: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).context("bind the sender")?;
    // No route is an answer of the network, not a fault of the lab.
    if let Err(err) = socket.connect(target) {
        return Ok((0, Some(format!("connect: {err}"))));
    }
    let mut note = None;
    for (index, size) in (0..).zip(SIZES) {
        if let Err(err) = socket.send(&payload::make(seed, index, size)) {
            note = Some(format!("send: {err}"));
        }
        thread::sleep(BETWEEN);
    }
    let until = Instant::now() + patience;
    let (mut seen, mut buffer) = (BTreeSet::new(), [0; 2048]);
    while seen.len() < SIZES.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut buffer) {
            Ok(length) => {
                if let Some((index, true)) = payload::read(seed, buffer.get(..length).unwrap_or_default()) {
                    seen.insert(index);
                }
            }
            Err(err) if matches!(err.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(err) => note = Some(format!("receive: {err}")),
        }
    }
    Ok((seen.len(), note))
}
