//! VXLAN (RFC 7348) between nodes: the outer header written in front of the IP packet, and the way back.
//!
//! Invariant: what comes out of a tunnel is believed only from a node, and only with a source in that node's blocks or one of its own
//! addresses; [`receive`] proves the header, the flow's decision its sender, and [`still_from`] that of each later packet.
//!
//! Two kinds of packets are left to the collect-metadata device, since the kernel keeps the tunnel's GSO type and the `encapsulation`
//! bit on what our program unpacks: GSO that is not TCP dies at the receiver's socket, and what is encapsulated already can not be
//! encapsulated again. See docs/notes/vxlan.md.

use super::packet::{ETH_IPV4, ETH_IPV6, ETH_LEN, Room, TunnelKey, room};
use super::{Packet, Tables, Verdict, checksum};
use crate::layout::node::{N_OUTER_V6, N_PRESENT, N_TUNNEL, OUTER_V4_LEN, OUTER_V6_LEN};
use crate::layout::route::RouteKind;
use crate::layout::{Addr, Config, DropReason, Node};

/// Offsets inside the outer header, from its IP header on.
const V4_TOTAL: usize = 2;
const V4_CHECK: usize = 10;
const V6_PAYLOAD: usize = 4;
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
const UDP_LEN: usize = 4;
const UDP_HEADER: usize = 8;
const VXLAN_HEADER: usize = 8;
/// Offset of the UDP header in a packet of ours.
const UDP_V4: usize = ETH_LEN + V4_HEADER;
const UDP_V6: usize = ETH_LEN + V6_HEADER;
/// First of the 16384 source ports (RFC 7348 section 5 recommends the dynamic range).
const FIRST_PORT: u16 = 49_152;
const PORT_MASK: u32 = 0x3fff;
/// The I flag: a network identifier is there.
const VXLAN_FLAGS: u8 = 0x08;
const UDP: u8 = 17;
const TCP: u8 = 6;
const TYPE_V4: [u8; 2] = ETH_IPV4.to_be_bytes();
const TYPE_V6: [u8; 2] = ETH_IPV6.to_be_bytes();
/// `EALREADY`: the packet is encapsulated already.
const EALREADY: i64 = -114;
/// `ENOTSUPP`, the kernel's own number: a GSO kind that gets no header this way (SCTP, UDP of one list).
const ENOTSUPP: i64 = -524;
/// `EINVAL`: among others, a flag that this kernel does not know.
const EINVAL: i64 = -22;

/// Puts the packet into the tunnel to `node`; the way out is the node's uplink and next hop.
#[inline(always)]
pub fn send<P: Packet, T: Tables>(p: &mut P, t: &T, node: &Node, inner_v6: bool) -> Verdict {
    if node.flags & (N_PRESENT | N_TUNNEL) != N_PRESENT | N_TUNNEL {
        return Verdict::drop(DropReason::NoNode);
    }
    let outer_v6 = node.flags & N_OUTER_V6 != 0;
    // The hash is of the inner packet: it has to be asked before the outer header is there.
    let port = (FIRST_PORT | (p.hash() & PORT_MASK) as u16).to_be_bytes();
    let inner = p.length().saturating_sub(ETH_LEN as u32);
    if let Err(errno) = open(p, outer_v6) {
        return match errno {
            EALREADY | ENOTSUPP => by_device(p, t, node),
            _ => Verdict::drop(DropReason::AdjustRoom),
        };
    }
    let written =
        if outer_v6 { write_v6(p, node, port, inner, inner_v6) } else { write_v4(p, node, port, inner, inner_v6) };
    if written.is_none() {
        return Verdict::drop(DropReason::AdjustRoom);
    }
    Verdict::neighbour(node.uplink, node.next_hop_tunnel)
}

/// Room for the outer header. `ENCAP_L2_ETH` (5.13) tells the kernel that an Ethernet frame is inside: without it a device that could
/// segment VXLAN itself is not asked to (`vxlan_features_check`).
#[inline(always)]
fn open<P: Packet>(p: &mut P, outer_v6: bool) -> Result<(), i64> {
    let (len, family) =
        if outer_v6 { (OUTER_V6_LEN, room::ENCAP_L3_IPV6) } else { (OUTER_V4_LEN, room::ENCAP_L3_IPV4) };
    let flags = room::FIXED_GSO | family | room::ENCAP_L4_UDP | room::encap_l2(ETH_LEN as u64);
    match p.adjust_room(len as i32, Room::Mac, flags | room::ENCAP_L2_ETH) {
        Err(EINVAL) => p.adjust_room(len as i32, Room::Mac, flags),
        other => other,
    }
}

