//! What the programs say of single packets, for a debugging session: aya-log's records, through its ring, as lines of the agent's own log.
//!
//! Off, the verifier removes the calls from the programs. The ring is of one start and is not pinned: nothing waits for a reader, a full ring
//! loses lines.

use std::os::fd::AsFd as _;

use anyhow::{Context, Result};
use aya::Ebpf;
use aya_log::EbpfLogger;

use crate::sys::Readable;

/// What the programs say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProgramLog {
    /// Nothing.
    #[default]
    Off,
    /// Each first packet that is denied.
    Debug,
}

impl ProgramLog {
    /// aya-log's number of the level (`aya_log_common::Level`).
    pub(super) fn level(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Debug => 4,
        }
    }
}

/// The lines of this start's programs.
pub struct Lines {
    ready: Readable,
    reader: EbpfLogger<Tracing>,
}

impl Lines {
    pub(super) fn open(ebpf: &mut Ebpf) -> Result<Self> {
        let reader = EbpfLogger::init_with_logger(ebpf, Tracing).context("cannot read what the programs log")?;
        let fd = reader.as_fd().try_clone_to_owned().context("cannot copy a descriptor")?;
        Ok(Self { ready: Readable::new(fd).context("cannot wait for what the programs log")?, reader })
    }

    /// Logs them as they come, until the runtime ends.
    pub async fn follow(mut self) {
        while self.ready.wait().await.is_ok() {
            self.reader.flush();
        }
    }
}

/// Hands aya-log's records on to tracing. At `info`: who asked for them by a flag need not ask a second time by RUST_LOG.
struct Tracing;

impl log::Log for Tracing {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        tracing::info!(program = record.target(), "{}", record.args());
    }

    fn flush(&self) {}
}
