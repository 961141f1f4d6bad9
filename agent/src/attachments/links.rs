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
use netlink_packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage},
};
use osmia_cni::protocol::link_name;

use super::outside::Links;
use crate::{netlink::Netlink, program::Expedited};

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
            if let Some(links) = dump(&mut netlink).context("listing links")? {
                return Ok(links);
            }
        }
        bail!("the links change faster than they can be listed")
    }

    fn index_of(&self, name: &str) -> Result<Option<u32>> {
        let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
            .context("cannot open a socket")?;
        match rustix::net::netdevice::name_to_index(socket, name) {
            Ok(ifindex) => Ok(Some(ifindex)),
            Err(rustix::io::Errno::NODEV) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("looking for link {name}")),
        }
    }

    fn retire(&self, ifindex: u32) {
        if self.retired.send(ifindex).is_err() {
            tracing::error!(ifindex, "the thread that removes links ended; the link goes as garbage after a restart");
        }
    }

    fn delete(&self, ifindex: u32) -> Result<()> {
        delete(&mut Netlink::open()?, ifindex)
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
        if let Err(error) = delete_together(netlink, &links) {
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

/// Our links; `None` if the dump was interrupted by changes.
fn dump(netlink: &mut Netlink) -> Result<Option<BTreeMap<u32, String>>> {
    let mut filter = LinkMessage::default();
    filter.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth)]));
    netlink.send(RouteNetlinkMessage::GetLink(filter), NLM_F_DUMP)?;
    let mut links = BTreeMap::new();
    let mut whole = true;
    let result = netlink.answers(|header, message| {
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

fn delete(netlink: &mut Netlink, ifindex: u32) -> Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    match netlink.request(RouteNetlinkMessage::DelLink(message)) {
        Ok(()) | Err(ENODEV) => Ok(()),
        Err(code) => Err(std::io::Error::from_raw_os_error(code)).with_context(|| format!("removing link {ifindex}")),
    }
}

/// Puts the links into one group and removes the group.
fn delete_together(netlink: &mut Netlink, links: &[u32]) -> Result<()> {
    if let [link] = links {
        return delete(netlink, *link);
    }
    for link in links {
        let mut message = LinkMessage::default();
        message.header.index = *link;
        message.attributes.push(LinkAttribute::Group(GROUP));
        match netlink.request(RouteNetlinkMessage::SetLink(message)) {
            Ok(()) | Err(ENODEV) => {}
            Err(code) => {
                let error = std::io::Error::from_raw_os_error(code);
                tracing::warn!(ifindex = link, %error, "cannot group a link; it is removed alone");
                delete(netlink, *link)?;
            }
        }
    }
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::Group(GROUP));
    match netlink.request(RouteNetlinkMessage::DelLink(message)) {
        // ENODEV: all were gone already.
        Ok(()) | Err(ENODEV) => Ok(()),
        Err(code) => Err(std::io::Error::from_raw_os_error(code)).context("removing a group of links"),
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