/// Takes the outer header away and keeps what was verified of the inner checksum.
#[inline(always)]
fn close<P: Packet>(p: &mut P, outer_v6: bool, inner_v6: bool) -> Option<()> {
    let len = if outer_v6 { OUTER_V6_LEN } else { OUTER_V4_LEN } as i32;
    let flags = room::FIXED_GSO | room::NO_CSUM_RESET;
    if outer_v6 == inner_v6 {
        p.adjust_room(-len, Room::Mac, flags).ok()?;
    } else {
        let family = if inner_v6 { room::DECAP_L3_IPV6 } else { room::DECAP_L3_IPV4 };
        match p.adjust_room(-len, Room::Mac, flags | family) {
            Ok(()) => {}
            // Before 6.3 the kernel must be told by changing the outer header's family, which moves 20 bytes.
            Err(EINVAL) => {
                p.change_proto(if inner_v6 { ETH_IPV6 } else { ETH_IPV4 })?;
                let rest = if inner_v6 { len + 20 } else { len - 20 };
                p.adjust_room(-rest, Room::Mac, flags).ok()?;
            }
            Err(_) => return None,
        }
    }
    // The outer UDP checksum counts as one verified, be it none at all. Refused where nothing was verified, which is no harm.
    let _ = p.csum_level_dec();
    Some(())
}

#[inline(always)]
fn by_device<P: Packet, T: Tables>(p: &mut P, t: &T, node: &Node) -> Verdict {
    let Some(config) = t.config() else { return Verdict::drop(DropReason::Program) };
    if config.tunnel_dev == 0 || p.set_tunnel_key(&TunnelKey { vni: config.vni, remote: node.tunnel }).is_none() {
        return Verdict::drop(DropReason::TunnelDevice);
    }
    Verdict::tunnel_device(config.tunnel_dev)
}

/// A length field; a GSO packet may be longer than it can say, and its segments get their own.
#[inline(always)]
const fn length_field(bytes: u32) -> [u8; 2] {
    (if bytes > 0xffff { 0xffff } else { bytes as u16 }).to_be_bytes()
}

#[inline(always)]
const fn ethertype(v6: bool) -> [u8; 2] {
    if v6 { TYPE_V6 } else { TYPE_V4 }
}

/// The row with the fields of this packet, written in one go: each call of the helper costs more than the copy.
#[inline(always)]
fn write_v4<P: Packet>(p: &mut P, node: &Node, port: [u8; 2], inner: u32, inner_v6: bool) -> Option<()> {
    let mut h: [u8; OUTER_V4_LEN] = *node.outer.first_chunk()?;
    [h[V4_TOTAL], h[V4_TOTAL + 1]] = length_field(inner + OUTER_V4_LEN as u32);
    let word = |i: usize| checksum::of4([h[i], h[i + 1], h[i + 2], h[i + 3]]);
    let front = checksum::add(checksum::add(word(0), word(4)), checksum::of2([h[8], h[9]]));
    let sum = checksum::add(front, checksum::add(word(12), word(16)));
    [h[V4_CHECK], h[V4_CHECK + 1]] = checksum::field(sum);
    [h[V4_HEADER], h[V4_HEADER + 1]] = port;
    [h[V4_HEADER + UDP_LEN], h[V4_HEADER + UDP_LEN + 1]] = length_field(inner + (OUTER_V4_LEN - V4_HEADER) as u32);
    [h[OUTER_V4_LEN - 2], h[OUTER_V4_LEN - 1]] = ethertype(inner_v6);
    p.write(ETH_LEN, &h)?;
    if inner_v6 { p.write(ETH_LEN - 2, &TYPE_V4) } else { Some(()) }
}

#[inline(always)]
fn write_v6<P: Packet>(p: &mut P, node: &Node, port: [u8; 2], inner: u32, inner_v6: bool) -> Option<()> {
    let mut h: [u8; OUTER_V6_LEN] = *node.outer.first_chunk()?;
    let udp = length_field(inner + (OUTER_V6_LEN - V6_HEADER) as u32);
    [h[V6_PAYLOAD], h[V6_PAYLOAD + 1]] = udp;
    [h[V6_HEADER], h[V6_HEADER + 1]] = port;
    [h[V6_HEADER + UDP_LEN], h[V6_HEADER + UDP_LEN + 1]] = udp;
    [h[OUTER_V6_LEN - 2], h[OUTER_V6_LEN - 1]] = ethertype(inner_v6);
    p.write(ETH_LEN, &h)?;
    if inner_v6 { Some(()) } else { p.write(ETH_LEN - 2, &TYPE_V6) }
}

