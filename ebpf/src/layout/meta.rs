//! The pinned row that says what the other pins are.
//!
//! A *tick* is the unit of every time in the maps: the kernel's jiffies shifted right by `tick_shift`, cut to 32 bits (about 16 ms, and
//! years until it repeats). Jiffies cost a load (0.3 ns) where the coarse clock costs 6.6 ns and is missing on 5.10.

/// `magic` of every layout.
pub const MAGIC: [u8; 8] = *b"osmiaCNI";

/// First row of the `meta` map. Its first 16 bytes stay where they are in every layout.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`super::LAYOUT`].
    pub layout: u32,
    /// Bits to shift jiffies right by for a tick; the programs have it as a constant of their load.
    pub tick_shift: u32,
    /// Jiffies a second (CONFIG_HZ), measured by the agent at load.
    pub hz: u32,
    /// [`super::READABLE_FROM`] of this layout; 0 in rows of before there was one.
    pub readable_from: u32,
    /// CLOCK_MONOTONIC in ns at the moment `jiffies` was read.
    pub clock_ns: u64,
    /// `bpf_jiffies64` at `clock_ns`.
    pub jiffies: u64,
    /// CLOCK_MONOTONIC in ns at which the agent loaded these programs.
    pub loaded_ns: u64,
    /// Hash of the object that the programs come from.
    pub object: u64,
    /// Generation of the catalogue that names the cookies.
    pub catalogue: u64,
    /// Version of the agent that wrote this, UTF-8, zero-padded.
    pub version: [u8; 32],
}

const _: () = assert!(size_of::<Meta>() == 96);
super::pod!(Meta);
