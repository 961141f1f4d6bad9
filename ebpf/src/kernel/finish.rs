//! From a verdict to the program's result; drops are counted here and nowhere else.

use aya_ebpf::programs::TcContext;
use osmia_ebpf::layout::{DropKey, DropReason, DropRow};
use osmia_ebpf::logic::packet::{ETH_LEN, Packet};
use osmia_ebpf::logic::tables::Tables;
use osmia_ebpf::logic::{Scratch, Verdict};

use super::maps::{DROP_ROWS, DROPS, PROGS};
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
pub(super) fn fast(ctx: &TcContext, packet: &Skb, scratch: &mut Scratch, verdict: Verdict, now: u32) -> i32 {
    match verdict {
        Verdict::Jump(stage) => {
            raw::tail_call(&PROGS, ctx, stage as u32);
            dropped(packet, unnoted(scratch, packet), DropReason::Program, now)
        }
        Verdict::Drop(reason) => dropped(packet, unnoted(scratch, packet), reason, now),
        verdict => out(verdict),
    }
}

/// Ends a stage; the drop row has what was noted of the packet.
#[inline(always)]
pub(super) fn stage(ctx: &TcContext, packet: &Skb, scratch: &mut Scratch, verdict: Verdict, now: u32) -> i32 {
    match verdict {
        Verdict::Jump(stage) => {
            raw::tail_call(&PROGS, ctx, stage as u32);
            dropped(packet, &mut scratch.drop, DropReason::Program, now)
        }
        Verdict::Drop(reason) => dropped(packet, &mut scratch.drop, reason, now),
        verdict => out(verdict),
    }
}

/// Clears what another packet has left.
#[inline(always)]
fn unnoted<'a>(scratch: &'a mut Scratch, packet: &Skb) -> &'a mut DropKey {
    scratch.drop = DropKey { ifindex: packet.ifindex(), ..DropKey::default() };
    &mut scratch.drop
}

#[inline(always)]
fn out(verdict: Verdict) -> i32 {
    match verdict {
        Verdict::Next => NEXT,
        Verdict::Drop(_) | Verdict::Consumed | Verdict::Jump(_) => SHOT,
        Verdict::Peer(ifindex) | Verdict::Reply(ifindex) => raw::redirect_peer(ifindex),
        Verdict::Neighbour { ifindex, next_hop } => raw::redirect_neigh(ifindex, &next_hop),
        Verdict::TunnelDevice(ifindex) => raw::redirect(ifindex, 0),
        Verdict::Stack => match Maps.config() {
            Some(config) => raw::redirect(config.door_host, INGRESS),
            None => SHOT,
        },
    }
}

/// Counts a drop by reason, and by what was dropped.
#[inline(always)]
fn dropped(packet: &Skb, key: &mut DropKey, reason: DropReason, now: u32) -> i32 {
    if let Some(count) = raw::row_mut(DROPS.get_ptr_mut(reason as u32)) {
        count.packets = count.packets.wrapping_add(1);
        count.bytes = count.bytes.wrapping_add(u64::from(packet.length().saturating_sub(ETH_LEN as u32)));
    }
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