/// What [`receive`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// No packet of the tunnel.
    Other,
    /// Of the tunnel, and the collect-metadata device has to unpack it: leave it to the stack.
    Device,
    /// Unpacked: the inner IP packet lies behind the Ethernet header now.
    Opened,
}

/// Unpacks a tunnel packet that came to an uplink.
///
/// The caller has parsed a whole (not fragmented) UDP datagram to this node's own tunnel address; `udp` is its offset and `port` its
/// destination port. Fragments of tunnel packets are the stack's: it reassembles them and gives them to the device.
///
/// # Errors
/// The reason to drop it.
#[inline(always)]
pub fn receive<P: Packet>(
    p: &mut P,
    config: &Config,
    outer_v6: bool,
    udp: usize,
    port: [u8; 2],
) -> Result<Received, DropReason> {
    if port != config.tunnel_port {
        return Ok(Received::Other);
    }
    let (inner_v6, proto) = match (outer_v6, udp) {
        (false, UDP_V4) => inner::<P, UDP_V4>(p, config)?,
        (true, UDP_V6) => inner::<P, UDP_V6>(p, config)?,
        // No options, no extension headers: our header has neither.
        _ => return Err(DropReason::TunnelHeader),
    };
    if p.gso_size() != 0 && proto != TCP {
        return if config.tunnel_dev == 0 { Err(DropReason::TunnelDevice) } else { Ok(Received::Device) };
    }
    close(p, outer_v6, inner_v6).ok_or(DropReason::AdjustRoom)?;
    if outer_v6 != inner_v6 {
        p.write(ETH_LEN - 2, &ethertype(inner_v6)).ok_or(DropReason::AdjustRoom)?;
    }
    Ok(Received::Opened)
}

/// Proves VXLAN and inner Ethernet header behind the UDP header at `AT`; gives the inner family and its protocol byte.
#[inline(always)]
fn inner<P: Packet, const AT: usize>(p: &mut P, config: &Config) -> Result<(bool, u8), DropReason> {
    let vxlan_at = AT + UDP_HEADER;
    let l3 = vxlan_at + VXLAN_HEADER + ETH_LEN;
    // As far as the shorter of both IP headers goes.
    let needed = l3 + V4_HEADER;
    if p.read::<1>(needed - 1).is_none() {
        p.pull(needed as u32).ok_or(DropReason::TunnelHeader)?;
    }
    inner_family(p, config, vxlan_at, l3).ok_or(DropReason::TunnelHeader)
}

/// The inner family and its protocol byte, where flags, network and EtherType are right.
#[inline(always)]
fn inner_family<P: Packet>(p: &P, config: &Config, vxlan_at: usize, l3: usize) -> Option<(bool, u8)> {
    let vxlan: [u8; 8] = p.read(vxlan_at)?;
    let [_, v0, v1, v2] = config.vni.to_be_bytes();
    if vxlan[0] != VXLAN_FLAGS || [vxlan[4], vxlan[5], vxlan[6]] != [v0, v1, v2] {
        return None;
    }
    let ethertype: [u8; 2] = p.read(l3 - 2)?;
    let [first]: [u8; 1] = p.read(l3)?;
    match (ethertype, first >> 4) {
        (TYPE_V4, 4) => Some((false, p.read::<1>(l3 + 9)?[0])),
        (TYPE_V6, 6) => Some((true, p.read::<1>(l3 + 6)?[0])),
        _ => None,
    }
}

/// Whether a packet of a known flow came from the node it belongs to.
#[inline(always)]
pub fn still_from<T: Tables>(t: &T, number: u16, outer: &Addr) -> bool {
    match t.node(number) {
        Some(node) => node.flags & N_PRESENT != 0 && node.tunnel == *outer,
        None => false,
    }
}

/// Who sent what the collect-metadata device unpacked.
///
/// # Errors
/// [`DropReason::TunnelHeader`] where the device says nothing, or another network.
#[inline(always)]
pub fn device_sender<P: Packet>(p: &mut P, config: &Config) -> Result<Addr, DropReason> {
    match p.tunnel_key() {
        Some(key) if key.vni == config.vni => Ok(key.remote),
        _ => Err(DropReason::TunnelHeader),
    }
}

/// Whether a pod tries to speak to a node's tunnel port.
#[inline(always)]
pub fn forbidden<T: Tables>(t: &T, config: &Config, dst: &Addr, proto: u8, dport: [u8; 2]) -> bool {
    if proto != UDP || dport != config.tunnel_port {
        return false;
    }
    let kind = t.route(dst).and_then(|r| RouteKind::from_byte(r.kind));
    matches!(kind, Some(RouteKind::LocalNode | RouteKind::RemoteNode))
}

#[cfg(test)]
mod tests;
