//! What the tests of this folder share.

use osmia_ebpf::layout::{Addr, Meta};

use super::{Context, Record};

/// 250 Hz, ticks of 16 ms, tick 1000 is now; node 3 is 192.168.0.3.
pub(super) fn context() -> Context {
    let meta = Meta { hz: 250, tick_shift: 2, jiffies: 4000, ..Meta::default() };
    Context::of(meta, None, 0, [(3, Addr::v4([192, 168, 0, 3]))])
}

pub(super) fn json(record: &Record) -> String {
    serde_json::to_string(record).unwrap()
}

/// Numbers that are the same each time (xorshift64).
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }
}
