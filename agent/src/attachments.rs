//! Attachments: what pods of this node have, from reservation to removal.
//!
//! Invariant: nothing is promised or made before the journal says so; one operation an attachment at a time; an ADD that is not complete
//! when its caller goes, its time is up or a DEL comes is undone whole; an address or slot goes back only when no packet can meet its old
//! meaning. Everything is found by (container id, interface name) alone.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use osmia_cni::protocol::Failure;
use tokio::sync::{RwLock, RwLockReadGuard, watch};

use crate::{clock::Clock, compile::policy::Local, publish::Publisher};

mod add;
mod check;
pub mod failure;
#[cfg(test)]
pub(crate) mod fake;
mod garbage;
pub mod journal;
mod key_locks;
pub mod known;
pub mod links;
pub mod outside;
pub mod reconcile;
pub mod record;
mod remove;
mod slots;
mod start;
mod state;

pub use add::{Wish, netns_id};
use journal::Journal;
use key_locks::KeyLocks;
use outside::{Endpoints, Links};
pub use state::NodeFacts;
use state::State;

/// What the attachments stand on.
pub struct Outside {
    /// Rows and programs.
    pub endpoints: Box<dyn Endpoints>,
    /// Host links.
    pub links: Box<dyn Links>,
    /// Where committed pods are told, if anywhere.
    pub publisher: Option<Publisher>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Changes whenever the source told of pods, namespaces or policies.
    pub told: watch::Receiver<()>,
}

/// Settings of attachments.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long a released address rests.
    pub address_rest: Duration,
    /// How long a DEL refuses ADDs that started before it.
    pub tombstone: Duration,
    /// How long an attachment without link, or a link without attachment, is left alone.
    pub garbage_after: Duration,
    /// Folder of the pods' network namespaces, as this agent sees it.
    pub netns: PathBuf,
    /// How long an ADD waits for its pod to be told.
    pub pod_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            address_rest: Duration::from_secs(30),
            // A caller gives up after 4 minutes at most (kubelet).
            tombstone: Duration::from_secs(300),
            // Longer than any ADD takes.
            garbage_after: Duration::from_secs(60),
            netns: PathBuf::from("/run/netns"),
            pod_wait: Duration::from_secs(5),
        }
    }
}

/// Counts for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Complete attachments.
    pub added: usize,
    /// Unfinished ones.
    pub adding: usize,
    /// Free endpoint slots.
    pub free_slots: usize,
}

/// A range and its use: (range, in use, resting, capacity).
pub type RangeUse = (ipnet::IpNet, usize, usize, u64);

/// The attachments of this node.
pub struct Attachments {
    state: Mutex<State>,
    outside: Mutex<Outside>,
    clock: Arc<dyn Clock>,
    told: watch::Receiver<()>,
    journal: Journal,
    locks: KeyLocks,
    /// Read: from a line's writing until the state says the same. Written: to compact, which writes the state.
    gate: RwLock<()>,
    limits: Limits,
    boot_id: String,
}

impl Attachments {
    /// The model changed.
    pub fn set_facts(&self, facts: NodeFacts) {
        let mut state = self.state();
        state.addresses.set_ranges(&facts.pod_cidrs);
        state.facts = facts;
    }

    /// The complete ones by slot, as policy knows them.
    pub fn locals(&self) -> BTreeMap<u32, Local> {
        let state = self.state();
        let added = state.records.values().filter(|record| record.ifindex().is_some());
        added.map(|record| (record.slot, record.local())).collect()
    }

    /// For metrics.
    pub fn counts(&self) -> Counts {
        let state = self.state();
        let added = state.records.values().filter(|record| record.ifindex().is_some()).count();
        Counts { added, adding: state.records.len() - added, free_slots: state.slots.free() }
    }

    /// For metrics.
    pub fn ranges(&self) -> Vec<RangeUse> {
        let now = self.clock.boot();
        self.state().addresses.usage(now)
    }

    /// Writes the status files that could not be written before; says how many still cannot.
    pub fn retry_publishing(&self) -> usize {
        self.outside().publisher.as_mut().map_or(0, Publisher::retry)
    }

    /// Neither guard is ever held across an await, and who panicked has not left it half changed: every change is one method call.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outside(&self) -> MutexGuard<'_, Outside> {
        self.outside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gate, to go through. A journal that the disk refused is written anew before: nothing is appended to such a one.
    async fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.compact_if(|| self.journal.is_refused()).await;
        self.gate.read().await
    }

    /// Ifindex of an attachment's host link. That it cannot be asked for says nothing about the link.
    fn link_of(&self, host_link: &str) -> Result<Option<u32>, Failure> {
        self.outside().links.index_of(host_link).map_err(|error| failure::unseen(&error))
    }

    /// Compacts the journal when most of its lines are history.
    async fn compact_if_long(&self) {
        self.compact_if(|| self.is_long()).await;
    }

    async fn compact_if(&self, needed: impl Fn() -> bool) {
        if !needed() {
            return;
        }
        let _alone = self.gate.write().await;
        // Another call may have done it meanwhile.
        if !needed() {
            return;
        }
        let lines = {
            let mut state = self.state();
            let lines = state.lines(&self.boot_id);
            state.lines = lines.len();
            lines
        };
        if let Err(error) = self.journal.rewrite(&lines).await {
            tracing::error!(%error, "the journal stays as it is");
        }
    }

    fn is_long(&self) -> bool {
        let mut state = self.state();
        state.expire(self.clock.boot());
        let short = state.records.len() + state.tombstones.len() + 2;
        state.lines >= 1000 + 4 * short
    }

    /// The caller went through the gate.
    fn write(&self, line: &record::Line) -> Result<(), Failure> {
        self.journal.append(line).map_err(|error| failure::journal(&error))?;
        self.state().lines += 1;
        Ok(())
    }

    /// For a stop: the disk has everything when this returns.
    pub fn sync(&self) {
        if let Err(error) = self.journal.sync() {
            tracing::error!(%error, "the journal's last lines are not on disk");
        }
    }
}

/// The boot id of the file.
///
/// # Errors
/// It cannot be read or is empty.
pub fn boot_id(path: &Path) -> anyhow::Result<String> {
    use anyhow::{Context, ensure};
    let id = std::fs::read_to_string(path).with_context(|| format!("cannot read the boot id {}", path.display()))?;
    let id = id.trim();
    ensure!(!id.is_empty(), "the boot id {} is empty", path.display());
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests;
