//! The one open dataplane, shared by those who write rows.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result, ensure};
use osmia_maps::{
    Pins, facts,
    layout::{
        Endpoint,
        programs::{FROM_POD, TO_POD},
    },
    sys,
};

use crate::{
    attachments::outside::Endpoints,
    clock::Clock,
    compile::Desired,
    program::{Applied, ApplyError, Attaching, Dataplane},
    serve::metrics::Metrics,
};

/// A handle. No guard is held across an await.
#[derive(Clone)]
pub(super) struct Shared {
    dataplane: Arc<Mutex<Dataplane>>,
    pins: Pins,
    /// Programs are tcx links, which are pinned; clsact filters leave no pins.
    pinned: bool,
}

impl Shared {
    pub(super) fn new(dataplane: Dataplane, pins: Pins, attaching: Attaching) -> Self {
        let pinned = attaching == Attaching::Auto && facts::has_tcx();
        Self { dataplane: Arc::new(Mutex::new(dataplane)), pins, pinned }
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
        let row = self.open().endpoints()?.get(&slot).copied();
        let row = row.with_context(|| format!("its row {slot} is missing in map endpoints"))?;
        let same = (row.ifindex, row.v4, row.v6, row.flags) == (wanted.ifindex, wanted.v4, wanted.v6, wanted.flags);
        ensure!(same, "its row {slot} in map endpoints is another: {row:?}");
        if self.pinned {
            for program in [FROM_POD.name, TO_POD.name] {
                let link = sys::pinned_link_info(&self.pins.link(program, wanted.ifindex));
                let on = link.with_context(|| format!("program {program} is not on its host link"))?.ifindex;
                ensure!(on == wanted.ifindex, "program {program} is not on its host link any more");
            }
        }
        Ok(())
    }
}
