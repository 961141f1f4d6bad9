//! Everything compiled anew over what is pinned: at the start, and after a refusal.
//!
//! Invariant: nothing is believed to be in the maps or the catalogue; both are read, and what differs is written as one change.

use anyhow::{Context, Result};
use osmia_maps::catalogue::Line;
use tokio::time::Instant;

use super::{Policing, Rows, enforce::News, lines, refusal::used_up, tally};
use crate::{
    compile::policy::{Policies, Resumed},
    program::PolicyError,
};

impl<R: Rows> Policing<R> {
    /// Compiles everything anew over what is pinned.
    pub(super) fn resume(&mut self, dataplane: &mut R) -> Result<()> {
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
        let now = Instant::now();
        for policy in lines::unknown_policies(&self.cluster, &catalogue, &names) {
            self.news.policies.entry(policy).or_insert(now);
        }
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
}
