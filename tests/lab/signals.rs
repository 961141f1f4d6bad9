//! Ctrl-C and SIGTERM of a binary that has a lab: folders go, then the process; the kernel does the rest.

use std::process::exit;
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::folder;

/// Takes over SIGINT, SIGTERM and SIGHUP: what the lab made goes, and the process ends with 128 + the signal's number.
///
/// # Errors
/// The kernel refused.
pub fn clean_up_when_told_to_end() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("take over the signals that end us")?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            folder::remove_live();
            exit(128 + signal);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("start the thread that waits for signals")?;
    Ok(())
}
