//! Single datagrams, right and forged, and many at once by UDP GSO.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use osmia_lab::Space;
use osmia_lab::packet::{Ip, frame};

/// Datagrams that [`segmented`] sends in one piece each.
pub(crate) const SEGMENTS: usize = 40;
const SEGMENT: usize = 1000;

/// Sends one datagram and waits until the programs have seen it.
pub(crate) fn send(from: &Space, destination: IpAddr, port: u16, payload: &[u8]) -> Result<()> {
    from.run(|| {
        let socket = UdpSocket::bind((any(destination), 0))?;
        socket.send_to(payload, (destination, port))?;
        Ok::<_, anyhow::Error>(())
    })??;
    sleep(Duration::from_millis(100));
    Ok(())
}

/// Four sends of ten segments; how many arrived whole.
pub(crate) fn segmented(from: &Space, to: &Space, destination: IpAddr) -> Result<usize> {
    let receiver = to.run(|| UdpSocket::bind((destination, 0)))??;
    receiver.set_read_timeout(Some(Duration::from_secs(1)))?;
    let port = receiver.local_addr()?.port();
    let payload: Vec<u8> = (0..10).flat_map(|i| vec![i; SEGMENT]).collect();
    let sender = from.run(|| UdpSocket::bind((any(destination), 0)))??;
    set_segment(&sender)?;
    let mut arrived = 0;
    let mut buffer = [0; 2 * SEGMENT];
    for _ in 0..SEGMENTS / 10 {
        sender.send_to(&payload, (destination, port)).context("send with UDP_SEGMENT")?;
        for i in 0..10 {
            match receiver.recv(&mut buffer) {
                Ok(SEGMENT) if buffer[..SEGMENT].iter().all(|b| *b == i) => arrived += 1,
                Ok(length) => anyhow::bail!("{length} bytes that are not segment {i}"),
                Err(_) => return Ok(arrived),
            }
        }
    }
    Ok(arrived)
}

/// `UDP_SEGMENT`: the kernel hands datagrams on in one piece (linux/udp.h).
fn set_segment(socket: &UdpSocket) -> Result<()> {
    Ok(setsockopt(socket, UdpGsoSegment, &(SEGMENT as i32))?)
}

/// The unspecified address of a family.
pub(crate) const fn any(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// An Ethernet frame with a UDP datagram, as it lies inside a tunnel packet.
pub(crate) fn inner(from: Ipv4Addr, to: Ipv4Addr, sport: u16, dport: u16, payload: &[u8]) -> Vec<u8> {
    frame([0x02, 0x6f, 0x73, 0x6d, 0, 3], [0x02, 0x6f, 0x73, 0x6d, 0, 2], &Ip::new(from, to).udp(sport, dport, payload))
}

/// The UDP payload of a tunnel packet (RFC 7348).
pub(crate) fn vxlan(vni: u32, frame: &[u8]) -> Vec<u8> {
    [&[8, 0, 0, 0][..], &(vni << 8).to_be_bytes(), frame].concat()
}

/// Sends `count` datagrams of `length` bytes, 50 ms apart; how many arrive whole, and from whom the last one came.
pub(crate) fn long(
    from: &Space,
    to: &Space,
    destination: IpAddr,
    length: usize,
    count: usize,
) -> Result<(usize, Option<IpAddr>)> {
    let receiver = to.run(|| UdpSocket::bind((destination, 0)))??;
    receiver.set_read_timeout(Some(Duration::from_secs(1)))?;
    let port = receiver.local_addr()?.port();
    let sender = from.run(|| UdpSocket::bind((any(destination), 0)))??;
    let payload: Vec<u8> = (0..length).map(|i| (i * 7 + i / 256) as u8).collect();
    let (mut arrived, mut peer) = (0, None);
    let mut buffer = vec![0; 65_536];
    for _ in 0..count {
        // Refused where the kernel has learnt just now that it must cut: the next one is cut.
        let _ = sender.send_to(&payload, (destination, port));
        if let Ok((got, who)) = receiver.recv_from(&mut buffer) {
            anyhow::ensure!(buffer[..got] == payload, "{got} of {length} bytes, or others");
            arrived += 1;
            peer = Some(who.ip());
        }
    }
    Ok((arrived, peer))
}
