//! The one open dataplane, shared by those who write rows.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Result, ensure};
use osmia_maps::layout::Endpoint;

use crate::{
    attachments::outside::Endpoints,
    clock::Clock,
    compile::Desired,
    program::{Applied, ApplyError, Dataplane},
    serve::metrics::Metrics,
};

/// A handle. No guard is held across an await.
#[derive(Clone)]
pub(super) struct Shared {
    dataplane: Arc<Mutex<Dataplane>>,
}

impl Shared {
    pub(super) fn new(dataplane: Dataplane) -> Self {
        Self { dataplane: Arc::new(Mutex::new(dataplane)) }
    }

    pub(super) fn apply(&self, desired: &Desired) -> Result<Applied, ApplyError> {
        self.open().apply(desired)
    }

    /// Expired flows and pins of devices that are gone.
    pub(super) fn housekeep(&self, clock: &dyn Clock, metrics: &Metrics) {
        let dataplane = self.open();
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
        match self.open().snapshot() {
            Ok(snapshot) => metrics.dataplane(&snapshot),
            Err(error) => tracing::error!(%error, "reading the counters"),
        }
    }

    fn open(&self) -> MutexGuard<'_, Dataplane> {
        self.dataplane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoints for Shared {
    fn put(&mut self, slot: u32, endpoint: Endpoint) -> Result<()> {
        Ok(self.open().put_endpoint(slot, endpoint)?)
    }

    fn remove(&mut self, slot: u32) -> Result<()> {
        self.open().remove_endpoint(slot)?;
        Ok(())
    }

    fn list(&self) -> Result<BTreeMap<u32, Endpoint>> {
        Ok(self.open().endpoints()?)
    }

    fn check(&self, slot: u32, wanted: &Endpoint) -> Result<()> {
        let wrong = self.open().check_endpoint(slot, wanted)?;
        ensure!(wrong.is_empty(), "{}", wrong.join("; "));
        Ok(())
    }
}
