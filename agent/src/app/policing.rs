//! The cluster's policies and their way into the maps.
//!
//! Invariant: names are in the catalogue before the rows that use them are in a map, and leave it after; an endpoint's row is written with its
//! rule sets in it, and shut while it is not known that all of policy is written, but where no policy selects it. After a refusal the maps and the catalogue are read again,
//! ever more rarely, and what differs is written: nothing is believed to be there.

mod counts;
mod events;
mod lines;
mod noticed;
mod said;
mod tally;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use osmia_maps::{
    catalogue::{CrowdedOut, Line},
    layout::{Endpoint, VerdictKey},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use self::events::{About, about};
use super::notices::Notices;
use crate::{
    catalogue::CatalogueFile,
    clock::Clock,
    compile::policy::{CLOSED, Change, Local, OverBudget, Pinned, Policies, Resumed, Rules, Touched},
    model::{Cluster, Event, Name},
    program::{PolicyError, is_same},
    serve::metrics::{Metrics, PolicyRows},
    source::notice::Reason,
};

/// After the maps or the catalogue refused. Each time that they refuse again it is twice as long, since everything is compiled anew.
const RETRY: Duration = Duration::from_secs(2);
/// No longer than this: what refused may have been put right by hand.
const RETRY_AT_MOST: Duration = Duration::from_secs(60);
/// A change that takes longer is told of at its policies.
const SLOW: Duration = Duration::from_secs(10);
/// Of an endpoint of which it is not sure what it may do.
const SHUT: Rules = Rules { egress: CLOSED, ingress: CLOSED };

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

/// Old rows and their names, until no packet under way can ask for them.
pub(super) struct Grave<G> {
    /// Of another than the present one it is void: the rows may be in use again.
    era: u64,
    garbage: G,
    names: Option<Line>,
}

/// What was told since the last generation that is in force.
#[derive(Default)]
struct News {
    /// When the first of each kind came.
    since: BTreeMap<&'static str, Instant>,
    /// The policies that came, changed or went.
    policies: BTreeSet<Name>,
    /// They are what a start found.
    of_start: bool,
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

    /// Rings when there is something to bury or to try again.
    pub(super) fn work(&self) -> Arc<Notify> {
        Arc::clone(&self.work)
    }

    /// Changes whenever the source told of pods, namespaces or policies.
    pub(super) fn told(&self) -> watch::Receiver<()> {
        self.told.subscribe()
    }

    /// When a refused change is to be tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry
    }

