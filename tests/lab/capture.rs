//! What crosses the LAN: every IP packet on the bridges, by outer and, inside VXLAN, inner addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

use crate::space::Space;

/// `ETH_P_ALL` (linux/if_ether.h) in network order.
const EVERYTHING: u32 = 0x0003_u16.to_be() as u32;
/// RFC 7348.
const VXLAN_PORT: [u8; 2] = 4789_u16.to_be_bytes();
const UDP: u8 = 17;
const BUFFER: usize = 32 << 20;

/// Source and destination.
pub type Pair = (IpAddr, IpAddr);

/// A kind of packet that was seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Seen {
    /// Addresses of the packet itself.
    pub outer: Pair,
    /// Addresses of the packet inside, if it is VXLAN.
    pub inner: Option<Pair>,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BTreeMap<Seen, usize>>,
}

impl Capture {
    /// Starts in a namespace; what passes after this call is seen.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn start(space: &Space) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (space, told) = (space.try_clone()?, Arc::clone(&stop));
        let (opened, answer) = channel();
        let body = move || {
            let socket = space.enter().and_then(|()| open());
            let mut seen = BTreeMap::new();
            match socket {
                Ok(socket) => {
                    if opened.send(Ok(())).is_ok() {
                        collect(&socket, &told, &mut seen);
                    }
                }
                Err(err) => drop(opened.send(Err(err))),
            }
            seen
        };
        let thread = thread::Builder::new().name("capture".into()).spawn(body).context("start a thread")?;
        answer.recv().context("the capture ended")??;
        Ok(Self { stop, thread })
    }

    /// Ends it and gives how often each kind was seen; a packet counts once a device it crosses.
    ///
    /// # Errors
    /// The thread panicked.
    pub fn finish(self) -> Result<BTreeMap<Seen, usize>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the capture panicked"))
    }
}

fn open() -> Result<OwnedFd> {
    let protocol = Protocol::from_raw(EVERYTHING.try_into().context("ETH_P_ALL")?);
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(protocol))
        .context("open a packet socket")?;
    set_socket_recv_buffer_size_force(&socket, BUFFER).context("size the packet socket")?;
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(50))).context("limit the packet socket")?;
    Ok(socket)
}

fn collect(socket: &OwnedFd, stop: &AtomicBool, seen: &mut BTreeMap<Seen, usize>) {
    let mut buffer = [0; 256];
    loop {
        match recv(socket, &mut buffer, RecvFlags::empty()) {
            Ok((length, _)) => {
                if let Some(packet) = buffer.get(..length.min(256)).and_then(classify) {
                    *seen.entry(packet).or_default() += 1;
                }
            }
            // Quiet: what was to be seen has been read.
            Err(_) if stop.load(Ordering::Relaxed) => return,
            Err(_) => {}
        }
    }
}

fn classify(bytes: &[u8]) -> Option<Seen> {
    let (outer, protocol, rest) = addresses(bytes)?;
    let tunnel = protocol == UDP && rest.get(2..4) == Some(&VXLAN_PORT);
    // UDP 8, VXLAN 8, Ethernet 14.
    let inner = if tunnel { rest.get(30..).and_then(addresses).map(|(pair, ..)| pair) } else { None };
    Some(Seen { outer, inner })
}

/// Addresses, protocol and what follows the header.
fn addresses(bytes: &[u8]) -> Option<(Pair, u8, &[u8])> {
    let v4 = |at: usize| Some(IpAddr::from(Ipv4Addr::from(*bytes.get(at..)?.first_chunk::<4>()?)));
    let v6 = |at: usize| Some(IpAddr::from(Ipv6Addr::from(*bytes.get(at..)?.first_chunk::<16>()?)));
    match bytes.first()? >> 4 {
        4 => Some(((v4(12)?, v4(16)?), *bytes.get(9)?, bytes.get(usize::from(bytes.first()? & 15) * 4..)?)),
        6 => Some(((v6(8)?, v6(24)?), *bytes.get(6)?, bytes.get(40..)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_packet_shows_both_pairs() {
        let ip = |a: u8, protocol: u8| {
            let mut header = [0; 20];
            (header[0], header[9], header[12], header[19]) = (0x45, protocol, a, a + 1);
            header
        };
        let mut bytes = ip(10, UDP).to_vec();
        bytes.extend([1, 1]);
        bytes.extend(VXLAN_PORT);
        bytes.extend([0; 4 + 8 + 14]);
        bytes.extend(ip(20, 6));
        let pair = |a: u8| (Ipv4Addr::new(a, 0, 0, 0).into(), Ipv4Addr::new(0, 0, 0, a + 1).into());
        assert_eq!(classify(&bytes), Some(Seen { outer: pair(10), inner: Some(pair(20)) }));
        bytes[22] ^= 1;
        assert_eq!(classify(&bytes), Some(Seen { outer: pair(10), inner: None }));
    }
}
