//! The kernel half: maps and entry points.

use aya_ebpf::{
    macros::{classifier, map},
    maps::PerCpuArray,
    programs::TcContext,
};

/// `TCX_NEXT`, and `TC_ACT_UNSPEC` of a clsact filter: whoever comes next on the hook decides. linux/bpf.h, since 6.6.
const NEXT: i32 = -1;

/// Packets seen, one number a CPU, at index 0.
#[map(name = "SEEN")]
static SEEN: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Counts the packet and lets it pass.
#[classifier]
fn count(_ctx: TcContext) -> i32 {
    if let Some(seen) = SEEN.get_ptr_mut(0) {
        #[expect(unsafe_code, reason = "a map value is a raw pointer")]
        // SAFETY: the helper gave a valid pointer to this CPU's value, and no other program on this CPU runs in between.
        unsafe {
            *seen += 1;
        }
    }
    NEXT
}
