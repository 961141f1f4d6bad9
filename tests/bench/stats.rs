//! Medians and quartiles of paired ratios.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::cpu::Softirqs;
use crate::load::{Load, Sample};

/// Median and quartiles.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    /// A quarter lies below.
    pub(crate) q1: f64,
    /// Half lies below.
    pub(crate) median: f64,
    /// Three quarters lie below.
    pub(crate) q3: f64,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Result<Self> {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = part * (values.len().checked_sub(1)? as f64);
            let (low, high) = (values.get(place.floor() as usize)?, values.get(place.ceil() as usize)?);
            Some(low + (high - low) * place.fract())
        };
        let spread = || Some(Self { q1: at(0.25)?, median: at(0.5)?, q3: at(0.75)? });
        spread().context("nothing was measured")
    }

    /// Of `values[i] / references[i]`.
    pub(crate) fn of_ratios(values: &[f64], references: &[f64]) -> Result<Self> {
        Self::of(values.iter().zip(references).map(|(value, reference)| value / reference))
    }
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Bursts of each load.
    pub(crate) bursts: usize,
    /// Length of one.
    pub(crate) length: Duration,
}

/// Bursts of several loads that took turns: `rounds[round][load]`.
pub(crate) struct Rounds(Vec<Vec<Sample>>);

impl Rounds {
    /// Runs them in turns; every second round backwards, so that a machine that becomes slower or faster favours nobody.
    pub(crate) fn run(plan: Plan, loads: &mut [Load]) -> Result<Self> {
        let softirqs = Softirqs::find()?;
        // Tables filled, neighbours known, flows promoted.
        for load in &mut *loads {
            load.burst(plan.length, &softirqs)?;
        }
        let mut rounds = Vec::new();
        for round in 0..plan.bursts {
            let mut samples = vec![Sample::default(); loads.len()];
            let mut turns: Vec<_> = samples.iter_mut().zip(&mut *loads).collect();
            if round % 2 == 1 {
                turns.reverse();
            }
            for (sample, load) in turns {
                *sample = load.burst(plan.length, &softirqs)?;
            }
            rounds.push(samples);
        }
        Ok(Self(rounds))
    }

    /// The figure of one load, by round.
    pub(crate) fn of(&self, load: usize, figure: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.0.iter().filter_map(|samples| samples.get(load)).map(figure).collect()
    }

    /// The ratio of two loads, by figure.
    pub(crate) fn ratio(&self, load: usize, reference: usize, figure: impl Fn(&Sample) -> f64) -> Result<Spread> {
        Spread::of_ratios(&self.of(load, &figure), &self.of(reference, &figure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_values() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { q1: 1.75, median: 2.5, q3: 3.25 });
        assert_eq!(Spread::of([7.0]).unwrap(), Spread { q1: 7.0, median: 7.0, q3: 7.0 });
        assert!(Spread::of([]).is_err());
    }

    #[test]
    fn ratios_are_paired_before_the_median() {
        let spread = Spread::of_ratios(&[1.0, 20.0, 3.0], &[1.0, 10.0, 1.0]).unwrap();
        assert_eq!(spread.median, 2.0);
    }
}
