//! Ticks and ages: the meta row says how the ticks in the maps relate to CLOCK_MONOTONIC.
//!
//! Invariant: only what the row says is used; a row that cannot be right gives no age instead of a wrong one.

use std::time::Duration;

use osmia_ebpf::layout::Meta;

const SECOND_NS: u128 = 1_000_000_000;
/// How far in the future a tick may lie and still be "now": the row was measured to about a jiffy, and programs run while we read.
const AHEAD: Duration = Duration::from_secs(1);

/// Turns ticks into ages, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TickClock {
    hz: u32,
    shift: u32,
    now_ns: u64,
    jiffies: u64,
}

impl TickClock {
    /// The clock at `now_ns`, nanoseconds of CLOCK_MONOTONIC. `None` if the row tells no tick length.
    #[must_use]
    pub fn at(meta: &Meta, now_ns: u64) -> Option<Self> {
        let &Meta { hz, tick_shift: shift, clock_ns, jiffies, .. } = meta;
        // No kernel has more than 1000 Hz today; 32 bits of jiffies gone leave no tick.
        if hz == 0 || hz > 1_000_000 || shift >= 32 {
            return None;
        }
        let since = u128::from(now_ns.saturating_sub(clock_ns)) * u128::from(hz) / SECOND_NS;
        Some(Self { hz, shift, now_ns, jiffies: jiffies.wrapping_add(since as u64) })
    }

    /// The clock now.
    #[must_use]
    pub fn now(meta: &Meta) -> Option<Self> {
        Self::at(meta, monotonic_ns())
    }

    /// The tick at this moment.
    #[must_use]
    pub fn tick(&self) -> u32 {
        (self.jiffies >> self.shift) as u32
    }

    /// How long a tick is.
    #[must_use]
    pub fn tick_length(&self) -> Duration {
        self.length(1)
    }

    fn length(&self, ticks: u32) -> Duration {
        let ns = (u128::from(ticks) << self.shift) * SECOND_NS / u128::from(self.hz);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// How long ago a tick was. `None` for one that lies ahead, which nobody has written (or half a period of ticks ago, over a year).
    #[must_use]
    pub fn age(&self, tick: u32) -> Option<Duration> {
        let behind = self.tick().wrapping_sub(tick);
        if behind <= i32::MAX.unsigned_abs() {
            return Some(self.length(behind));
        }
        (self.length(behind.wrapping_neg()) <= AHEAD).then_some(Duration::ZERO)
    }

    /// How long ago a moment of CLOCK_MONOTONIC was, in nanoseconds of that clock.
    #[must_use]
    pub fn since(&self, ns: u64) -> Duration {
        Duration::from_nanos(self.now_ns.saturating_sub(ns))
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The clock is never negative.
    now.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn meta(hz: u32, tick_shift: u32) -> Meta {
        Meta { hz, tick_shift, clock_ns: 100 * S, jiffies: 0xffff_fff0, ..Meta::default() }
    }

    #[test]
    fn a_tick_is_as_old_as_the_row_says() {
        let meta = meta(250, 2);
        let clock = TickClock::at(&meta, 110 * S).unwrap();
        assert_eq!(clock.tick_length(), Duration::from_millis(16));
        assert_eq!(clock.tick(), ((0xffff_fff0_u64 + 2500) >> 2) as u32);
        let then = (meta.jiffies >> 2) as u32;
        assert_eq!(clock.age(then), Some(Duration::from_secs(10)));
        assert_eq!(clock.since(95 * S), Duration::from_secs(15));
    }

    #[test]
    fn ages_hold_where_32_bits_of_ticks_wrap() {
        let mut meta = meta(1000, 0);
        meta.jiffies = 0x1_0000_0005;
        let clock = TickClock::at(&meta, meta.clock_ns).unwrap();
        assert_eq!(clock.tick(), 5);
        assert_eq!(clock.age(u32::MAX - 4), Some(Duration::from_millis(10)));
    }

    #[test]
    fn a_tick_ahead_is_now_or_unknown() {
        let clock = TickClock::at(&meta(250, 2), 100 * S).unwrap();
        assert_eq!(clock.age(clock.tick() + 3), Some(Duration::ZERO));
        assert_eq!(clock.age(clock.tick() + 1000), None);
    }

    #[test]
    fn a_row_that_cannot_be_right_gives_no_clock() {
        assert_eq!(TickClock::at(&meta(0, 2), 0), None);
        assert_eq!(TickClock::at(&meta(250, 32), 0), None);
        assert_eq!(TickClock::at(&meta(u32::MAX, u32::MAX), u64::MAX), None);
        // A row from the future (a clock set back is impossible; a foreign row is not) does not wrap.
        assert_eq!(TickClock::at(&meta(250, 2), 0).unwrap().tick(), (0xffff_fff0_u64 >> 2) as u32);
    }
}
