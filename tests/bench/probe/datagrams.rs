//! Small datagrams one way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use anyhow::{Context, Result};

use super::{Did, SOURCE_PORT};
use crate::cpu;

/// With its headers the smallest Ethernet frame.
const PAYLOAD: [u8; 18] = [0; 18];
/// Datagrams between looks at the clock.
const BATCH: u64 = 64;

pub(super) fn socket(to: SocketAddr) -> Result<UdpSocket> {
    let any = if to.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, SOURCE_PORT)).context("open a UDP socket")?;
    socket.connect(to).with_context(|| format!("take {to} for the destination"))?;
    Ok(socket)
}

pub(super) fn burst(socket: &UdpSocket, end: Instant) -> Result<Did> {
    let before = cpu::of_this_thread();
    let mut units = 0;
    while Instant::now() < end {
        for _ in 0..BATCH {
            socket.send(&PAYLOAD).context("send a datagram")?;
        }
        units += BATCH;
    }
    let cpu = cpu::of_this_thread().saturating_sub(before);
    Ok(Did { units, cpu: cpu.as_nanos() as u64, p50: 0, p99: 0 })
}
