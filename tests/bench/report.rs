//! What was found: a row a figure, as a table for people and a list for programs.

use std::fmt::Write as _;

use serde::Serialize;

use crate::stats::Spread;

/// A figure beside its target.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Number of the metric in docs/benchmarks.md, or `agent`, `plugin`, `cli`.
    pub(crate) metric: &'static str,
    /// What was measured.
    pub(crate) what: String,
    /// What it is a ratio of, or its unit.
    pub(crate) reference: String,
    /// The median.
    pub(crate) value: f64,
    /// First quartile.
    pub(crate) q1: f64,
    /// Third quartile.
    pub(crate) q3: f64,
    /// At most this; none for what is shown for comparison.
    pub(crate) target: Option<f64>,
    /// Whether the median keeps to it.
    pub(crate) met: Option<bool>,
    /// The figure in its own unit, for the reader; never compared over machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) absolute: Option<String>,
}

impl Row {
    /// A figure with a target.
    pub(crate) fn new(
        metric: &'static str,
        what: impl Into<String>,
        reference: impl Into<String>,
        spread: Spread,
        target: f64,
    ) -> Self {
        Self {
            target: Some(target),
            met: Some(spread.median <= target),
            ..Self::shown(metric, what, reference, spread)
        }
    }

    /// A figure for comparison.
    pub(crate) fn shown(
        metric: &'static str,
        what: impl Into<String>,
        reference: impl Into<String>,
        spread: Spread,
    ) -> Self {
        Self {
            metric,
            what: what.into(),
            reference: reference.into(),
            value: spread.median,
            q1: spread.q1,
            q3: spread.q3,
            target: None,
            met: None,
            absolute: None,
        }
    }

    /// With the figure in its own unit beside it.
    pub(crate) fn with(mut self, absolute: impl Into<String>) -> Self {
        self.absolute = Some(absolute.into());
        self
    }
}

/// The head of the table.
pub(crate) fn head() -> String {
    line(["metric", "what", "against", "value", "quartiles", "target", "", "absolute"])
}

/// A line of the table.
pub(crate) fn row(row: &Row) -> String {
    line([
        row.metric,
        &row.what,
        &row.reference,
        &figure(row.value),
        &format!("{}-{}", figure(row.q1), figure(row.q3)),
        &row.target.map_or_else(String::new, |target| format!("≤ {}", figure(target))),
        match row.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        },
        row.absolute.as_deref().unwrap_or_default(),
    ])
}

/// The last line.
pub(crate) fn sum(rows: &[Row]) -> String {
    let missed: Vec<_> =
        rows.iter().filter(|r| r.met == Some(false)).map(|r| format!("{} {}", r.metric, r.what)).collect();
    let met = rows.iter().filter(|r| r.met == Some(true)).count();
    let mut text = format!("\n{met} targets met, {} missed", missed.len());
    if !missed.is_empty() {
        let _ = write!(text, ": {}", missed.join("; "));
    }
    text + "\n"
}

fn line(cells: [&str; 8]) -> String {
    let [metric, what, reference, value, quartiles, target, met, absolute] = cells;
    let text = format!("{metric:7} {what:34} {reference:24} {value:>7} {quartiles:>13} {target:>8} {met:6} {absolute}");
    text.trim_end().to_owned() + "\n"
}

fn figure(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_at_the_target_keeps_to_it_and_one_above_does_not() {
        let row = |median| Row::new("1", "x", "direct", Spread { q1: 1.0, median, q3: 2.0 }, 1.08);
        assert_eq!(row(1.08).met, Some(true));
        assert_eq!(row(1.0801).met, Some(false));
        let text = sum(&[row(1.0), row(1.5)]);
        assert!(text.contains("1 targets met, 1 missed: 1 x"), "{text}");
    }
}
