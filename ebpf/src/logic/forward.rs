//! The last step: hop counter, rewrites, and the way out that the entry names.
//!
//! Hop counters: a node takes one from what its pods send to other nodes and to the world, as the router that it is to them. It takes none
//! between its own pods, between a pod and its node, on arrival, and from what its stack sends or has forwarded (which took one itself).
//! So a traceroute between pods of two nodes shows the sender's node and then the pod.
//!
//! Invariant: the mark bit is set on everything that an egress hook will see again, and on nothing that a pod or the stack gets.

use super::verdict::Kind;
use super::{Entry, FlowKey, Packet, Parsed, Tables, Verdict, encap, nat};
use crate::layout::flow::{F_NO_HOP, F_REWRITE_DST, F_REWRITE_SRC, FlowAction};
use crate::layout::{DropReason, Stat};

/// Whether the packet's hop counter is used up on this entry's way.
#[inline(always)]
pub fn hops_used_up<K: FlowKey, E: Entry>(parsed: &Parsed<K>, entry: E) -> bool {
    entry.get(|e| e.flags) & F_NO_HOP == 0 && parsed.hops <= 1
}

/// Sends the packet on as `entry`, the entry of its direction, says; `rewritten` if its addresses are done already. The caller has compared
/// lengths and hops.
#[inline(always)]
pub fn forward<K: FlowKey, P: Packet, T: Tables, E: Entry>(
    packet: &mut P,
    tables: &T,
    parsed: &Parsed<K>,
    entry: E,
    rewritten: bool,
) -> Verdict {
    let flags = entry.get(|e| e.flags);
    if !rewritten
        && flags & (F_REWRITE_SRC | F_REWRITE_DST) != 0
        && let Err(reason) = nat::rewrite(packet, parsed, &entry.view())
    {
        return Verdict::drop(reason);
    }
    if flags & F_NO_HOP == 0 && take_hop(packet, parsed).is_none() {
        return Verdict::drop(DropReason::Rewrite);
    }
    send(packet, tables, parsed, entry)
}

#[inline(always)]
fn send<K: FlowKey, P: Packet, T: Tables, E: Entry>(
    packet: &mut P,
    tables: &T,
    parsed: &Parsed<K>,
    entry: E,
) -> Verdict {
    let target = entry.get(|e| e.target);
    match FlowAction::from_byte(entry.get(|e| e.action)) {
        Some(FlowAction::Peer) => {
            tables.count(Stat::ForwardPeer);
            clear_mark(packet, tables);
            Verdict::peer(target)
        }
        Some(FlowAction::Native) => {
            let Some(node) = tables.node(target as u16) else { return Verdict::drop(DropReason::NoNode) };
            // A node without IPv6 address: the kernel would ask for an IPv4 next hop by ND, and the packet vanish.
            if K::V6 && node.next_hop6.is_none() {
                return Verdict::drop(DropReason::NoRoute);
            }
            tables.count(Stat::ForwardNative);
            set_mark(packet, tables);
            Verdict::neighbour(node.uplink, if K::V6 { node.next_hop6 } else { node.next_hop4 })
        }
        Some(FlowAction::Tunnel) => {
            let Some(node) = tables.node(target as u16) else { return Verdict::drop(DropReason::NoNode) };
            set_mark(packet, tables);
            let verdict = encap::send(packet, tables, node, K::V6);
            match verdict.kind() {
                Kind::TunnelDevice => tables.count(Stat::EncapsulatedDevice),
                Kind::Neighbour => tables.count(Stat::ForwardTunnel),
                _ => {}
            }
            verdict
        }
        Some(FlowAction::Uplink) => {
            tables.count(Stat::ForwardUplink);
            set_mark(packet, tables);
            let next_hop = entry.get(|e| e.next_hop);
            Verdict::neighbour(target, if next_hop.is_none() { parsed.key.dst() } else { next_hop })
        }
        Some(FlowAction::Stack) => {
            tables.count(Stat::ForwardStack);
            to_stack(packet, tables)
        }
        Some(FlowAction::Pass) => {
            tables.count(Stat::ForwardPass);
            Verdict::NEXT
        }
        None => Verdict::drop(DropReason::Program),
    }
}

/// Into the node's stack through `osmia0`: the device takes for its own only what carries its MAC.
#[inline(always)]
pub fn to_stack<P: Packet, T: Tables>(packet: &mut P, tables: &T) -> Verdict {
    let Some(config) = tables.config() else { return Verdict::drop(DropReason::Program) };
    clear_mark(packet, tables);
    let destination: Option<[u8; 6]> = packet.read(0);
    if destination != Some(config.gateway_mac) && packet.write(0, &config.gateway_mac).is_none() {
        return Verdict::drop(DropReason::Rewrite);
    }
    Verdict::STACK
}

/// Sets the bit that the egress programs test first.
#[inline(always)]
pub fn set_mark<P: Packet, T: Tables>(packet: &mut P, tables: &T) {
    let mark = packet.mark();
    packet.set_mark(mark | tables.mark());
}

/// Takes the bit away, where it is.
#[inline(always)]
pub fn clear_mark<P: Packet, T: Tables>(packet: &mut P, tables: &T) {
    let mark = packet.mark();
    if mark & tables.mark() != 0 {
        packet.set_mark(mark & !tables.mark());
    }
}

/// One hop less; the IPv4 checksum follows (RFC 1141), the IPv6 header has none.
#[inline(always)]
fn take_hop<K: FlowKey, P: Packet>(packet: &mut P, parsed: &Parsed<K>) -> Option<()> {
    if K::V6 {
        return packet.write(parsed.l3 + 7, &[parsed.hops.wrapping_sub(1)]);
    }
    let [hops, proto, c0, c1]: [u8; 4] = packet.read(parsed.l3 + 8)?;
    let sum = u32::from(u16::from_be_bytes([c0, c1])) + 0x0100;
    let [c0, c1] = (((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes();
    packet.write(parsed.l3 + 8, &[hops.wrapping_sub(1), proto, c0, c1])
}
