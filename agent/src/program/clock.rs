//! The kernel's jiffies: how many a second, and which one it is now. Measured once a boot, then kept in the meta row.

use std::time::Duration;

use osmia_maps::layout::{LAYOUT, Meta, READABLE_FROM, meta};

use super::{OpenError, load::Probed};
use crate::clock::Clock;

/// Values of CONFIG_HZ, kernel/Kconfig.hz.
const CONFIG_HZ: [u32; 4] = [100, 250, 300, 1000];
/// Jiffies start this long before their low half overflows (INITIAL_JIFFIES, linux/jiffies.h).
const HEAD_START: f64 = 300.0;
/// Within this time of the overflow every rate gives about the same jiffies.
const BLIND: f64 = 10.0;
/// How long is measured then. A busy machine would have to stop us for 50 ms at the wrong moment, twice, to make 250 Hz look like 300.
const MEASURE: Duration = Duration::from_millis(300);
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

/// Jiffies a second. `read` gives the low 32 bits of jiffies64.
///
/// The kernel counts jiffies by CLOCK_MONOTONIC (tick_do_update_jiffies64, kernel/time/tick-sched.c), so one sample tells the rate, but
/// for the moments at which all rates agree: then they are watched.
pub(super) fn rate(clock: &dyn Clock, mut read: impl FnMut() -> Result<u32, OpenError>) -> Result<u32, OpenError> {
    let sample = Sample { jiffies: read()?, at: clock.monotonic() };
    if let Some(hz) = by_age(sample) {
        return Ok(hz);
    }
    let mut last = measure(clock, &mut read)?;
    for _ in 0..TRIES {
        let again = measure(clock, &mut read)?;
        let both = nearest(last).filter(|&hz| nearest(again) == Some(hz));
        if let Some(hz) = both {
            return Ok(hz);
        }
        last = again;
    }
    Err(OpenError::Clock(format!("{last:.0} jiffies a second fit no CONFIG_HZ ({CONFIG_HZ:?})")))
}

/// The one rate at which a machine of this age has this many jiffies.
fn by_age(sample: Sample) -> Option<u32> {
    let age = sample.at.as_secs_f64() - HEAD_START;
    if age.abs() < BLIND {
        return None;
    }
    CONFIG_HZ.into_iter().find(|&hz| {
        let expected = (age * f64::from(hz)) as i64 as u32;
        let off = f64::from(sample.jiffies.wrapping_sub(expected) as i32);
        // A second for the clock's start at boot, and a hundredth for what may have been adjusted since.
        off.abs() < f64::from(hz) * (1.0 + age.abs() / 100.0)
    })
}

/// Jiffies a second over a short time.
fn measure(clock: &dyn Clock, read: &mut impl FnMut() -> Result<u32, OpenError>) -> Result<f64, OpenError> {
    let start = edge(clock, read)?;
    let mut end = edge(clock, read)?;
    while end.at.saturating_sub(start.at) < MEASURE {
        end = edge(clock, read)?;
    }
    let passed = f64::from(end.jiffies.wrapping_sub(start.jiffies));
    Ok(passed / end.at.saturating_sub(start.at).as_secs_f64())
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

/// Ticks a second, rounded down.
pub(super) fn ticks_per_second(hz: u32) -> u32 {
    (hz >> tick_shift(hz)).max(1)
}

/// All 64 bits: the clock tells the high half.
pub(super) fn jiffies64(sample: Sample, hz: u32) -> u64 {
    let start = (1_u64 << 32) - HEAD_START as u64 * u64::from(hz);
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
        readable_from: READABLE_FROM,
        clock_ns: nanoseconds(probed.sample.at),
        jiffies: jiffies64(probed.sample, probed.hz),
        loaded_ns: nanoseconds(clock.monotonic()),
        object: generation,
        catalogue: before.map_or(0, |m| m.catalogue),
        version,
    }
}

/// A moment of CLOCK_MONOTONIC as the meta row has it.
pub(super) fn nanoseconds(at: Duration) -> u64 {
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
            let passed = u128::from(*self.now.lock().unwrap()) * u128::from(self.hz) / 1_000_000_000;
            ((1_u128 << 32) - 300 * u128::from(self.hz) + passed) as u32
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
    fn one_sample_tells_the_rate() {
        for hz in CONFIG_HZ {
            for seconds in [0, 5, 250, 289, 311, 400, 86_400, 86_400 * 365] {
                // The kernel's clock started up to half a second before its jiffies.
                for late in [0, 500] {
                    let clock = Fake::new(seconds * 1_000_000_000, 0, hz);
                    let jiffies = clock.jiffies();
                    let sample = Sample { at: Duration::from_millis(seconds * 1000 + late), jiffies };
                    assert_eq!(by_age(sample), Some(hz), "after {seconds} s");
                }
            }
        }
    }

    #[test]
    fn where_all_rates_agree_jiffies_are_watched() {
        for hz in CONFIG_HZ {
            // The jiffies overflow their low half in the midst of it.
            for now in [295_000_000_000, 299_900_000_000, 305_000_000_000] {
                let clock = Fake::new(now, 30_000, hz);
                assert_eq!(by_age(Sample { at: Duration::from_nanos(now), jiffies: clock.jiffies() }), None);
                assert_eq!(rate(&clock, || Ok(clock.jiffies())).unwrap(), hz, "at {now}");
            }
        }
    }

    #[test]
    fn a_clock_that_stands_is_an_error() {
        let clock = Fake::new(300_000_000_000, 1_000_000, 250);
        assert!(matches!(rate(&clock, || Ok(7)), Err(OpenError::Clock(_))));
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
