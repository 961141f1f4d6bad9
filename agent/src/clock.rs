//! The injected clock: whoever needs a time gets it here, so that tests decide what time it is.

use std::time::{Duration, SystemTime};

/// Source of time.
pub trait Clock: Send + Sync {
    /// CLOCK_BOOTTIME: goes on in suspend, starts again at reboot.
    fn boot(&self) -> Duration;
    /// CLOCK_MONOTONIC: what the maps' ticks relate to.
    fn monotonic(&self) -> Duration;
    /// Wall clock: for records that a person reads.
    fn wall(&self) -> SystemTime;
}

/// The kernel's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn boot(&self) -> Duration {
        read(rustix::time::ClockId::Boottime)
    }

    fn monotonic(&self) -> Duration {
        read(rustix::time::ClockId::Monotonic)
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

fn read(id: rustix::time::ClockId) -> Duration {
    let now = rustix::time::clock_gettime(id);
    // Neither clock is ever negative.
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
