//! What the agent asks the kernel before it loads the other programs: by test-run only.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use osmia_ebpf::logic::packet::csum;

use super::raw;

/// 1 where `l4_csum_replace` takes `BPF_F_IPV6` (6.16 and its stable backports): flags come first of what it checks.
#[classifier]
fn osm_has_csum_v6(ctx: TcContext) -> i32 {
    i32::from(raw::l4_csum(ctx.as_ptr().cast(), 40, 0, 0, csum::IPV6) == 0)
}
