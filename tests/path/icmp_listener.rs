//! What ICMP a namespace gets.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use osmia_lab::Space;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with};

/// A raw socket inside.
pub(crate) struct IcmpListener {
    socket: OwnedFd,
    v6: bool,
}

impl IcmpListener {
    pub(crate) fn inside(space: &Space, v6: bool) -> Result<Self> {
        let (family, protocol) =
            if v6 { (AddressFamily::INET6, ipproto::ICMPV6) } else { (AddressFamily::INET, ipproto::ICMP) };
        let socket = space.run(|| socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol)))?;
        let socket = socket.context("open a raw socket")?;
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(100)))?;
        Ok(Self { socket, v6 })
    }

    /// The first message of type and code within a second, from its ICMP header on.
    pub(crate) fn wait(&self, kind: u8, code: u8) -> Option<Vec<u8>> {
        let end = Instant::now() + Duration::from_secs(1);
        let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
        while Instant::now() < end {
            let Ok(((bytes, _), _)) = recv(&self.socket, &mut buffer, RecvFlags::empty()) else { continue };
            // The IPv4 header is there, the IPv6 one is not.
            let message =
                if self.v6 { &bytes[..] } else { bytes.get(usize::from(bytes[0] & 0xf) * 4..).unwrap_or_default() };
            if message.starts_with(&[kind, code]) {
                return Some(message.to_vec());
            }
        }
        None
    }
}
