//! The kernel's jiffies: how many a second, and which one it is now. Measured once a boot, then kept in the meta row.

use std::time::Duration;

use osmia_maps::layout::{LAYOUT, Meta, meta};

use super::{OpenError, load::Probed};
use crate::clock::Clock;

/// Values of CONFIG_HZ, kernel/Kconfig.hz.
const CONFIG_HZ: [u32; 4] = [100, 250, 300, 1000];
/// How long is measured. Four jiffies at 100 Hz; 250 and 300 Hz then differ by two whole jiffies.
const MEASURE: Duration = Duration::from_millis(40);
/// Whoever waits longer for one jiffy waits for a clock that stands.
const PATIENCE: Duration = Duration::from_secs(2);
/// Times that a measurement is repeated when a busy machine made it useless.
const TRIES: usize = 10;

/// Jiffies at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sample {
    /// CLOCK_MONOTONIC.
    pub(super) at: Duration,
    /// The low 32 bits of jiffies64.
    pub(super) jiffies: u32,
}

/// Jiffies a second, by watching them pass. `read` gives the low 32 bits of jiffies64.
pub(super) fn measure(clock: &dyn Clock, mut read: impl FnMut() -> Result<u32, OpenError>) -> Result<u32, OpenError> {
    let mut last = 0.0;
    for _ in 0..TRIES {
        let start = edge(clock, &mut read)?;
        let mut end = edge(clock, &mut read)?;
        while end.at.saturating_sub(start.at) < MEASURE {
            end = edge(clock, &mut read)?;
        }
        let passed = f64::from(end.jiffies.wrapping_sub(start.jiffies));
        last = passed / end.at.saturating_sub(start.at).as_secs_f64();
        if let Some(hz) = nearest(last) {
            return Ok(hz);
        }
    }
    Err(OpenError::Clock(format!("{last:.0} jiffies a second fit no CONFIG_HZ ({CONFIG_HZ:?})")))
}

/// The moment at which the jiffies change.
fn edge(clock: &dyn Clock, read: &mut impl FnMut() -> Result<u32, OpenError>) -> Result<Sample, OpenError> {
    let begin = clock.monotonic();
    let first = read()?;
    loop {
        let jiffies = read()?;
        let at = clock.monotonic();
        if jiffies != first {
            return Ok(Sample { at, jiffies });
        }
        if at.saturating_sub(begin) > PATIENCE {
            return Err(OpenError::Clock(format!("jiffies stand at {jiffies}")));
        }
    }
}

/// The CONFIG_HZ within 4 % of a measured rate; 250 and 300 lie 18 % apart.
fn nearest(rate: f64) -> Option<u32> {
    CONFIG_HZ.into_iter().find(|&hz| (rate / f64::from(hz) - 1.0).abs() < 0.04)
}

/// Bits to shift jiffies right by for a tick of about 16 ms: 10 ms at 100 Hz, 16 at 250 and 1000, 13 at 300.
pub(super) fn tick_shift(hz: u32) -> u32 {
    // The largest shift whose tick is not longer than 16 ms.
    (0..8).rev().find(|shift| (1000 << shift) <= 16 * hz).unwrap_or(0)
}

/// All 64 bits: jiffies start 300 s before their low half overflows (INITIAL_JIFFIES, linux/jiffies.h), so the clock tells the high half.
pub(super) fn jiffies64(sample: Sample, hz: u32) -> u64 {
    let start = (1_u64 << 32) - 300 * u64::from(hz);
    let expected = start + (sample.at.as_secs_f64() * f64::from(hz)) as u64;
    // The number with the sample's low half that is nearest to the expected one.
    let ahead = sample.jiffies.wrapping_sub(expected as u32) as i32;
    expected.wrapping_add_signed(i64::from(ahead))
}

/// The meta row of programs loaded now.
pub(super) fn meta_row(probed: &Probed, generation: u64, before: Option<&Meta>, clock: &dyn Clock) -> Meta {
    let mut version = [0; 32];
    for (to, from) in version.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from;
    }
    Meta {
        magic: meta::MAGIC,
        layout: LAYOUT,
        tick_shift: tick_shift(probed.hz),
        hz: probed.hz,
        zero: 0,
        clock_ns: nanoseconds(probed.sample.at),
        jiffies: jiffies64(probed.sample, probed.hz),
        loaded_ns: nanoseconds(clock.monotonic()),
        object: generation,
        catalogue: before.map_or(0, |m| m.catalogue),
        version,
    }
}

fn nanoseconds(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::SystemTime};

    use super::*;

    /// A clock that goes on a little at each look, and jiffies that follow it.
    struct Fake {
        now: Mutex<u64>,
        step: u64,
        hz: u64,
    }

    impl Fake {
        fn new(now: u64, step: u64, hz: u32) -> Self {
            Self { now: Mutex::new(now), step, hz: u64::from(hz) }
        }

        fn jiffies(&self) -> u32 {
            (((1_u64 << 32) - 300 * self.hz) + *self.now.lock().unwrap() * self.hz / 1_000_000_000) as u32
        }
    }

    impl Clock for Fake {
        fn boot(&self) -> Duration {
            self.monotonic()
        }

        fn monotonic(&self) -> Duration {
            let mut now = self.now.lock().unwrap();
            *now += self.step;
            Duration::from_nanos(*now)
        }

        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    #[test]
    fn every_config_hz_is_recognised() {
        for hz in CONFIG_HZ {
            // The jiffies overflow their low half in the midst of the second case.
            for now in [5_000_000_000, 299_990_000_000, 900_000_000_000] {
                let clock = Fake::new(now, 30_000, hz);
                assert_eq!(measure(&clock, || Ok(clock.jiffies())).unwrap(), hz, "at {now}");
            }
        }
    }

    #[test]
    fn a_clock_that_stands_is_an_error() {
        let clock = Fake::new(0, 1_000_000, 250);
        assert!(matches!(measure(&clock, || Ok(7)), Err(OpenError::Clock(_))));
    }

    #[test]
    fn a_tick_is_about_16_ms() {
        assert_eq!(CONFIG_HZ.map(tick_shift), [0, 2, 2, 4]);
    }

    #[test]
    fn the_high_half_comes_from_the_clock() {
        for hz in CONFIG_HZ {
            let start = (1_u64 << 32) - 300 * u64::from(hz);
            for seconds in [0, 1, 299, 300, 301, 86_400 * 400] {
                let exact = start + seconds * u64::from(hz);
                for drift in [-20_i64, 0, 20] {
                    let jiffies = exact.wrapping_add_signed(drift);
                    let sample = Sample { at: Duration::from_secs(seconds), jiffies: jiffies as u32 };
                    assert_eq!(jiffies64(sample, hz), jiffies, "{hz} Hz after {seconds} s");
                }
            }
        }
    }
}
