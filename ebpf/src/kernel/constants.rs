//! What the loader knows before the programs are loaded, under the names of [`osmia_ebpf::layout::programs`]: frozen data, so reading one is
//! a load from an address that is known, where a row of a map is a look-up, and the verifier never walks the branch behind a 0.
#![expect(unsafe_code, reason = "the loader finds a global by its name")]

use aya_ebpf::Global;
use osmia_ebpf::layout::programs::DEFAULT_MARK;

/// Whether `bpf_l4_csum_replace` knows `BPF_F_IPV6` (6.16).
#[unsafe(no_mangle)]
pub(super) static HAVE_CSUM_IPV6: Global<u32> = Global::new(0);

/// The one skb mark bit we own.
#[unsafe(no_mangle)]
pub(super) static MARK: Global<u32> = Global::new(DEFAULT_MARK);

/// Bits to shift jiffies right by for a tick. Unset, a tick is a jiffy.
#[unsafe(no_mangle)]
pub(super) static TICK_SHIFT: Global<u32> = Global::new(0);

/// Ticks a second. Unset, that of the kernel's usual rates whose ticks are the shortest.
#[unsafe(no_mangle)]
pub(super) static TICKS_PER_SECOND: Global<u32> = Global::new(1000);
