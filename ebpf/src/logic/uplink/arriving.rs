//! Ingress of an uplink, and of the collect-metadata device.

use super::super::arrival::Via;
use super::super::flow::life;
use super::super::packet::{ETH_IPV4, ETH_IPV6, ETH_LEN};
use super::super::parse::{ICMPV6, Parsed, Part, SCTP, UDP};
use super::super::pod::ether_type;
use super::super::route;
use super::super::slow::{Foreign, Run, Slow};
use super::super::{Packet, Stage, Tables, Verdict, encap, fast, forward};
use crate::layout::flow::{HOOK_TUNNEL, HOOK_UPLINK};
use crate::layout::route::RouteKind;
use crate::layout::{Addr, Config, DropReason, FlowKey4, FlowKey6, Stat};
use encap::Received;
use fast::Quick;

/// Fast program of an uplink's ingress.
#[inline(always)]
pub fn from<P: Packet, T: Tables>(packet: &mut P, tables: &T, now: u32) -> Verdict {
    let Some(config) = tables.config() else { return Verdict::NEXT };
    if packet.vlan() {
        return Verdict::NEXT;
    }
    match ether_type(packet) {
        ETH_IPV4 => arrived::<FlowKey4, P, T>(packet, tables, config, &Addr::v4(config.node4), now),
        ETH_IPV6 => arrived::<FlowKey6, P, T>(packet, tables, config, &Addr::v6(config.node6), now),
        _ => Verdict::NEXT,
    }
}

#[inline(always)]
fn arrived<K: Quick, P: Packet, T: Tables>(
    packet: &mut P,
    tables: &T,
    config: &Config,
    node: &Addr,
    now: u32,
) -> Verdict {
    let slow = Verdict::jump(if K::V6 { Stage::Uplink6 } else { Stage::Uplink4 });
    let look = K::look(packet);
    if !look.is_plain() {
        return slow;
    }
    let mut parsed: Parsed<K> = look.parsed();
    P::fill(&mut parsed, look.words());
    let key = &parsed.key;
    if key.dst() == *node {
        if key.proto() == UDP && key.dport() == config.tunnel_port {
            return unpack(packet, tables, config, &parsed);
        }
        if !may_be_masqueraded(config, &parsed) && !is_from_pod(tables, &key.src()) {
            return Verdict::NEXT;
        }
    }
    match fast::hit(packet, tables, &parsed, HOOK_UPLINK, &Addr::NONE, now) {
        Some(entry) => forward::forward(packet, tables, &parsed, entry, false),
        None => slow,
    }
}

/// Whether a packet to the node's own address can be an answer to a masqueraded one: by its port (or identifier), where it has one that we
/// choose.
#[inline(always)]
fn may_be_masqueraded<K: Quick>(config: &Config, parsed: &Parsed<K>) -> bool {
    let port = u16::from_be_bytes(parsed.key.dport());
    parsed.key.proto() == SCTP || (port >= config.masq_min && port <= config.masq_max)
}

/// Whether a packet says that it comes from a pod.
#[inline(always)]
fn is_from_pod<T: Tables>(tables: &T, src: &Addr) -> bool {
    let kind = tables.route(src).and_then(|r| RouteKind::from_byte(r.kind));
    matches!(kind, Some(RouteKind::RemoteBlock | RouteKind::LocalBlock))
}

/// A packet of our tunnel: its header away, then on by the program of what was inside.
#[inline(always)]
fn unpack<K: Quick, P: Packet, T: Tables>(packet: &mut P, tables: &T, config: &Config, parsed: &Parsed<K>) -> Verdict {
    let outer = parsed.key.src();
    match encap::receive(packet, config, K::V6, parsed.l4, parsed.key.dport()) {
        Ok(Received::Opened) => {
            tables.count(Stat::Decapsulated);
            unpacked(packet, tables, &outer)
        }
        Ok(Received::Device | Received::Other) => Verdict::NEXT,
        Err(reason) => Verdict::drop(reason),
    }
}

/// Program of the collect-metadata device's ingress: what it has unpacked for us.
#[inline(always)]
pub fn from_tunnel_device<P: Packet, T: Tables>(packet: &mut P, tables: &T) -> Verdict {
    let Some(config) = tables.config() else { return Verdict::drop(DropReason::Program) };
    match encap::device_sender(packet, config) {
        Ok(outer) => {
            tables.count(Stat::DecapsulatedDevice);
            unpacked(packet, tables, &outer)
        }
        Err(reason) => Verdict::drop(reason),
    }
}

/// On with what was inside. No node sends from the unspecified address, which stands for "in no tunnel" from here on: tcx sees a packet before
/// the stack throws such a one away.
#[inline(always)]
fn unpacked<P: Packet, T: Tables>(packet: &P, tables: &T, outer: &Addr) -> Verdict {
    if outer.is_none() {
        return Verdict::drop(DropReason::TunnelSpoof);
    }
    tables.keep_outer(outer);
    match ether_type(packet) {
        ETH_IPV4 => Verdict::jump(Stage::Inner4),
        ETH_IPV6 => Verdict::jump(Stage::Inner6),
        _ => Verdict::drop(DropReason::TunnelHeader),
    }
}

