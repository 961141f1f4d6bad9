//! A veth pair in the guest, and packets through it.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

const HOST: &CStr = c"osm-host";
const PEER: &CStr = c"osm-peer";

/// Two veth ends, up, with a link-local IPv6 address each.
#[derive(Debug)]
pub(crate) struct Pair {
    host: u32,
    peer: u32,
    socket: UdpSocket,
}

impl Pair {
    /// Creates the pair.
    pub(crate) fn create() -> Result<Self> {
        let (host_name, peer_name) = (HOST.to_str()?, PEER.to_str()?);
        let mut peer = LinkMessage::default();
        peer.attributes.push(LinkAttribute::IfName(peer_name.into()));
        let mut host = LinkMessage::default();
        host.attributes = vec![
            LinkAttribute::IfName(host_name.into()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        request(host, NLM_F_CREATE | NLM_F_EXCL).context("create the veth pair")?;
        let (host, peer) = (up(host_name)?, up(peer_name)?);
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).context("open a socket")?;
        Ok(Self { host, peer, socket })
    }

    /// Name of the end that stands for the host's side of a pod.
    pub(crate) fn host_name(&self) -> &'static CStr {
        HOST
    }

    /// Sends a packet that leaves by the host's end.
    pub(crate) fn send_from_host(&self) -> io::Result<()> {
        self.send(self.host)
    }

    /// Sends a packet that arrives at the host's end.
    pub(crate) fn send_towards_host(&self) -> io::Result<()> {
        self.send(self.peer)
    }

    /// All nodes of the link, discard port: needs neither a neighbour nor a receiver. Until the device has its link-local address
    /// there is no source to send from.
    fn send(&self, device: u32) -> io::Result<()> {
        let all_nodes = SocketAddrV6::new(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 9, 0, device);
        let start = Instant::now();
        loop {
            match self.socket.send_to(b"osmia", all_nodes) {
                Ok(_) => return Ok(()),
                Err(_) if start.elapsed() < Duration::from_secs(5) => sleep(Duration::from_millis(5)),
                Err(err) => return Err(err),
            }
        }
    }
}

/// Sets a device up, with addresses that need no duplicate detection, and tells its index.
fn up(name: &str) -> Result<u32> {
    let dad = format!("/proc/sys/net/ipv6/conf/{name}/accept_dad");
    fs::write(&dad, "0").with_context(|| format!("write {dad}"))?;
    let path = format!("/sys/class/net/{name}/ifindex");
    let index = fs::read_to_string(&path)
        .with_context(|| format!("read {path}"))?
        .trim()
        .parse()
        .context("index of a device")?;
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    request(link, 0).with_context(|| format!("set {name} up"))?;
    Ok(index)
}

/// Sends one RTM_NEWLINK and waits for the kernel's answer.
fn request(link: LinkMessage, flags: u16) -> Result<()> {
    let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewLink(link));
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);

    let socket = Socket::new(NETLINK_ROUTE).context("open a netlink socket")?;
    socket.connect(&SocketAddr::new(0, 0)).context("reach the kernel")?;
    socket.send(&bytes, 0).context("send")?;
    let (answer, _) = socket.recv_from_full().context("wait for the answer")?;
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).context("read the answer")?.payload {
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => Err(error.to_io().into()),
        other => bail!("the kernel answered {other:?}"),
    }
}
