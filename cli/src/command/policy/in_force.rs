//! Since when something is in force, and how long it took.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use osmia_maps::{
    catalogue::{Behind, InForce},
    decode::{Cell, Record, human_duration},
};

use crate::render::utc;

/// When it was written, by the wall clock.
fn since(at: &InForce) -> SystemTime {
    moment(at.at_ms)
}

fn age(at: &InForce) -> Duration {
    age_of(at.at_ms)
}

fn moment(at_ms: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(at_ms)).unwrap_or(UNIX_EPOCH)
}

/// How long ago a time of the catalogue is, milliseconds since 1970.
pub(in crate::command) fn age_of(at_ms: u64) -> Duration {
    // A clock that was set back gives an age of zero.
    SystemTime::now().duration_since(moment(at_ms)).unwrap_or(Duration::ZERO)
}

/// A refusal in words.
pub(in crate::command) fn behind_text(behind: &Behind) -> String {
    format!("for {} a change of policy has been refused: {}", human_duration(age_of(behind.at_ms)), behind.why)
}

/// Microseconds as a person reads them.
fn took(took_us: u64) -> String {
    match took_us {
        0..1_000 => format!("{took_us} us"),
        1_000..1_000_000 => format!("{:.1} ms", took_us as f64 / 1e3),
        _ => human_duration(Duration::from_micros(took_us)),
    }
}

/// The members `generation`, `since`, `age`, `took_us`.
pub(in crate::command) fn record(at: Option<&InForce>) -> Record {
    let of = |cell: fn(&InForce) -> Cell| at.map_or(Cell::Absent, cell);
    Record::new()
        .with("generation", of(|at| Cell::Number(at.generation)))
        .with("since", of(|at| Cell::Text(utc(since(at)).into())))
        .with("age", of(|at| Cell::Age(Some(age(at)))))
        .with("took_us", of(|at| Cell::Number(at.took_us)))
}

/// The same for a table.
pub(super) fn columns(at: Option<&InForce>) -> Record {
    let of = |cell: fn(&InForce) -> Cell| at.map_or(Cell::Absent, cell);
    Record::new()
        .with("generation", of(|at| Cell::Number(at.generation)))
        .with("in_force", of(|at| Cell::Age(Some(age(at)))))
        .with("took", of(|at| Cell::Text(took(at.took_us).into())))
}

/// The same in words.
pub(super) fn text(at: &InForce) -> String {
    format!(
        "generation {}, since {} ({} ago), {} after the change",
        at.generation,
        utc(since(at)),
        human_duration(age(at)),
        took(at.took_us)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_unit_a_person_would_take() {
        assert_eq!(["250 us", "1.5 ms", "12.0s"].map(str::to_owned), [250, 1_500, 12_000_000].map(took));
    }

    #[test]
    fn a_moment_beyond_the_calendar_is_no_panic() {
        let odd = InForce { generation: u64::MAX, at_ms: u64::MAX, took_us: u64::MAX };
        assert!(text(&odd).contains("generation"));
    }
}