/// Fast program of what came out of our tunnel.
#[inline(always)]
pub fn inner<K: Quick, P: Packet, T: Tables>(run: &mut Run<'_, P, T>) -> Verdict {
    let slow = Verdict::jump(if K::V6 { Stage::Tunnel6 } else { Stage::Tunnel4 });
    let look = K::look(run.packet);
    if !look.is_plain() {
        return slow;
    }
    let mut parsed: Parsed<K> = look.parsed();
    P::fill(&mut parsed, look.words());
    match fast::hit(run.packet, run.tables, &parsed, HOOK_TUNNEL, &run.scratch.outer, run.now) {
        Some(entry) => forward::forward(run.packet, run.tables, &parsed, entry, false),
        None => slow,
    }
}

/// Slow program of an uplink's ingress.
#[inline(always)]
pub fn slow<K: Slow, P: Packet, T: Tables>(run: &mut Run<'_, P, T>) -> Verdict {
    let parsed = match run.headers::<K>() {
        Ok(parsed) => parsed,
        Err(reason) => return unreadable::<K, P, T>(run, reason),
    };
    let foreign = match route::place(run.tables, &parsed.key.dst()).kind {
        Some(RouteKind::LocalBlock) if is_of_a_link(&parsed) => return Verdict::drop(DropReason::LinkLocal),
        Some(RouteKind::LocalBlock) => Foreign::Dropped,
        Some(RouteKind::LocalNode) if is_tunnel_to_another_address(run.config, &parsed) => {
            return Verdict::drop(DropReason::TunnelHeader);
        }
        Some(RouteKind::LocalNode) => match route::place(run.tables, &parsed.key.src()).kind {
            Some(RouteKind::LocalBlock) => return Verdict::drop(DropReason::Martian),
            Some(RouteKind::RemoteBlock) => Foreign::Dropped,
            // From outside: an answer to a masqueraded packet, an error about one, or the node's own.
            _ if parsed.is_icmp_error() || parsed.part == Part::Later => Foreign::Passed,
            _ if life::find(run.tables, &parsed.key, false).is_none() => return Verdict::NEXT,
            _ => Foreign::Passed,
        },
        // The stack may send it to a pod after all (a service), and what comes back at the door is believed to be whose it says.
        _ if is_from_pod(run.tables, &parsed.key.src()) => return Verdict::drop(DropReason::Martian),
        _ => return Verdict::NEXT,
    };
    run.flow(&parsed, &Via::uplink(), foreign)
}

/// What can not be read is the stack's to judge, but for what says that it is for a pod or from one: what the stack would
/// make of it, fragments that hide their headers put together, comes to a pod by the door and is believed to be whose it says.
#[inline(always)]
fn unreadable<K: Slow, P: Packet, T: Tables>(run: &mut Run<'_, P, T>, reason: DropReason) -> Verdict {
    let Some((src, dst)) = addresses::<K, P>(run.packet) else { return Verdict::NEXT };
    run.scratch.drop.src = src;
    run.scratch.drop.dst = dst;
    if is_from_pod(run.tables, &src) {
        return Verdict::drop(DropReason::Martian);
    }
    match route::place(run.tables, &dst).kind {
        Some(RouteKind::LocalBlock) => Verdict::drop(reason),
        _ => Verdict::NEXT,
    }
}

/// Source and destination, as far as there are any.
#[inline(always)]
fn addresses<K: Slow, P: Packet>(packet: &P) -> Option<(Addr, Addr)> {
    if K::V6 {
        return Some((Addr::v6(packet.read(ETH_LEN + 8)?), Addr::v6(packet.read(ETH_LEN + 24)?)));
    }
    Some((Addr::v4(packet.read(ETH_LEN + 12)?), Addr::v4(packet.read(ETH_LEN + 16)?)))
}

/// Neighbour discovery (RFC 4861), which proves by its hop limit of 255 that it comes from the receiver's own link: a pod's link has nobody
/// but its gateway, and nothing is taken from the hop limit on arrival.
#[inline(always)]
fn is_of_a_link<K: Slow>(parsed: &Parsed<K>) -> bool {
    K::V6 && parsed.key.proto() == ICMPV6 && matches!(parsed.icmp_type, 133..=137)
}

/// What is for the tunnel's port but not for the address that other nodes send to: the device listens on every address of the node.
#[inline(always)]
fn is_tunnel_to_another_address<K: Slow>(config: &Config, parsed: &Parsed<K>) -> bool {
    let own = if K::V6 { Addr::v6(config.node6) } else { Addr::v4(config.node4) };
    config.tunnel_dev != 0
        && parsed.key.proto() == UDP
        && parsed.key.dport() == config.tunnel_port
        && parsed.key.dst() != own
}

/// Slow program of what came out of our tunnel. What is for neither this node nor its pods is dropped: a node's route to us is older than
/// ours.
#[inline(always)]
pub fn slow_tunnel<K: Slow, P: Packet, T: Tables>(run: &mut Run<'_, P, T>) -> Verdict {
    let via = Via::tunnel(run.scratch.outer);
    match run.headers::<K>() {
        Ok(parsed) if is_of_a_link(&parsed) => Verdict::drop(DropReason::LinkLocal),
        Ok(parsed) => run.flow(&parsed, &via, Foreign::Dropped),
        Err(reason) => Verdict::drop(reason),
    }
}
