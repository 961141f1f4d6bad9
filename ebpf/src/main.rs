//! The BPF object: entry points only, the logic is in the library half.
#![no_std]
#![no_main]
// Loads of packet bytes, whatever their alignment; the pinned toolchain is what makes relying on it safe.
#![feature(asm_experimental_arch)]

mod kernel;

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Never reached: the verifier refuses a program that could panic, since this is an endless loop.
    loop {}
}
