//! The hooks of a pod's link: everything a pod sends, and what the node would send it by itself.
//!
//! What a pod says on its own link alone (ARP, neighbour discovery, listener reports, DHCP) is answered or swallowed and counted apart; it
//! is no drop. Nothing else leaves the link for it.

use super::arrival::Via;
use super::packet::{ETH_ARP, ETH_IPV4, ETH_IPV6};
use super::parse::{ICMPV6, Parsed, UDP};
use super::slow::{Foreign, Run};
use super::{Packet, Stage, Tables, Verdict, answer, fast, neighbour};
use crate::layout::config::C_DENY_LINK_LOCAL;
use crate::layout::endpoint::E_SLOW_PATH;
use crate::layout::{DropKey, DropReason, FlowKey4, FlowKey6, Stat};

/// IGMP.
const IGMP: u8 = 2;

/// Fast program of the ingress hook.
#[inline(always)]
pub fn from<P: Packet, T: Tables>(packet: &mut P, tables: &T, now: u32) -> Verdict {
    let hook = packet.ifindex();
    if packet.vlan() {
        return Verdict::jump(Stage::Pod4);
    }
    match packet.protocol() {
        ETH_IPV4 => fast::known::<FlowKey4, P, T>(packet, tables, hook, now).unwrap_or(Verdict::jump(Stage::Pod4)),
        ETH_IPV6 => fast::known::<FlowKey6, P, T>(packet, tables, hook, now).unwrap_or(Verdict::jump(Stage::Pod6)),
        _ => Verdict::jump(Stage::Pod4),
    }
}

/// The EtherType, 0 for a packet without.
#[inline(always)]
pub fn ether_type<P: Packet>(packet: &P) -> u16 {
    u16::from_be_bytes(packet.read(12).unwrap_or([0; 2]))
}

/// Slow program of the ingress hook: IPv4, and what is no IP.
#[inline(always)]
pub fn slow4<P: Packet, T: Tables>(run: &mut Run<'_, P, T>) -> Verdict {
    let ethertype = if run.packet.vlan() { 0 } else { ether_type(run.packet) };
    if ethertype != ETH_IPV4 {
        run.scratch.drop = DropKey { ifindex: run.packet.ifindex(), ..DropKey::default() };
    }
    match ethertype {
        ETH_ARP => neighbour::arp(run.packet, run.tables, run.config),
        ETH_IPV4 => match run.headers::<FlowKey4>() {
            Err(reason) => Verdict::drop(reason),
            Ok(parsed) => match own_link4(run, &parsed) {
                Some(verdict) => verdict,
                None => run.flow(&parsed, &Via::pod(run.packet.ifindex()), Foreign::Plain),
            },
        },
        _ => Verdict::drop(DropReason::EtherType),
    }
}

/// Slow program of the ingress hook: IPv6.
#[inline(always)]
pub fn slow6<P: Packet, T: Tables>(run: &mut Run<'_, P, T>) -> Verdict {
    match run.headers::<FlowKey6>() {
        Err(reason) => Verdict::drop(reason),
        Ok(parsed) => match own_link6(run, &parsed) {
            Some(verdict) => verdict,
            None => run.flow(&parsed, &Via::pod(run.packet.ifindex()), Foreign::Plain),
        },
    }
}

#[inline(always)]
fn own_link4<P: Packet, T: Tables>(run: &mut Run<'_, P, T>, parsed: &Parsed<FlowKey4>) -> Option<Verdict> {
    let key = &parsed.key;
    let everyone = key.dst == [255; 4];
    if key.proto == UDP && key.dport == 67_u16.to_be_bytes() && (everyone || key.src == [0; 4]) {
        return swallow(run, Stat::Dhcp);
    }
    match key.dst {
        // Its own loopback, and never the node's (route_localnet beside kube-proxy).
        [0 | 127, ..] => Some(Verdict::drop(DropReason::Martian)),
        [224..=239, ..] if key.proto == IGMP => swallow(run, Stat::Mld),
        [224..=255, ..] => Some(Verdict::drop(DropReason::Multicast)),
        answer::GATEWAY4 => Some(Verdict::drop(DropReason::LinkLocal)),
        [169, 254, ..] if run.config.flags & C_DENY_LINK_LOCAL != 0 => Some(Verdict::drop(DropReason::LinkLocalDenied)),
        [169, 254, ..] => {
            run.tables.count(Stat::LinkLocal);
            None
        }
        _ => None,
    }
}

#[inline(always)]
fn own_link6<P: Packet, T: Tables>(run: &mut Run<'_, P, T>, parsed: &Parsed<FlowKey6>) -> Option<Verdict> {
    let key = &parsed.key;
    let multicast = key.dst[0] == 0xff;
    if key.proto == ICMPV6 {
        match parsed.icmp_type {
            // RFC 4861: RS, RA, NS, NA, redirect.
            135 => return Some(neighbour::solicitation(run.packet, run.tables, run.config, parsed)),
            133 | 134 | 136 | 137 => return swallow(run, Stat::RouterSolicit),
            // RFC 2710 and RFC 3810: listener query, reports, done.
            130..=132 | 143 => return swallow(run, Stat::Mld),
            _ => {}
        }
    }
    if multicast {
        if key.proto == UDP && key.dport == 547_u16.to_be_bytes() {
            return swallow(run, Stat::Dhcp);
        }
        return Some(Verdict::drop(DropReason::Multicast));
    }
    if matches!(key.dst, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 | 1]) {
        return Some(Verdict::drop(DropReason::Martian));
    }
    if key.dst[0] == 0xfe && key.dst[1] & 0xc0 == 0x80 {
        return Some(Verdict::drop(DropReason::LinkLocal));
    }
    None
}

#[inline(always)]
fn swallow<P: Packet, T: Tables>(run: &Run<'_, P, T>, stat: Stat) -> Option<Verdict> {
    run.tables.count(stat);
    Some(Verdict::CONSUMED)
}

/// Program of the egress hook: nothing of ours comes here but for pods whose packets go through the node's stack.
#[inline(always)]
pub fn to<P: Packet, T: Tables>(packet: &P, tables: &T) -> Verdict {
    if packet.mark() & tables.mark() != 0 {
        return Verdict::NEXT;
    }
    let endpoint = tables.slot_by_ifindex(packet.ifindex()).and_then(|slot| tables.endpoint(slot));
    match endpoint {
        Some(endpoint) if endpoint.flags & E_SLOW_PATH != 0 => Verdict::NEXT,
        _ => Verdict::drop(DropReason::Unmarked),
    }
}

#[cfg(test)]
mod tests;
