//! From a verdict to the program's result; drops are counted here and nowhere else.

use aya_ebpf::programs::TcContext;
use osmia_ebpf::layout::{DropKey, DropReason, DropRow};
use osmia_ebpf::logic::Scratch;
use osmia_ebpf::logic::packet::{ETH_LEN, Packet};
use osmia_ebpf::logic::tables::Tables;
use osmia_ebpf::logic::verdict::{Kind, Verdict};

use super::maps::{DROP_ROWS, DROPS, PROGS, SCRATCH};
use super::raw;
use super::skb::Skb;
use super::tables::Maps;

/// `TCX_NEXT`, and `TC_ACT_UNSPEC` of a clsact filter: whoever comes next on the hook decides. Never `TC_ACT_OK`, which ends the chain.
pub(super) const NEXT: i32 = -1;
/// `TC_ACT_SHOT`.
pub(super) const SHOT: i32 = 2;
/// `BPF_F_INGRESS`.
const INGRESS: u64 = 1;

/// Ends a fast program; drops have no addresses in their row.
#[inline(always)]
pub(super) fn fast(ctx: &TcContext, packet: &Skb, verdict: Verdict, now: u32) -> i32 {
    match verdict.kind() {
        Kind::Jump => {
            raw::tail_call(&PROGS, ctx, verdict.value());
            dropped(packet, unnoted(packet), DropReason::Program as u32, now)
        }
        Kind::Drop => dropped(packet, unnoted(packet), verdict.value(), now),
        _ => out(&verdict),
    }
}

/// Ends a stage; the drop row has what was noted of the packet.
#[inline(always)]
pub(super) fn stage(ctx: &TcContext, packet: &Skb, scratch: &mut Scratch, verdict: Verdict, now: u32) -> i32 {
    match verdict.kind() {
        Kind::Jump => {
            raw::tail_call(&PROGS, ctx, verdict.value());
            dropped(packet, Some(&mut scratch.drop), DropReason::Program as u32, now)
        }
        Kind::Drop => dropped(packet, Some(&mut scratch.drop), verdict.value(), now),
        _ => out(&verdict),
    }
}

/// The drop row of a packet of which nothing was noted.
#[inline(always)]
fn unnoted<'a>(packet: &Skb) -> Option<&'a mut DropKey> {
    let scratch = raw::row_mut(SCRATCH.get_ptr_mut(0))?;
    scratch.drop = DropKey { ifindex: packet.ifindex(), ..DropKey::default() };
    Some(&mut scratch.drop)
}

#[inline(always)]
fn out(verdict: &Verdict) -> i32 {
    match verdict.kind() {
        Kind::Next => NEXT,
        Kind::Drop | Kind::Consumed | Kind::Jump => SHOT,
        Kind::Peer | Kind::Reply => raw::redirect_peer(verdict.value()),
        Kind::Neighbour => raw::redirect_neigh(verdict.value(), &verdict.next_hop()),
        Kind::TunnelDevice => raw::redirect(verdict.value(), 0),
        Kind::Stack => match Maps.config() {
            Some(config) => raw::redirect(config.door_host, INGRESS),
            None => SHOT,
        },
    }
}

/// Counts a drop by reason, and by what was dropped.
#[inline(always)]
fn dropped(packet: &Skb, key: Option<&mut DropKey>, reason: u32, now: u32) -> i32 {
    if let Some(count) = raw::row_mut(DROPS.get_ptr_mut(reason)) {
        count.packets = count.packets.wrapping_add(1);
        count.bytes = count.bytes.wrapping_add(u64::from(packet.length().saturating_sub(ETH_LEN as u32)));
    }
    let Some(key) = key else { return SHOT };
    key.reason = reason as u8;
    if let Some(row) = raw::row_mut(DROP_ROWS.get_ptr_mut(key)) {
        row.packets = row.packets.wrapping_add(1);
        row.last = now;
    } else {
        // An LRU takes everything but when it is busy; the counter above has it.
        let _ = DROP_ROWS.insert(key, &DropRow { packets: 1, first: now, last: now }, 0);
    }
    SHOT
}
