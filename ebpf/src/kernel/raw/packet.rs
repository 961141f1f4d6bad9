//! Bytes of a packet's linear part.

use core::arch::asm;
use core::mem::{MaybeUninit, offset_of};

use aya_ebpf::bindings::__sk_buff;
use osmia_ebpf::logic::packet::Window;

/// Start and end of the linear part. In 64-bit registers from the first: LLVM moves what it takes for 32-bit numbers by 32-bit moves, and
/// the verifier takes a pointer so moved for a number. Not `pure`: they change with helpers.
#[inline(always)]
fn bounds(skb: *mut __sk_buff) -> (usize, usize) {
    const DATA: usize = offset_of!(__sk_buff, data);
    const END: usize = offset_of!(__sk_buff, data_end);
    let (data, end);
    // SAFETY: the context is valid for the whole run.
    unsafe {
        asm!(
            "{data} = *(u32 *)({skb} + {at})",
            "{end} = *(u32 *)({skb} + {end_at})",
            skb = in(reg) skb, data = out(reg) data, end = out(reg) end, at = const DATA, end_at = const END,
            options(readonly, nostack)
        );
    }
    (data, end)
}

/// Bytes of the linear part.
#[inline(always)]
pub(in crate::kernel) fn end(skb: *mut __sk_buff) -> usize {
    let (data, end) = bounds(skb);
    end.wrapping_sub(data)
}

/// All offsets that headers have; what a stage left to the next in a map is any number to the verifier.
const OFFSETS: usize = 0x0fff;

/// `N` bytes at an offset, if the linear part reaches so far.
#[inline(always)]
pub(in crate::kernel) fn read<const N: usize>(skb: *mut __sk_buff, offset: usize) -> Option<[u8; N]> {
    Some(window::<N>(skb, offset)?.get::<0, N>())
}

/// `N` bytes at an offset, if the linear part reaches so far, to read from.
#[inline(always)]
pub(in crate::kernel) fn window<const N: usize>(skb: *mut __sk_buff, offset: usize) -> Option<Bytes<N>> {
    let (data, end) = bounds(skb);
    let at = data + (offset & OFFSETS);
    if at + N > end { None } else { Some(Bytes(at as *const u8)) }
}

/// `N` readable bytes of the packet, until a helper changes it.
pub(in crate::kernel) struct Bytes<const N: usize>(*const u8);

impl<const N: usize> Window for Bytes<N> {
    #[inline(always)]
    fn get<const AT: usize, const M: usize>(&self) -> [u8; M] {
        const { assert!(AT + M <= N) }
        let mut out = MaybeUninit::<[u8; M]>::uninit();
        let to = out.as_mut_ptr().cast::<u8>();
        let mut i = 0;
        // In pieces of 8, 4, 2 and 1 bytes, of any alignment: LLVM would load byte by byte what it does not know to be aligned, and the
        // kernel takes any alignment in packets where the machine does.
        // SAFETY: N bytes are readable from the pointer on, all offsets lie within, and the loops write each byte of `out` once.
        unsafe {
            while i + 8 <= M {
                to.add(i).cast::<u64>().write_unaligned(load8(self.0.add(AT + i)));
                i += 8;
            }
            while i + 4 <= M {
                to.add(i).cast::<u32>().write_unaligned(load4(self.0.add(AT + i)));
                i += 4;
            }
            while i + 2 <= M {
                to.add(i).cast::<u16>().write_unaligned(load2(self.0.add(AT + i)));
                i += 2;
            }
            while i < M {
                to.add(i).write(*self.0.add(AT + i));
                i += 1;
            }
            out.assume_init()
        }
    }
}

macro_rules! load {
    ($name:ident, $t:ty, $code:literal) => {
        /// # Safety
        /// As many bytes must be readable at `p`.
        #[inline(always)]
        unsafe fn $name(p: *const u8) -> $t {
            let v: u64;
            // SAFETY: the caller's promise. Not `pure`: the packet may have changed between two loads.
            unsafe { asm!($code, v = out(reg) v, p = in(reg) p, options(readonly, nostack)) };
            v as $t
        }
    };
}
load!(load8, u64, "{v} = *(u64 *)({p} + 0)");
load!(load4, u32, "{v} = *(u32 *)({p} + 0)");
load!(load2, u16, "{v} = *(u16 *)({p} + 0)");

/// A move of a register to itself, by which the compiler takes it that the value's address was used.
#[inline(always)]
pub(in crate::kernel) fn in_memory<V>(value: &mut V) {
    // SAFETY: nothing is done.
    unsafe { asm!("{v} = {v}", v = inout(reg) core::ptr::from_mut(value) => _, options(nostack)) }
}

/// Writes a value in words.
#[inline(always)]
pub(in crate::kernel) fn fill<V: Copy, W: Copy>(value: &mut V, words: W) {
    const { assert!(size_of::<V>() == size_of::<W>() && align_of::<V>() == align_of::<W>()) }
    // SAFETY: of this size and alignment; flow keys are plain bytes.
    unsafe { core::ptr::from_mut(value).cast::<W>().write(words) }
}
