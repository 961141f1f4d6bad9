//! Bytes of a packet's linear part.

use core::arch::asm;
use core::mem::{MaybeUninit, offset_of};

use aya_ebpf::bindings::__sk_buff;

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
    let (data, end) = bounds(skb);
    let at = data + (offset & OFFSETS);
    if at + N > end {
        return None;
    }
    // SAFETY: N bytes from `at` on lie inside the packet.
    Some(unsafe { load(at as *const u8) })
}

/// Loads in pieces of 8, 4, 2 and 1 bytes, of any alignment: LLVM would load byte by byte what it does not know to be aligned, and the
/// kernel takes any alignment in packets where the machine does.
///
/// # Safety
/// `N` bytes must be readable at `p`.
#[inline(always)]
unsafe fn load<const N: usize>(p: *const u8) -> [u8; N] {
    let mut out = MaybeUninit::<[u8; N]>::uninit();
    let to = out.as_mut_ptr().cast::<u8>();
    let mut i = 0;
    // SAFETY: all offsets are below N in both, and the four loops write each byte once.
    unsafe {
        while i + 8 <= N {
            let v: u64;
            asm!("{v} = *(u64 *)({p} + 0)", v = out(reg) v, p = in(reg) p.add(i), options(pure, readonly, nostack));
            to.add(i).cast::<u64>().write_unaligned(v);
            i += 8;
        }
        while i + 4 <= N {
            let v: u64;
            asm!("{v} = *(u32 *)({p} + 0)", v = out(reg) v, p = in(reg) p.add(i), options(pure, readonly, nostack));
            to.add(i).cast::<u32>().write_unaligned(v as u32);
            i += 4;
        }
        while i + 2 <= N {
            let v: u64;
            asm!("{v} = *(u16 *)({p} + 0)", v = out(reg) v, p = in(reg) p.add(i), options(pure, readonly, nostack));
            to.add(i).cast::<u16>().write_unaligned(v as u16);
            i += 2;
        }
        while i < N {
            to.add(i).write(*p.add(i));
            i += 1;
        }
        out.assume_init()
    }
}
