//! The programs, under the names of [`osmia_ebpf::layout::programs`].

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use aya_log_ebpf::debug;
use osmia_ebpf::logic::packet::Packet;
use osmia_ebpf::logic::tables::Tables;
use osmia_ebpf::logic::verdict::Kind;
use osmia_ebpf::logic::{Stage, door, pod, stage, uplink};

use super::constants::TICK_SHIFT;
use super::finish::{self, SHOT};
use super::maps::SCRATCH;
use super::raw;
use super::skb::Skb;
use super::tables::Maps;

/// The tick of now.
#[inline(always)]
fn now() -> u32 {
    (raw::jiffies() >> (TICK_SHIFT.load() & 63)) as u32
}

/// A program on a hook. A macro, since a closure that is not inlined is one more function, and the fast programs have none: also what
/// `classifier` wraps is a function of its own, which LLVM leaves outside at some size (tried).
macro_rules! fast {
    ($name:ident, |$packet:ident, $tables:ident, $now:ident| $verdict:expr) => {
        #[classifier]
        #[inline(always)]
        fn $name(ctx: TcContext) -> i32 {
            let $packet = &mut Skb::new(&ctx);
            let $tables = &Maps;
            let $now = now();
            let verdict = $verdict;
            finish::fast(&ctx, $packet, verdict, $now)
        }
    };
}

/// A program of the jump table.
macro_rules! stage {
    ($name:ident, $stage:ident) => {
        stage!($name, $stage, |ctx, packet, scratch, verdict, now| finish::stage(ctx, packet, scratch, verdict, now));
    };
    // One that notes nothing of its packet for a drop row.
    ($name:ident, $stage:ident, unnoted) => {
        stage!($name, $stage, |ctx, packet, scratch, verdict, now| finish::fast(ctx, packet, verdict, now));
    };
    ($name:ident, $stage:ident, |$ctx:ident, $packet:ident, $scratch:ident, $verdict:ident, $now:ident| $end:expr) => {
        #[classifier]
        #[inline(always)]
        fn $name(ctx: TcContext) -> i32 {
            let Some($scratch) = raw::row_mut(SCRATCH.get_ptr_mut(0)) else { return SHOT };
            let Some(config) = Maps.config() else { return SHOT };
            let $ctx = &ctx;
            let $packet = &mut Skb::new($ctx);
            let $now = now();
            let $verdict = stage::run(Stage::$stage, &mut *$packet, &Maps, config, &mut *$scratch, $now);
            $end
        }
    };
}

fast!(osm_from_pod, |packet, tables, now| pod::from(packet, tables, now));
fast!(osm_to_pod, |packet, tables, now| pod::to(packet, tables));
fast!(osm_from_uplnk, |packet, tables, now| uplink::from(packet, tables, now));
fast!(osm_to_uplnk, |packet, tables, now| uplink::to(packet, tables, now));
fast!(osm_from_tundev, |packet, tables, now| uplink::from_tunnel_device(packet, tables));
fast!(osm_to_door, |packet, tables, now| door::to(packet, tables));
fast!(osm_from_door, |packet, tables, now| door::from(packet, tables, now));

/// The clock, for the agent: by test-run only.
#[classifier]
fn osm_clock(_ctx: TcContext) -> i32 {
    raw::jiffies() as i32
}

stage!(osm_pod4, Pod4);
stage!(osm_pod6, Pod6);
stage!(osm_uplink4, Uplink4);
stage!(osm_uplink6, Uplink6);
stage!(osm_tunnel4, Tunnel4);
stage!(osm_tunnel6, Tunnel6);
stage!(osm_out4, Out4);
stage!(osm_out6, Out6);
stage!(osm_door4, Door4);
stage!(osm_door6, Door6);
stage!(osm_inner4, Inner4, unnoted);
stage!(osm_inner6, Inner6, unnoted);
stage!(osm_entry4, Entry4);
stage!(osm_entry6, Entry6);
/// A stage that says for a debugging session what it denied: `AYA_LOG_LEVEL` is 0 unless the agent is told otherwise, and then the verifier
/// removes the call.
#[classifier]
#[inline(always)]
fn osm_decide(ctx: TcContext) -> i32 {
    let Some(scratch) = raw::row_mut(SCRATCH.get_ptr_mut(0)) else { return SHOT };
    let Some(config) = Maps.config() else { return SHOT };
    let packet = &mut Skb::new(&ctx);
    let now = now();
    let verdict = stage::run(Stage::Decide, &mut *packet, &Maps, config, &mut *scratch, now);
    if verdict.kind() == Kind::Drop {
        debug!(&ctx, "a first packet is denied at ifindex {}, reason {}", packet.ifindex(), verdict.value());
    }
    finish::stage(&ctx, packet, scratch, verdict, now)
}
stage!(osm_open4, Open4);
stage!(osm_open6, Open6);
stage!(osm_masq4, Masquerade4);
stage!(osm_masq6, Masquerade6);
stage!(osm_promote4, Promote4);
stage!(osm_promote6, Promote6);
stage!(osm_leave4, Leave4);
stage!(osm_leave6, Leave6);
stage!(osm_refuse4, Refuse4);
stage!(osm_refuse6, Refuse6);
stage!(osm_related4, Related4);
stage!(osm_related6, Related6);
