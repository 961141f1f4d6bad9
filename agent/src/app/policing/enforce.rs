//! A change of policy into force.
//!
//! Invariant: names are in the catalogue before the rows that use them are in a map; that a generation is in force is said after its last row.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use osmia_maps::catalogue::Line;
use tokio::time::Instant;

use super::{Policing, Rows, burial::Grave, lines, refusal::used_up, tally};
use crate::{
    compile::policy::{Change, Touched},
    model::Name,
    source::notice::Reason,
};

/// A change that takes longer is told of at its policies.
pub(super) const SLOW: Duration = Duration::from_secs(10);

/// What was told since the last generation that is in force.
#[derive(Default)]
pub(super) struct News {
    /// When the first of each kind came.
    pub(super) since: BTreeMap<&'static str, Instant>,
    /// The policies that came, changed or went, and when.
    pub(super) policies: BTreeMap<Name, Instant>,
    /// They are what a start found.
    pub(super) of_start: bool,
}

impl<R: Rows> Policing<R> {
    /// Follows the cluster in what was touched.
    pub(super) fn follow(&mut self, dataplane: &mut R, touched: Vec<Touched>) {
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

    /// Names, rows, and the word that they are in force.
    pub(super) fn enforce(&mut self, dataplane: &mut R, change: &Change, lines: Vec<Line>) -> Result<()> {
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
        let first = *self.news.since.values().min().unwrap_or(&start);
        let took = first.elapsed();
        let in_force = lines::in_force(&self.cluster, &self.news.policies, generation, self.clock.wall(), first);
        self.catalogue.append(&in_force).context("the catalogue cannot be written")?;
        // Most changes leave nothing behind: no barrier for those.
        if gone.is_some() || !change.old_verdicts.is_empty() {
            self.graves.push(Grave { era: self.era, garbage, names: gone });
            self.work.notify_one();
        }
        let of_start = self.news.of_start;
        let is_slow = |took| took > SLOW && !of_start;
        if is_slow(took) {
            tracing::warn!(?took, "a change was in force late");
        }
        self.notice_news(Reason::ChangeSlow, |came| {
            let took = came.elapsed();
            is_slow(took).then(|| format!("it came or changed, and was in force {} s later", took.as_secs()))
        });
        let policies = self.news.policies.len();
        tracing::debug!(generation, ?took, policies, endpoints = change.endpoints.len(), "policy in force");
        self.metrics.policy_changed(self.news.since.iter().map(|(kind, since)| (*kind, since.elapsed())));
        self.news = News::default();
        self.say_over_budget();
        Ok(())
    }
}
