//! ARP and neighbour discovery of pods: the node's link answers for every address but the pod's own.
//!
//! A pod has a permanent neighbour for its gateway, so that only tools, other network stacks and mended configurations ask at all. The
//! answer goes back as packet type host, whatever MAC it carries (`redirect_peer`).

use super::packet::ETH_LEN;
use super::parse::{ICMPV6, Parsed};
use super::{Packet, Tables, Verdict, checksum};
use crate::layout::{Config, DropReason, FlowKey6, Stat};

/// Ethernet, IPv4, 6 and 4 bytes, request: RFC 826.
const ARP_REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
/// The same, reply.
const ARP_REPLY: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 2];
/// Bytes of a neighbour advertisement with one option, Ethernet header included.
const ADVERTISEMENT_LEN: u32 = 14 + 40 + 32;

/// Answers an ARP request; what asks for the pod's own address (RFC 5227) is swallowed.
#[inline(always)]
pub fn arp<P: Packet, T: Tables>(packet: &mut P, tables: &T, config: &Config) -> Verdict {
    match arp_reply(packet, tables, config) {
        Some(true) => {
            tables.count(Stat::ArpAnswered);
            Verdict::reply(packet.ifindex())
        }
        Some(false) => {
            tables.count(Stat::Dad);
            Verdict::CONSUMED
        }
        None => Verdict::drop(DropReason::Malformed),
    }
}

#[inline(always)]
fn arp_reply<P: Packet, T: Tables>(packet: &mut P, tables: &T, config: &Config) -> Option<bool> {
    packet.pull(42)?;
    let kind: [u8; 8] = packet.read(ETH_LEN)?;
    let sender: [u8; 6] = packet.read(ETH_LEN + 8)?;
    let from: [u8; 4] = packet.read(ETH_LEN + 14)?;
    let asked: [u8; 4] = packet.read(ETH_LEN + 24)?;
    let own = tables.slot_by_ifindex(packet.ifindex()).and_then(|slot| tables.endpoint(slot)).map(|e| e.v4);
    // Probes come from 0.0.0.0, announcements ask for their own address, answers need no answer.
    if kind != ARP_REQUEST || from == [0; 4] || from == asked || own == Some(asked) {
        return Some(false);
    }
    let ([s0, s1, s2, s3, s4, s5], [g0, g1, g2, g3, g4, g5]) = (sender, config.gateway_mac);
    packet.write(0, &[s0, s1, s2, s3, s4, s5, g0, g1, g2, g3, g4, g5])?;
    packet.write(ETH_LEN, &ARP_REPLY)?;
    packet.write(ETH_LEN + 8, &config.gateway_mac)?;
    packet.write(ETH_LEN + 14, &asked)?;
    packet.write(ETH_LEN + 18, &sender)?;
    packet.write(ETH_LEN + 24, &from)?;
    Some(true)
}

/// Answers a neighbour solicitation (RFC 4861 4.3); duplicate address detection (from `::`) and what asks for the pod's own address is
/// swallowed.
#[inline(always)]
pub fn solicitation<P: Packet, T: Tables>(
    packet: &mut P,
    tables: &T,
    config: &Config,
    parsed: &Parsed<FlowKey6>,
) -> Verdict {
    // RFC 4861 7.1.1: from this link, and whole.
    if parsed.hops != 255 || parsed.l4 != ETH_LEN + 40 {
        return Verdict::drop(DropReason::Malformed);
    }
    match advertisement(packet, tables, config, parsed) {
        Some(true) => {
            tables.count(Stat::NdAnswered);
            Verdict::reply(packet.ifindex())
        }
        Some(false) => {
            tables.count(Stat::Dad);
            Verdict::CONSUMED
        }
        None => Verdict::drop(DropReason::Malformed),
    }
}

#[inline(always)]
fn advertisement<P: Packet, T: Tables>(
    packet: &mut P,
    tables: &T,
    config: &Config,
    parsed: &Parsed<FlowKey6>,
) -> Option<bool> {
    packet.pull(14 + 40 + 24)?;
    let target: [u8; 16] = packet.read(ETH_LEN + 48)?;
    let sender: [u8; 6] = packet.read(6)?;
    let asker = parsed.key.src;
    let own = tables.slot_by_ifindex(packet.ifindex()).and_then(|slot| tables.endpoint(slot)).map(|e| e.v6);
    if asker == [0; 16] || asker == target || own == Some(target) {
        return Some(false);
    }
    if packet.length() != ADVERTISEMENT_LEN {
        packet.change_tail(ADVERTISEMENT_LEN)?;
    }
    let ([s0, s1, s2, s3, s4, s5], [g0, g1, g2, g3, g4, g5]) = (sender, config.gateway_mac);
    packet.write(0, &[s0, s1, s2, s3, s4, s5, g0, g1, g2, g3, g4, g5])?;
    packet.write(ETH_LEN, &[0x60, 0, 0, 0, 0, 32, ICMPV6, 255])?;
    packet.write(ETH_LEN + 8, &target)?;
    packet.write(ETH_LEN + 24, &asker)?;
    // Router, solicited, override; target link-layer address, 1 unit.
    let option = [2, 1, g0, g1, g2, g3, g4, g5];
    let mut sum = checksum::add(checksum::of16(&target), checksum::of16(&asker));
    sum = checksum::add(sum, checksum::add(checksum::of4([0, 0, 0, 32]), checksum::of4([0, 0, 0, ICMPV6])));
    sum = checksum::add(sum, checksum::add(checksum::of4([136, 0, 0, 0]), checksum::of4([0xe0, 0, 0, 0])));
    sum = checksum::add(sum, checksum::of16(&target));
    sum = checksum::add(sum, checksum::add(checksum::of4([2, 1, g0, g1]), checksum::of4([g2, g3, g4, g5])));
    let [c0, c1] = checksum::field(sum);
    packet.write(ETH_LEN + 40, &[136, 0, c0, c1, 0xe0, 0, 0, 0])?;
    packet.write(ETH_LEN + 48, &target)?;
    packet.write(ETH_LEN + 64, &option)?;
    Some(true)
}

#[cfg(test)]
mod tests;
