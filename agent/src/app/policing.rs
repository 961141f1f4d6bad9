//! The cluster's policies and their way into the maps.
//!
//! What the source tells comes in here, endpoints come and go in `endpoints`; both are brought into force in `enforce`, and what they leave
//! behind goes in `burial`. `resume` compiles everything anew over what is in the maps: at the start, and after a `refusal`.
//!
//! Invariant: names are in the catalogue before the rows that use them are in a map, and leave it after; an endpoint's row is written with its
//! rule sets in it, and shut while it is not known that all of policy is written, but where no policy selects it. After a refusal the maps and
//! the catalogue are read again, ever more rarely, and what differs is written: nothing is believed to be there.

mod burial;
mod counts;
mod endpoints;
mod enforce;
mod lines;
mod noticed;
mod refusal;
mod resume;
mod said;
mod tally;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use osmia_maps::{
    catalogue::CrowdedOut,
    layout::{Endpoint, VerdictKey},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use self::{burial::Grave, enforce::News, refusal::RETRY};
use super::notices::Notices;
use crate::{
    catalogue::CatalogueFile,
    clock::Clock,
    compile::policy::{About, Change, Local, OverBudget, Pinned, Policies, Touched, about},
    model::{Cluster, Event, Name},
    serve::metrics::{Metrics, PolicyRows},
};

/// What of the dataplane policy needs; tests have their own.
pub(super) trait Rows {
    /// Old rows.
    type Garbage: From<BTreeSet<VerdictKey>>;

    fn pinned_policy(&self) -> Result<Pinned>;
    fn name_rows(&mut self, generation: u64) -> Result<()>;
    fn write_policy(&mut self, change: &Change) -> Result<Self::Garbage>;
    /// Says how many rows are gone.
    fn bury_policy(&mut self, garbage: Self::Garbage) -> Result<usize>;
    fn endpoint(&self, slot: u32) -> Result<Option<Endpoint>>;
    fn put_endpoint(&mut self, slot: u32, endpoint: Endpoint) -> Result<()>;
    fn remove_endpoint(&mut self, slot: u32) -> Result<()>;
}

/// What events changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Taken {
    /// A Node.
    pub(super) nodes: bool,
}

