//! The host links in the kernel, by a blocking netlink socket.
//!
//! Invariant: only veths whose name is one of ours are listed, and only by ifindex is anything removed: a name may already be another
//! device's. Removal in groups: the kernel waits for its grace periods once for all of them.

use std::{
    collections::BTreeMap,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use osmia_cni::protocol::link_name;

use super::outside::Links;
use crate::program::Expedited;

/// The group links are put into for their removal ("osm").
const GROUP: u32 = 0x006f_736d;
/// How long the first retired link waits for others.
const GATHER: Duration = Duration::from_millis(250);
/// How often a dump that the kernel calls inconsistent is repeated.
const DUMPS: usize = 5;
const ENODEV: i32 = 19;

/// The links of the network namespace this was made in.
pub struct KernelLinks {
    retired: mpsc::Sender<u32>,
}

impl KernelLinks {
    /// Starts the thread that removes retired links.
    ///
    /// # Errors
    /// No netlink socket, or no thread.
    pub fn new() -> Result<Self> {
        let (retired, queue) = mpsc::channel();
        // Opened here: the socket belongs to the namespace of the thread that opens it.
        let mut netlink = Netlink::open()?;
        thread::Builder::new()
            .name("links".into())
            .stack_size(256 << 10)
            .spawn(move || remove_retired(&mut netlink, &queue))
            .context("cannot start the thread that removes links")?;
        Ok(Self { retired })
    }
}

impl Links for KernelLinks {
    fn list(&self) -> Result<BTreeMap<u32, String>> {
        let mut netlink = Netlink::open()?;
        for _ in 0..DUMPS {
            if let Some(links) = netlink.dump().context("listing links")? {
                return Ok(links);
            }
        }
        bail!("the links change faster than they can be listed")
    }

    fn index_of(&self, name: &str) -> Option<u32> {
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).ok()?;
        rustix::net::netdevice::name_to_index(socket, name).ok()
    }

    fn retire(&self, ifindex: u32) {
        if self.retired.send(ifindex).is_err() {
            tracing::error!(ifindex, "the thread that removes links ended; the link goes as garbage after a restart");
        }
    }

    fn delete(&self, ifindex: u32) -> Result<()> {
        Netlink::open()?.delete(ifindex)
    }
}

fn remove_retired(netlink: &mut Netlink, queue: &mpsc::Receiver<u32>) {
    while let Ok(first) = queue.recv() {
        let until = Instant::now() + GATHER;
        let mut links = vec![first];
        while let Ok(next) = queue.recv_timeout(until.saturating_duration_since(Instant::now())) {
            links.push(next);
        }
        // Each device waits for its programs' readers, with the lock held that every other device needs.
        let _short = Expedited::begin();
        if let Err(error) = netlink.delete_together(&links) {
            tracing::error!(?links, error = format!("{error:#}"), "removing links; what stays goes as garbage");
        }
    }
}

/// Whether a link's name is one that [`link_name::host_link_name`] makes.
fn is_ours(name: &str) -> bool {
    name.strip_prefix(link_name::PREFIX).is_some_and(|rest| {
        rest.len() == 12
            && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'z') && !matches!(b, b'i' | b'l' | b'o' | b'u'))
    })
}

struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    fn open() -> Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE).context("cannot open a netlink socket")?;
        socket.bind_auto().context("cannot bind a netlink socket")?;
        socket.connect(&SocketAddr::new(0, 0)).context("cannot connect a netlink socket")?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(32 << 10) })
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
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
    fn answers(&mut self, mut each: impl FnMut(&NetlinkHeader, RouteNetlinkMessage)) -> Result<(), i32> {
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

    fn request(&mut self, message: RouteNetlinkMessage) -> Result<(), i32> {
        self.send(message, NLM_F_ACK).map_err(|_| 5)?;
        self.answers(|_, _| {})
    }

    /// Our links; `None` if the dump was interrupted by changes.
    fn dump(&mut self) -> Result<Option<BTreeMap<u32, String>>> {
        let mut filter = LinkMessage::default();
        filter.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth)]));
        self.send(RouteNetlinkMessage::GetLink(filter), NLM_F_DUMP)?;
        let mut links = BTreeMap::new();
        let mut whole = true;
        let result = self.answers(|header, message| {
            whole &= header.flags & NLM_F_DUMP_INTR == 0;
            if let RouteNetlinkMessage::NewLink(link) = message {
                let name = link.attributes.iter().find_map(|attribute| match attribute {
                    LinkAttribute::IfName(name) if is_ours(name) => Some(name.clone()),
                    _ => None,
                });
                if let Some(name) = name {
                    links.insert(link.header.index, name);
                }
            }
        });
        result.map_err(std::io::Error::from_raw_os_error)?;
        Ok(whole.then_some(links))
    }

    fn delete(&mut self, ifindex: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        match self.request(RouteNetlinkMessage::DelLink(message)) {
            Ok(()) | Err(ENODEV) => Ok(()),
            Err(code) => {
                Err(std::io::Error::from_raw_os_error(code)).with_context(|| format!("removing link {ifindex}"))
            }
        }
    }

    /// Puts the links into one group and removes the group.
    fn delete_together(&mut self, links: &[u32]) -> Result<()> {
        if let [link] = links {
            return self.delete(*link);
        }
        for link in links {
            let mut message = LinkMessage::default();
            message.header.index = *link;
            message.attributes.push(LinkAttribute::Group(GROUP));
            match self.request(RouteNetlinkMessage::SetLink(message)) {
                Ok(()) | Err(ENODEV) => {}
                Err(code) => {
                    let error = std::io::Error::from_raw_os_error(code);
                    tracing::warn!(ifindex = link, %error, "cannot group a link; it is removed alone");
                    self.delete(*link)?;
                }
            }
        }
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Group(GROUP));
        match self.request(RouteNetlinkMessage::DelLink(message)) {
            // ENODEV: all were gone already.
            Ok(()) | Err(ENODEV) => Ok(()),
            Err(code) => Err(std::io::Error::from_raw_os_error(code)).context("removing a group of links"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_hash_makes_are_ours() {
        for ours in ["osmafr2pezyjjad", "osm000000000000"] {
            assert!(is_ours(ours), "{ours}");
        }
        for other in ["osmia0", "osmia1", "osmia-vx", "eth0", "osm00000000000i", "osm-1234567890a", "osmafr2pezyjjadx"]
        {
            assert!(!is_ours(other), "{other}");
        }
    }
}
