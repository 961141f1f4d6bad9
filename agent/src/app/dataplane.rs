//! The one open dataplane and what is enforced by it, shared by those who write rows.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Result, ensure};
use osmia_maps::layout::Endpoint;
use tokio::{
    sync::watch,
    time::{self, Instant},
};

use super::policing::{Policing, Rows, Taken};
use crate::{
    attachments::outside::Endpoints,
    clock::Clock,
    compile::{
        Desired,
        policy::{Change, Local, Pinned},
    },
    model::{Cluster, Event},
    program::{self, Applied, ApplyError, Dataplane, Garbage},
    serve::metrics::Metrics,
};

/// A handle. No guard is held across an await.
#[derive(Clone)]
pub(super) struct Shared {
    owned: Arc<Mutex<Owned>>,
}

struct Owned {
    dataplane: Dataplane,
    policing: Policing<Dataplane>,
}

impl Shared {
    pub(super) fn new(dataplane: Dataplane, policing: Policing<Dataplane>) -> Self {
        Self { owned: Arc::new(Mutex::new(Owned { dataplane, policing })) }
    }

    /// Looks at the cluster.
    pub(super) fn with_cluster<T>(&self, look: impl FnOnce(&Cluster) -> T) -> T {
        look(self.open().policing.cluster())
    }

    /// Takes in events that came at `since`; the policies among them are in force when this returns.
    pub(super) fn take(&self, events: Vec<Event>, since: Instant) -> Taken {
        let Owned { dataplane, policing } = &mut *self.open();
        policing.take(dataplane, events, since)
    }

    /// See [`Policing::pack`].
    pub(super) fn pack(&self) {
        self.open().policing.pack();
    }

    /// See [`Policing::begin`].
    pub(super) fn begin_policy(&self, locals: BTreeMap<u32, Local>) {
        let Owned { dataplane, policing } = &mut *self.open();
        policing.begin(dataplane, locals);
    }

    /// See [`Policing::source`].
    pub(super) fn source(&self, problems: Vec<String>) {
        self.open().policing.source(problems);
    }

    /// See [`Policing::in_force`].
    pub(super) fn policy_in_force(&self) -> watch::Receiver<bool> {
        self.open().policing.in_force()
    }

    /// See [`Policing::told`].
    pub(super) fn told(&self) -> watch::Receiver<()> {
        self.open().policing.told()
    }

    /// What of policy can wait: tries again what was refused, and removes old rows, each after a barrier that began when nothing led to it
    /// any more. Never ends.
    pub(super) async fn tend_policy(self) {
        let work = self.open().policing.work();
        loop {
            let retry = self.open().policing.retry_at();
            tokio::select! {
                () = work.notified() => {}
                () = time::sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {
                    let Owned { dataplane, policing } = &mut *self.open();
                    policing.try_again(dataplane);
                }
            }
            let graves = self.open().policing.graves();
            if graves.is_empty() {
                continue;
            }
            // Up to tens of milliseconds, on a thread of its own.
            if let Err(error) = tokio::task::spawn_blocking(program::barrier).await {
                tracing::error!(%error, "cannot wait for packets under way: old policy rows stay until the next start");
                continue;
            }
            let Owned { dataplane, policing } = &mut *self.open();
            policing.bury(dataplane, graves);
        }
    }

    pub(super) fn apply(&self, desired: &Desired) -> Result<Applied, ApplyError> {
        self.open().dataplane.apply(desired)
    }

    /// Expired flows, pins of devices that are gone, and a catalogue that is mostly history.
    pub(super) fn housekeep(&self, clock: &dyn Clock, metrics: &Metrics) {
        let Owned { dataplane, policing } = &mut *self.open();
        policing.housekeep();
        match dataplane.sweep(clock) {
            Ok(swept) => metrics.flows(swept.flows),
            Err(error) => tracing::error!(%error, "sweeping flows"),
        }
        if let Err(error) = dataplane.collect_links() {
            tracing::error!(
                error = format!("{:#}", anyhow::Error::from(error)),
                "removing pins of devices that are gone"
            );
        }
    }

    /// The counters.
    pub(super) fn tell(&self, metrics: &Metrics) {
        let Owned { dataplane, policing } = &*self.open();
        match dataplane.snapshot() {
            Ok(snapshot) => metrics.dataplane(&snapshot),
            Err(error) => tracing::error!(%error, "reading the counters"),
        }
        metrics.policy(&policing.counts());
    }

    fn open(&self) -> MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoints for Shared {
    fn put(&mut self, slot: u32, endpoint: Endpoint, local: Local) -> Result<()> {
        let Owned { dataplane, policing } = &mut *self.open();
        policing.put(dataplane, slot, endpoint, local)
    }

    fn remove(&mut self, slot: u32) -> Result<()> {
        let Owned { dataplane, policing } = &mut *self.open();
        policing.remove(dataplane, slot)
    }

    fn guard(&mut self, ifindex: u32) -> Result<()> {
        Ok(self.open().dataplane.guard_endpoint(ifindex)?)
    }

    fn awaits(&self, local: &Local) -> bool {
        self.open().policing.awaits(local)
    }

    fn list(&self) -> Result<BTreeMap<u32, Endpoint>> {
        Ok(self.open().dataplane.endpoints()?)
    }

    fn check(&self, slot: u32, wanted: &Endpoint) -> Result<()> {
        let wrong = self.open().dataplane.check_endpoint(slot, wanted)?;
        ensure!(wrong.is_empty(), "{}", wrong.join("; "));
        Ok(())
    }
}

impl Rows for Dataplane {
    type Garbage = Garbage;

    fn pinned_policy(&self) -> Result<Pinned> {
        Ok(self.pinned_policy()?)
    }

    fn name_rows(&mut self, generation: u64) -> Result<()> {
        Ok(self.name_rows(generation)?)
    }

    fn write_policy(&mut self, change: &Change) -> Result<Garbage> {
        Ok(self.write_policy(change)?)
    }

    fn bury_policy(&mut self, garbage: Garbage) -> Result<usize> {
        Ok(self.bury_policy(garbage)?)
    }

    fn endpoint(&self, slot: u32) -> Result<Option<Endpoint>> {
        Ok(self.endpoints()?.remove(&slot))
    }

    fn put_endpoint(&mut self, slot: u32, endpoint: Endpoint) -> Result<()> {
        Ok(self.put_endpoint(slot, endpoint)?)
    }

    fn remove_endpoint(&mut self, slot: u32) -> Result<()> {
        self.remove_endpoint(slot)?;
        Ok(())
    }
}