/// Cluster, policies and catalogue.
pub(super) struct Policing<R: Rows> {
    cluster: Cluster,
    /// `None` until the endpoints are known and the source has told everything of each kind: until then every row stays as it is, and who
    /// comes is shut.
    policies: Option<Policies>,
    /// The endpoints are known.
    begun: bool,
    /// All of it was in force once.
    in_force: watch::Sender<bool>,
    locals: BTreeMap<u32, Local>,
    catalogue: CatalogueFile,
    generation: u64,
    /// When it is tried again; `None`: the maps hold what the policies say.
    retry: Option<Instant>,
    /// How long the next refusal is waited after.
    pause: Duration,
    /// Why, as it was said.
    said: Option<String>,
    /// Since when the catalogue says that something is not in force, milliseconds since 1970.
    behind: Option<u64>,
    /// What the catalogue says of the source; `None`: nothing yet.
    source: Option<Vec<String>>,
    /// The catalogue could not be told it.
    source_unsaid: bool,
    /// Rows of the policy maps.
    rows: PolicyRows,
    /// Endpoints that are shut although their rules are known.
    refused: BTreeSet<u32>,
    /// Endpoints that are isolated since their rules need more rows than there is room for.
    over_budget: Vec<OverBudget>,
    /// How many addresses rules speak of beyond those that there is room for.
    crowded_out: usize,
    /// What the catalogue says of them.
    crowded_out_said: Option<CrowdedOut>,
    /// The catalogue could not be told it.
    crowded_out_unsaid: bool,
    news: News,
    /// When policies came to wait, of those that do.
    waiting: BTreeMap<Name, Instant>,
    notices: Notices,
    graves: Vec<Grave<R::Garbage>>,
    /// Rises each time that everything is compiled anew.
    era: u64,
    /// Rings for each grave, and for what has to be tried again.
    work: Arc<Notify>,
    /// Changes with the pods, namespaces and policies.
    told: watch::Sender<()>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl<R: Rows> Policing<R> {
    /// Nothing is enforced before [`Self::begin`].
    ///
    /// # Errors
    /// The catalogue cannot be read or written.
    pub(super) fn open(run: &Path, clock: Arc<dyn Clock>, metrics: Arc<Metrics>, notices: Notices) -> Result<Self> {
        Ok(Self {
            cluster: Cluster::default(),
            policies: None,
            begun: false,
            in_force: watch::Sender::new(false),
            locals: BTreeMap::new(),
            catalogue: CatalogueFile::open(run)?,
            generation: 0,
            retry: None,
            pause: RETRY,
            said: None,
            behind: None,
            source: None,
            source_unsaid: false,
            rows: PolicyRows::default(),
            refused: BTreeSet::new(),
            over_budget: Vec::new(),
            crowded_out: 0,
            crowded_out_said: None,
            crowded_out_unsaid: false,
            news: News::default(),
            waiting: BTreeMap::new(),
            notices,
            graves: Vec::new(),
            era: 0,
            work: Arc::default(),
            told: watch::Sender::default(),
            clock,
            metrics,
        })
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Leaves no room between what it knows: worth it once much was told.
    pub(super) fn pack(&mut self) {
        self.cluster.pack();
        if let Some(policies) = &mut self.policies {
            policies.pack();
        }
    }

    /// Rings when there is something to bury or to try again.
    pub(super) fn work(&self) -> Arc<Notify> {
        Arc::clone(&self.work)
    }

    /// Changes whenever the source told of pods, namespaces or policies.
    pub(super) fn told(&self) -> watch::Receiver<()> {
        self.told.subscribe()
    }

    /// Takes events in, which came at `since`, and brings them into force as one change.
    pub(super) fn take(&mut self, dataplane: &mut R, events: Vec<Event>, since: Instant) -> Taken {
        let mut taken = Taken::default();
        let mut touched = Vec::new();
        let mut told = false;
        let (was_old, waited_for) = (self.cluster.is_old(), self.cluster.untold().len());
        for event in events {
            let about = about(&event);
            if !self.cluster.apply(event) {
                continue;
            }
            match about {
                About::Node => taken.nodes = true,
                About::Kind => told = true,
                About::Policy(about, kind) => {
                    let mut came = since;
                    if let Touched::Policy(policy) = &about {
                        came = self.came(policy, since);
                    }
                    let first = self.news.since.entry(kind).or_insert(came);
                    *first = came.min(*first);
                    touched.push(about);
                }
            }
        }
        let is_news = told || !touched.is_empty();
        if was_old != self.cluster.is_old() {
            // Who could not be judged by what was old, or cannot be from now on.
            touched.extend(self.locals.iter().map(|(slot, local)| Touched::Endpoint(*slot, Some(local.clone()))));
        }
        if !touched.is_empty() {
            self.follow(dataplane, touched);
        }
        if told && self.policies.is_none() && self.begun {
            let untold = self.cluster.untold();
            if untold.is_empty() {
                tracing::info!("the source has told all that policy waited for");
                self.first_try(dataplane);
            } else if untold.len() < waited_for {
                self.wait_for(&untold);
            }
        }
        if is_news {
            self.told.send_replace(());
        }
        taken
    }

    /// These endpoints are there: once the source has told everything of each kind, the maps follow.
    pub(super) fn begin(&mut self, dataplane: &mut R, locals: BTreeMap<u32, Local>) {
        self.locals = locals;
        self.begun = true;
        self.first_try(dataplane);
        let untold = self.cluster.untold();
        if !untold.is_empty() {
            self.wait_for(&untold);
            self.name_all();
        }
    }

    /// Whether the endpoints and all that the source has to tell are known.
    fn may_begin(&self) -> bool {
        self.begun && self.cluster.untold().is_empty()
    }

    /// Whether what the source told of all kinds was in force once.
    pub(super) fn in_force(&self) -> watch::Receiver<bool> {
        self.in_force.subscribe()
    }

    /// Keeps the catalogue short: everything that comes and goes leaves lines in it.
    pub(super) fn housekeep(&mut self) {
        self.notices.forget();
        if let Err(error) = self.catalogue.shorten() {
            tracing::error!(%error, "the catalogue cannot be made shorter; tried again");
        }
    }

    fn first_try(&mut self, dataplane: &mut R) {
        // Which policies are news the catalogue tells.
        self.news.policies.clear();
        self.news.of_start = true;
        self.try_again(dataplane);
    }
}

#[cfg(test)]
mod tests;
