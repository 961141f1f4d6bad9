//! The commands of the specification, a file each.

pub mod add;
pub mod check;
pub mod del;
pub mod gc;
pub mod status;
pub mod version;

use std::time::{Duration, Instant};

use crate::link::Netlink;
use crate::protocol::Failure;
use crate::spec::error::code;
use crate::spec::{Config, Document};

/// What every command but VERSION has.
#[derive(Debug)]
pub struct Context {
    /// When the process started.
    pub started: Instant,
    /// The same as CLOCK_BOOTTIME in ns, for the agent.
    pub started_ns: u64,
    /// The configuration as JSON.
    pub document: Document,
    /// Its settings.
    pub config: Config,
}

impl Context {
    /// When a command with this limit must be done.
    #[must_use]
    pub fn deadline(&self, limit: Duration) -> Instant {
        self.started + self.config.timeout.map_or(limit, |t| t.min(limit))
    }
}

/// A socket in the runtime's, that is the node's, namespace.
fn host_netlink() -> Result<Netlink, Failure> {
    Netlink::open().map_err(|e| Failure::new(code::IO, format!("opening a netlink socket: {e}")))
}
