//! Egress of an uplink: what the node's stack sends. Ours are only the packets of pods that went through the stack first.

use super::super::arrival::Via;
use super::super::packet::{ETH_IPV4, ETH_IPV6, ETH_LEN};
use super::super::parse::Parsed;
use super::super::pod::ether_type;
use super::super::slow::{Foreign, Run, Slow};
use super::super::{Packet, Stage, Tables, Verdict, fast, forward};
use crate::layout::flow::{HOOK_UPLINK_OUT, ZONE_OUT};
use crate::layout::{Addr, FlowKey4, FlowKey6};
use fast::Quick;

/// Fast program of an uplink's egress.
#[inline(always)]
pub fn to<P: Packet, T: Tables>(packet: &mut P, tables: &T, now: u32) -> Verdict {
    // Before anything else: all that our own programs send comes here once more.
    if packet.mark() & tables.mark() != 0 {
        return Verdict::NEXT;
    }
    let Some(config) = tables.config() else { return Verdict::NEXT };
    match ether_type(packet) {
        ETH_IPV4 => match packet.read(ETH_LEN + 12) {
            Some(src) if src != config.node4 => {
                leaves::<FlowKey4, P, T>(packet, tables, &Addr::v4(src), Stage::Out4, now)
            }
            _ => Verdict::NEXT,
        },
        ETH_IPV6 => match packet.read(ETH_LEN + 8) {
            Some(src) if src != config.node6 => {
                leaves::<FlowKey6, P, T>(packet, tables, &Addr::v6(src), Stage::Out6, now)
            }
            _ => Verdict::NEXT,
        },
        _ => Verdict::NEXT,
    }
}

#[inline(always)]
fn leaves<K: Quick, P: Packet, T: Tables>(packet: &mut P, tables: &T, src: &Addr, slow: Stage, now: u32) -> Verdict {
    if tables.slot_by_addr(src).is_none() {
        return Verdict::NEXT;
    }
    let look = K::look(packet);
    if !look.is_plain() {
        return Verdict::jump(slow);
    }
    let mut parsed: Parsed<K> = look.parsed();
    P::fill(&mut parsed, look.words());
    parsed.key = parsed.key.in_zone(ZONE_OUT);
    match fast::hit(packet, tables, &parsed, HOOK_UPLINK_OUT, &Addr::NONE, now) {
        Some(entry) => forward::forward(packet, tables, &parsed, entry, false),
        None => Verdict::jump(slow),
    }
}

/// Slow program of an uplink's egress: only pods' packets come here.
#[inline(always)]
pub fn slow_out<K: Slow, P: Packet, T: Tables>(run: &mut Run<'_, P, T>) -> Verdict {
    match run.headers::<K>() {
        Ok(parsed) => run.flow(&parsed, &Via::out(run.packet.ifindex()), Foreign::Plain),
        Err(reason) => Verdict::drop(reason),
    }
}
