//! Builds packets byte by byte, right or wrong on purpose, and sends them as they are.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use rustix::net::{AddressFamily, Protocol, SendFlags, SocketFlags, SocketType, sendto, socket_with};

use crate::space::Space;

/// Protocol numbers (IANA).
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// `IPPROTO_RAW` (netinet/in.h): the sender writes the IP header.
const RAW: u32 = 255;

/// TCP flags (RFC 9293).
pub mod flags {
    /// No more data.
    pub const FIN: u8 = 1;
    /// Opens.
    pub const SYN: u8 = 2;
    /// Refuses or breaks off.
    pub const RST: u8 = 4;
    /// Acknowledges.
    pub const ACK: u8 = 16;
}

/// Both ends, of one family, and the hops left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ip {
    /// Source.
    pub source: IpAddr,
    /// Destination.
    pub destination: IpAddr,
    /// TTL or hop limit.
    pub hops: u8,
}

impl Ip {
    /// From source to destination with 64 hops left.
    pub fn new(source: impl Into<IpAddr>, destination: impl Into<IpAddr>) -> Self {
        Self { source: source.into(), destination: destination.into(), hops: 64 }
    }

    /// The other way.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source, hops: self.hops }
    }

    /// An IP packet with this payload, whatever it is.
    #[must_use]
    pub fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes;
        if let (IpAddr::V4(source), IpAddr::V4(destination)) = (self.source, self.destination) {
            bytes = vec![0x45, 0];
            bytes.extend(((20 + payload.len()) as u16).to_be_bytes());
            // Identification 0 and don't fragment.
            bytes.extend([0, 0, 0x40, 0, self.hops, protocol, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
            let sum = checksum(&[&bytes]);
            bytes.splice(10..12, sum);
        } else {
            bytes = vec![0x60, 0, 0, 0];
            bytes.extend((payload.len() as u16).to_be_bytes());
            bytes.extend([protocol, self.hops]);
            bytes.extend(wide(self.source).octets());
            bytes.extend(wide(self.destination).octets());
        }
        bytes.extend(payload);
        bytes
    }

    /// A datagram.
    #[must_use]
    pub fn udp(&self, source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = ports(source, destination);
        bytes.extend(((8 + payload.len()) as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(payload);
        self.summed(UDP, bytes, 6)
    }

    /// A segment without options.
    #[must_use]
    pub fn tcp(&self, source: u16, destination: u16, flags: u8, sequence: u32, acknowledged: u32) -> Vec<u8> {
        let mut bytes = ports(source, destination);
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(acknowledged.to_be_bytes());
        bytes.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        self.summed(TCP, bytes, 16)
    }

    /// An echo request.
    #[must_use]
    pub fn echo(&self, identifier: u16, sequence: u16, payload: &[u8]) -> Vec<u8> {
        let v4 = self.source.is_ipv4();
        let mut bytes = vec![if v4 { 8 } else { 128 }, 0, 0, 0];
        bytes.extend(identifier.to_be_bytes());
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(payload);
        self.summed(if v4 { ICMP } else { ICMPV6 }, bytes, 2)
    }

    /// VXLAN (RFC 7348) around a frame, with this IP header outside.
    #[must_use]
    pub fn vxlan(&self, source_port: u16, port: u16, vni: u32, frame: &[u8]) -> Vec<u8> {
        let mut payload = vec![8, 0, 0, 0];
        payload.extend((vni << 8).to_be_bytes());
        payload.extend(frame);
        self.udp(source_port, port, &payload)
    }

    /// Writes the checksum at `at`: with the pseudo header, but for ICMP.
    fn summed(&self, protocol: u8, mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
        let length = (bytes.len() as u32).to_be_bytes();
        let sum = match (self.source, self.destination) {
            (IpAddr::V4(_), IpAddr::V4(_)) if protocol == ICMP => checksum(&[&bytes]),
            (IpAddr::V4(s), IpAddr::V4(d)) => {
                checksum(&[&s.octets(), &d.octets(), &[0, protocol], &length[2..], &bytes])
            }
            (s, d) => checksum(&[&wide(s).octets(), &wide(d).octets(), &length, &[0, 0, 0, protocol], &bytes]),
        };
        // Zero means none to UDP.
        let sum = if protocol == UDP && sum == [0, 0] { [0xff, 0xff] } else { sum };
        bytes.splice(at..at + 2, sum);
        self.packet(protocol, &bytes)
    }
}

/// An Ethernet frame around an IP packet.
#[must_use]
pub fn frame(destination: [u8; 6], source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let kind = if packet.first().is_some_and(|b| b >> 4 == 6) { [0x86, 0xdd] } else { [0x08, 0x00] };
    [&destination, &source, kind.as_slice(), packet].concat()
}

/// Sends IP packets as they are, by the routes of a namespace; the source may be anyone's.
#[derive(Debug)]
pub struct Injector {
    v4: OwnedFd,
    v6: Option<OwnedFd>,
}

impl Injector {
    /// Opens the sockets inside.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn inside(space: &Space) -> Result<Self> {
        space.run(|| {
            let protocol = Some(Protocol::from_raw(RAW.try_into().context("IPPROTO_RAW")?));
            let open = |family| socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, protocol);
            let v4 = open(AddressFamily::INET).context("open a raw socket")?;
            // A kernel may be without IPv6.
            Ok(Self { v4, v6: open(AddressFamily::INET6).ok() })
        })?
    }

    /// Sends one.
    ///
    /// # Errors
    /// No route, larger than the MTU, or a family the kernel does not have.
    pub fn send(&self, packet: &[u8], destination: IpAddr) -> Result<()> {
        let socket = match destination {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => self.v6.as_ref().context("this kernel has no IPv6")?,
        };
        let target = SocketAddr::new(destination, 0);
        sendto(socket, packet, SendFlags::empty(), &target).with_context(|| format!("send to {destination}"))?;
        Ok(())
    }
}

fn ports(source: u16, destination: u16) -> Vec<u8> {
    [source.to_be_bytes(), destination.to_be_bytes()].concat()
}

fn wide(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    }
}

/// RFC 1071 over the parts in a row; only the last may be of odd length.
#[must_use]
pub fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|p| p.chunks(2));
    let mut sum: u32 = words.map(|w| u32::from(u16::from_be_bytes([w[0], w.get(1).copied().unwrap_or(0)]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn checksum_of_the_rfc_1071_example() {
        assert_eq!(checksum(&[&[0x00, 0x01, 0xf2, 0x03], &[0xf4, 0xf5, 0xf6, 0xf7]]), (!0xddf2_u16).to_be_bytes());
    }

    #[test]
    fn what_is_summed_sums_to_zero() {
        let ip = Ip::new(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let packet = ip.udp(1, 2, b"odd");
        assert_eq!(checksum(&[&packet[..20]]), [0, 0]);
        assert_eq!(checksum(&[&packet[12..20], &[0, UDP, 0, 11], &packet[20..]]), [0, 0]);
        let echo = ip.echo(1, 2, b"x");
        assert_eq!(checksum(&[&echo[20..]]), [0, 0]);
    }
}