    /// Whether an ADD of this pod shall wait for its object, or for what else it is judged by: what is not told may isolate it.
    pub(super) fn awaits(&self, local: &Local) -> bool {
        let Some((namespace, _)) = &local.pod else { return false };
        let Cluster { namespaces, policies, .. } = &self.cluster;
        let may_be_isolated = self.cluster.is_old() || !namespaces.contains_key(namespace) || !policies.is_empty();
        !self.cluster.untold().is_empty() || (local.judged(&self.cluster).is_none() && may_be_isolated)
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
                    if let Touched::Policy(policy) = &about {
                        self.is_news(policy);
                        self.notice_refused_parts(policy);
                    }
                    self.news.since.entry(kind).or_insert(since);
                    touched.push(about);
                }
            }
        }
        let is_news = told || !touched.is_empty();
        if was_old && !self.cluster.is_old() {
            // Who could not be judged by what was old.
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

    /// These endpoints are there: once the source has told everything of each kind, the maps follow. Whether they do now.
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

    fn first_try(&mut self, dataplane: &mut R) {
        // Which policies are news the catalogue tells.
        self.news.policies.clear();
        self.news.of_start = true;
        if self.may_begin() {
            self.cluster.pack();
        }
        self.try_again(dataplane);
    }

    /// Reads what is in the maps and the catalogue, and writes what differs from what ought to be.
    pub(super) fn try_again(&mut self, dataplane: &mut R) {
        if !self.may_begin() {
            self.retry = None;
            return;
        }
        let result = self.resume(dataplane).and_then(|()| self.catch_up());
        self.retry = None;
        if result.is_ok() {
            self.pause = RETRY;
            self.refused.clear();
            self.in_force.send_replace(true);
            self.notices.set_all(Reason::ChangeFailed, BTreeMap::new());
            if self.said.take().is_some() {
                tracing::info!("policy is in force as it should be again");
            }
        }
        self.settle(result);
    }

    /// Puts an endpoint in force, isolated from its first packet on where it has to be.
    ///
    /// # Errors
    /// Its row, its programs or its line in the catalogue cannot be written.
    pub(super) fn put(&mut self, dataplane: &mut R, slot: u32, endpoint: Endpoint, local: Local) -> Result<()> {
        let rules = match &self.policies {
            // Whoever compiles first finds it among the others. Those of before the begin are named by that.
            None => {
                if self.begun {
                    self.name(slot, &local)?;
                }
                self.locals.insert(slot, local);
                as_pinned(dataplane, slot, &endpoint)?
            }
            Some(_) => self.admit(dataplane, slot, local)?,
        };
        if rules == SHUT && self.cluster.untold().is_empty() {
            self.refused.insert(slot);
        }
        let endpoint = Endpoint { egress_rules: rules.egress, ingress_rules: rules.ingress, ..endpoint };
        dataplane.put_endpoint(slot, endpoint)
    }

    /// Takes an endpoint out. No packet of it passes when this returns.
    ///
    /// # Errors
    /// Its row cannot be removed.
    pub(super) fn remove(&mut self, dataplane: &mut R, slot: u32) -> Result<()> {
        dataplane.remove_endpoint(slot)?;
        self.refused.remove(&slot);
        if self.locals.remove(&slot).is_some() {
            if let Err(error) = self.catalogue.append(&[Line::NoEndpoint { slot }]) {
                self.settle(Err(error).context("the catalogue cannot be written"));
            }
            self.follow(dataplane, vec![Touched::Endpoint(slot, None)]);
        }
        Ok(())
    }

    /// What a barrier has to be waited for.
    pub(super) fn graves(&mut self) -> Vec<Grave<R::Garbage>> {
        std::mem::take(&mut self.graves)
    }

    /// Removes old rows and their names, after a barrier.
    pub(super) fn bury(&mut self, dataplane: &mut R, graves: Vec<Grave<R::Garbage>>) {
        let result = self.try_bury(dataplane, graves);
        self.settle(result);
    }

    /// Keeps the catalogue short: everything that comes and goes leaves lines in it.
    pub(super) fn housekeep(&mut self) {
        self.notices.forget();
        if let Err(error) = self.catalogue.shorten() {
            tracing::error!(%error, "the catalogue cannot be made shorter; tried again");
        }
    }

    fn follow(&mut self, dataplane: &mut R, touched: Vec<Touched>) {
        let Some(policies) = &mut self.policies else { return };
        if policies.has_used_up_numbers() {
            self.settle(Err(used_up()));
            return;
        }
        let change = policies.update(&self.cluster, touched);
        if self.retry.is_some() {
            // Where the maps stand is not known: the next try finds all that differs.
            return;
        }
        if change.is_empty() && self.news.policies.is_empty() {
            self.news = News::default();
            // An address without room is no change.
            self.say_crowded_out();
            return;
        }
        let result = self.enforce(dataplane, &change, Vec::new());
        self.settle(result);
    }

    /// Whose an endpoint is, in the catalogue.
    fn name(&mut self, slot: u32, local: &Local) -> Result<()> {
        self.catalogue.append(&[lines::endpoint(slot, local)]).context("the catalogue cannot be written")
    }

    /// Takes an endpoint in whose row is not there yet; the rules it has to be written with.
    fn admit(&mut self, dataplane: &mut R, slot: u32, local: Local) -> Result<Rules> {
        self.name(slot, &local)?;
        self.locals.insert(slot, local.clone());
        self.follow(dataplane, vec![Touched::Endpoint(slot, Some(local.clone()))]);
        if let Some(policies) = self.policies.as_ref().filter(|_| self.retry.is_none()) {
            return Ok(policies.rules(slot));
        }
        // What the maps hold is not known then. Who needs no rules is let go all the same, once his address is nobody's: to the rules of others
        // he is no pod until all is written, which takes rights from him and gives none.
        let peers = local.addresses.iter().map(|address| (*address, None)).collect();
        let nobody = Change { peers, ..Change::default() };
        let is_open = local.is_open(&self.cluster) && dataplane.write_policy(&nobody).is_ok();
        Ok(if is_open { Rules::default() } else { SHUT })
    }

    /// Compiles everything anew over what is pinned.
    fn resume(&mut self, dataplane: &mut R) -> Result<()> {
        let catalogue = self.catalogue.read().context("the catalogue cannot be read")?;
        let pinned = dataplane.pinned_policy().context("the policy maps cannot be read")?;
        self.rows = tally::found(&pinned);
        self.crowded_out_said = catalogue.crowded_out;
        if let Some(behind) = &catalogue.behind {
            self.behind.get_or_insert(behind.at_ms);
        }
        let Resumed { mut policies, change, unknown } =
            Policies::resume(&catalogue, &pinned, &self.cluster, &self.locals);
        if policies.has_used_up_numbers() {
            return Err(used_up());
        }
        if let Some(why) = unknown {
            tracing::error!(why, "the policy rows are not those that the catalogue names: all are written anew");
        }
        self.era += 1;
        self.graves.clear();
        let names: Vec<Line> = policies.take_names().collect();
        self.generation = self.generation.max(catalogue.generation);
        self.policies = Some(policies);
        self.news.policies.extend(lines::unknown_policies(&self.cluster, &catalogue, &names));
        let mut lines = lines::endpoints(&self.locals, &catalogue);
        lines.extend(names);
        if change.is_empty() && lines.is_empty() && self.news.policies.is_empty() {
            self.news = News::default();
            self.say_over_budget();
            return Ok(());
        }
        let result = self.enforce(dataplane, &change, lines);
        let too_many = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(PolicyError::TooMany { .. }));
        if result.as_ref().is_err_and(too_many) {
            self.make_room(&pinned);
        }
        result
    }

    /// Nothing was written for want of room: what no pointer leads to goes before it is tried again, since the graves of before are void.
    fn make_room(&mut self, pinned: &Pinned) {
        let sets: BTreeSet<u32> = pinned.rules.values().flat_map(|rules| [rules.egress, rules.ingress]).collect();
        let classes: BTreeSet<u32> = pinned.peers.values().chain(pinned.blocks.values()).copied().collect();
        let led_to = |key: &VerdictKey| {
            let (set, class) = (key.asked.set, key.asked.class);
            (set == CLOSED || sets.contains(&set)) && (class == 0 || classes.contains(&class))
        };
        let rows: BTreeSet<VerdictKey> = pinned.verdicts.keys().filter(|key| !led_to(key)).copied().collect();
        if !rows.is_empty() {
            tracing::warn!(rows = rows.len(), "policy rows that nothing leads to are in the way: removed");
            self.graves.push(Grave { era: self.era, garbage: rows.into(), names: None });
            self.work.notify_one();
        }
    }

    /// Names, rows, and the word that they are in force.
    fn enforce(&mut self, dataplane: &mut R, change: &Change, lines: Vec<Line>) -> Result<()> {
        let Some(policies) = &mut self.policies else { return Ok(()) };
        let start = Instant::now();
        let gone = policies.take_gone();
        self.generation += 1;
        let generation = self.generation;
        let begins = Line::Generation { generation, last: policies.last() };
        let lines = lines.into_iter().chain(policies.take_names()).chain([begins]);
        self.catalogue.append(lines).context("the catalogue cannot be written")?;
        dataplane.name_rows(generation)?;
        let garbage = dataplane.write_policy(change)?;
        tally::wrote(&mut self.rows, change, policies);
        let took = self.news.since.values().min().unwrap_or(&start).elapsed();
        let in_force = lines::in_force(&self.cluster, &self.news.policies, generation, self.clock.wall(), took);
        self.catalogue.append(&in_force).context("the catalogue cannot be written")?;
        // Most changes leave nothing behind: no barrier for those.
        if gone.is_some() || !change.old_verdicts.is_empty() {
            self.graves.push(Grave { era: self.era, garbage, names: gone });
            self.work.notify_one();
        }
        let is_slow = took > SLOW && !self.news.of_start;
        if is_slow {
            tracing::warn!(?took, "a change was in force late");
        }
        let note = is_slow.then(|| format!("it came or changed, and was in force {} s later", took.as_secs()));
        self.notice_news(Reason::ChangeSlow, note.as_deref());
        let policies = self.news.policies.len();
        tracing::debug!(generation, ?took, policies, endpoints = change.endpoints.len(), "policy in force");
        self.metrics.policy_changed(self.news.since.iter().map(|(kind, since)| (*kind, since.elapsed())));
        self.news = News::default();
        self.say_over_budget();
        Ok(())
    }

    fn try_bury(&mut self, dataplane: &mut R, graves: Vec<Grave<R::Garbage>>) -> Result<()> {
        let mut names = Vec::new();
        for grave in graves.into_iter().filter(|grave| grave.era == self.era) {
            let gone = dataplane.bury_policy(grave.garbage).context("old policy rows cannot be removed")?;
            tally::buried(&mut self.rows, gone);
            names.extend(grave.names);
        }
        if !names.is_empty() {
            self.catalogue.append(&names).context("the catalogue cannot be written")?;
        }
        // Not while others wait for a barrier: their old rule sets may still be asked about what is collected.
        if let (Some(policies), None, true) = (&mut self.policies, self.retry, self.graves.is_empty()) {
            let change = policies.collect(&self.cluster);
            if !change.is_empty() {
                self.enforce(dataplane, &change, Vec::new())?;
            }
        }
        Ok(())
    }

    /// After each attempt: what was refused is said, and tried again.
    fn settle(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.metrics.policy_refused();
            let error = format!("{error:#}");
            if self.said.as_ref() != Some(&error) {
                tracing::error!(error, "policy is not in force as it should be: what was in force stays; tried again");
                self.fall_behind(&error);
                self.said = Some(error.clone());
            }
            self.notice_news(Reason::ChangeFailed, Some(&format!("it is not in force as it is now: {error}")));
            if self.retry.is_none() {
                self.retry = Some(Instant::now() + self.pause);
                self.pause = RETRY_AT_MOST.min(2 * self.pause);
                self.work.notify_one();
            }
        }
    }
}

/// A change would need numbers that were given before.
fn used_up() -> anyhow::Error {
    anyhow!(
        "the numbers of rule sets, classes, peers or rules are used up: reboot the node, with which the maps begin anew"
    )
}

/// The rule sets of a row that is put again before anything is known: what they were, else none may pass.
fn as_pinned<R: Rows>(dataplane: &R, slot: u32, endpoint: &Endpoint) -> Result<Rules> {
    let row = dataplane.endpoint(slot)?.filter(|row| is_same(row, endpoint));
    Ok(row.map_or(SHUT, |row| Rules { egress: row.egress_rules, ingress: row.ingress_rules }))
}

#[cfg(test)]
mod tests;
