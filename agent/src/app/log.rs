//! The log: stderr, text or JSON, filtered by RUST_LOG (`info`, `debug`, `info,osmia_agent::attachments=debug`).

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::LogFormat;

/// Starts logging.
///
/// # Errors
/// RUST_LOG is no filter.
pub fn init(format: LogFormat) -> Result<()> {
    // Not EnvFilter: its regular expressions are a tenth of this program.
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => filter.parse().with_context(|| format!("RUST_LOG {filter:?}"))?,
        // These say each of their tries; the source says once what became of them.
        _ => Targets::new()
            .with_default(LevelFilter::INFO)
            .with_targets(["kube_client", "kube_runtime"].map(|target| (target, LevelFilter::OFF))),
    };
    let log = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => registry.with(log.with_ansi(io::stderr().is_terminal())).init(),
        LogFormat::Json => registry.with(log.json().flatten_event(true)).init(),
    }
    Ok(())
}
