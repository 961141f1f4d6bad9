//! What a person reads: one line a step, with its time.

use std::fmt::Arguments;
use std::io::{Write, stdout};
use std::time::Instant;

use anyhow::Result;

/// A line on stdout. A closed pipe is the reader's wish, not an error.
pub(crate) fn line(text: Arguments<'_>) {
    let mut out = stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Runs a step between a line that names it and one that has its time.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    line(format_args!("==> {name}"));
    let start = Instant::now();
    let result = work();
    let outcome = if result.is_ok() { "done" } else { "FAILED" };
    line(format_args!("    {name}: {outcome} ({:.1} s)", start.elapsed().as_secs_f64()));
    result
}
