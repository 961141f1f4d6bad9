//! A blocking netlink socket: a request and its answers. What they mean is the callers' business.

use anyhow::{Context, Result};
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// A socket of the network namespace of the thread that opened it.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    pub(crate) fn open() -> Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE).context("cannot open a netlink socket")?;
        socket.bind_auto().context("cannot bind a netlink socket")?;
        socket.connect(&SocketAddr::new(0, 0)).context("cannot connect a netlink socket")?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(32 << 10) })
    }

    pub(crate) fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0).context("sending to netlink")?;
        Ok(())
    }

    /// Answers to the last request, up to its acknowledgement or end.
    ///
    /// # Errors
    /// The kernel's errno, or that of the socket.
    pub(crate) fn answers(&mut self, mut each: impl FnMut(&NetlinkHeader, RouteNetlinkMessage)) -> Result<(), i32> {
        loop {
            self.buffer.clear();
            // A dump message is at most 32 KiB (netlink_dump in net/netlink/af_netlink.c).
            let io = |e: std::io::Error| e.raw_os_error().unwrap_or(5);
            let (bytes, _) = self.socket.recv_from_full().map_err(io)?;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest) else { return Err(74) };
                let length = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(length.max(16)..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => each(&message.header, inner),
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) => {
                        return match error.code {
                            None => Ok(()),
                            Some(code) => Err(code.get().abs()),
                        };
                    }
                    _ => {}
                }
            }
        }
    }

    pub(crate) fn request(&mut self, message: RouteNetlinkMessage) -> Result<(), i32> {
        self.send(message, NLM_F_ACK).map_err(|_| 5)?;
        self.answers(|_, _| {})
    }
}
