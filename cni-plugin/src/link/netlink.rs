//! A blocking rtnetlink socket: several requests in one send, and dumps that are whole.
//!
//! The kernel handles a request inside `send`, so all answers wait in the socket's queue when it returns. In a batch only the last
//! request asks for an acknowledgement; errors come for every request anyway. A failed request does not stop those behind it.

use std::io;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// Longest answer taken, bytes: the kernel's own limit for one dump part is 32 KiB.
const RECEIVE: usize = 64 << 10;
/// Attempts at a dump that changes of the tables interrupt.
const DUMPS: usize = 20;
/// Answers are there when a send returns; a longer silence is a fault, and an endless wait would hold the runtime.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why the kernel's answer is not what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused a request.
    #[error("{what}: {source}{}", reason(hint))]
    Refused {
        /// Position of the request in its batch.
        index: usize,
        /// What it was for.
        what: &'static str,
        /// The answer.
        source: io::Error,
        /// The kernel's own words, if it had any.
        hint: String,
    },
    /// The socket failed.
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
    /// The answer cannot be understood.
    #[error("netlink: {0}")]
    Decode(String),
}

fn reason(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!(" ({hint})") }
}

impl NetlinkError {
    /// The errno of a refusal.
    #[must_use]
    pub fn errno(&self) -> Option<rustix::io::Errno> {
        match self {
            Self::Refused { source, .. } => rustix::io::Errno::from_io_error(source),
            _ => None,
        }
    }
}

/// One request of a batch.
#[derive(Debug)]
pub struct Ask {
    /// What it is for, for errors.
    pub what: &'static str,
    /// The message.
    pub message: RouteNetlinkMessage,
}

impl Ask {
    /// A request.
    #[must_use]
    pub fn new(what: &'static str, message: RouteNetlinkMessage) -> Self {
        Self { what, message }
    }
}

/// A socket in one network namespace.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens one in the calling thread's namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Words for refusals, without the request repeated before them. Strict checking: filters of a dump are obeyed or refused.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        socket.set_netlink_get_strict_chk(true)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(RECEIVE) })
    }

    /// Sends all requests at once; gives the answers of those that have one.
    ///
    /// # Errors
    /// The first refusal in the order of the requests; the others were carried out or refused as well.
    pub fn batch(&mut self, asks: Vec<Ask>) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        let first = self.sequence.wrapping_add(1);
        let count = asks.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = Vec::new();
        let mut names = Vec::with_capacity(count);
        for (i, ask) in asks.into_iter().enumerate() {
            let create = match &ask.message {
                RouteNetlinkMessage::NewLink(_)
                | RouteNetlinkMessage::NewAddress(_)
                | RouteNetlinkMessage::NewRoute(_) => NLM_F_CREATE | NLM_F_EXCL,
                RouteNetlinkMessage::NewNeighbour(_) => NLM_F_CREATE | NLM_F_REPLACE,
                _ => 0,
            };
            let last = if i + 1 == count { NLM_F_ACK } else { 0 };
            self.append(&mut bytes, ask.message, create | last);
            names.push(ask.what);
        }
        self.socket.send(&bytes, 0)?;
        let (mut answers, mut refused) = (Vec::new(), None::<NetlinkError>);
        let last = self.sequence;
        loop {
            for message in self.receive()? {
                let index = message.header.sequence_number.wrapping_sub(first) as usize;
                let Some(what) = names.get(index).copied() else { continue };
                let done = match message.payload {
                    NetlinkPayload::Error(error) => {
                        if error.code.is_some() {
                            let hint = hint(&error.header, message.header.flags);
                            let source = error.to_io();
                            refused.get_or_insert(NetlinkError::Refused { index, what, source, hint });
                        }
                        message.header.sequence_number == last
                    }
                    NetlinkPayload::InnerMessage(inner) => {
                        answers.push(inner);
                        false
                    }
                    _ => false,
                };
                if done {
                    return refused.map_or(Ok(answers), Err);
                }
            }
        }
    }

    /// Everything of a table that the request's filters let through, of one moment.
    ///
    /// # Errors
    /// A refusal, or a table that never stood still.
    pub fn dump(
        &mut self,
        what: &'static str,
        ask: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        for _ in 0..DUMPS {
            if let Some(whole) = self.dump_once(what, ask.clone())? {
                return Ok(whole);
            }
        }
        Err(NetlinkError::Decode(format!("{what}: the table kept changing during {DUMPS} dumps")))
    }

    /// None if the table changed under the dump.
    fn dump_once(
        &mut self,
        what: &'static str,
        ask: RouteNetlinkMessage,
    ) -> Result<Option<Vec<RouteNetlinkMessage>>, NetlinkError> {
        let mut bytes = Vec::new();
        self.append(&mut bytes, ask, NLM_F_DUMP);
        self.socket.send(&bytes, 0)?;
        let (mut answers, mut interrupted) = (Vec::new(), false);
        loop {
            for message in self.receive()? {
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    NetlinkPayload::Done(done) if done.code == 0 => {
                        return Ok(if interrupted { None } else { Some(answers) });
                    }
                    NetlinkPayload::Done(done) => {
                        let source = io::Error::from_raw_os_error(done.code.saturating_abs());
                        return Err(NetlinkError::Refused { index: 0, what, source, hint: String::new() });
                    }
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        let hint = hint(&error.header, message.header.flags);
                        return Err(NetlinkError::Refused { index: 0, what, source: error.to_io(), hint });
                    }
                    _ => {}
                }
            }
        }
    }

    fn append(&mut self, bytes: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let start = bytes.len();
        // Messages of a batch start on 4 bytes.
        bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
        if let Some(space) = bytes.get_mut(start..) {
            message.serialize(space);
        }
    }

    /// One datagram's messages.
    fn receive(&mut self) -> Result<Vec<NetlinkMessage<RouteNetlinkMessage>>, NetlinkError> {
        self.buffer.clear();
        while let Err(error) = self.socket.recv(&mut self.buffer, 0) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error.into());
            }
        }
        let mut rest = self.buffer.as_slice();
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let message = NetlinkMessage::deserialize(rest).map_err(|e| NetlinkError::Decode(e.to_string()))?;
            let length = (message.header.length as usize).next_multiple_of(4);
            messages.push(message);
            rest = rest.get(length..).unwrap_or_default();
        }
        Ok(messages)
    }
}

/// The kernel's words in a refusal: attribute NLMSGERR_ATTR_MSG behind the header of the request (`linux/netlink.h`).
fn hint(payload: &[u8], flags: u16) -> String {
    const HEADER: usize = 16;
    const ATTR_MSG: u16 = 1;
    let mut rest = if flags & NLM_F_ACK_TLVS == 0 { &[] } else { payload.get(HEADER..).unwrap_or_default() };
    while let [l0, l1, k0, k1, ..] = rest {
        let length = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let Some(value) = rest.get(4..length) else { break };
        if u16::from_ne_bytes([*k0, *k1]) == ATTR_MSG {
            return String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    String::new()
}
