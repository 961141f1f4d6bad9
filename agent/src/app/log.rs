//! The log: stderr, text or JSON, filtered by RUST_LOG.

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Starts logging.
///
/// # Errors
/// RUST_LOG is no filter.
pub fn init(format: LogFormat) -> Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => {
            EnvFilter::try_new(&filter).with_context(|| format!("RUST_LOG {filter:?}"))?
        }
        _ => EnvFilter::new("info"),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    match format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}
