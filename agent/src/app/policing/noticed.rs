//! What is wrong with policies, said once in the log and at the policies' objects.

use tokio::time::Instant;

use super::{Policing, Rows, lines};
use crate::{
    compile::policy::{OverBudget, Policies},
    model::Name,
    source::notice::Reason,
};

impl<R: Rows> Policing<R> {
    fn notice_refused_parts(&mut self, key: &Name) {
        match self.cluster.policies.get(key) {
            None => self.notices.gone(key),
            Some(policy) => {
                let refused = (!policy.refused.is_empty()).then(|| policy.refused.join("; "));
                let note = refused.map(|parts| format!("parts of it allow nothing, the rest counts: {parts}"));
                let name = lines::policy(key, policy);
                self.notices.is_there(&name);
                self.notices.set(Reason::PartRefused, &name, note);
            }
        }
    }

    /// A policy came, changed or went by an event of `since`, or waits for that and says something else meanwhile. When it came.
    pub(super) fn came(&mut self, key: &Name, since: Instant) -> Instant {
        if self.cluster.waiting.contains_key(key) {
            // What it says by now is in force with this event; since when it waits counts once it waits no more.
            self.waiting.entry(Name::clone(key)).or_insert(since);
            return since;
        }
        let came = self.waiting.remove(key).unwrap_or(since);
        self.is_news(key, came);
        self.notice_refused_parts(key);
        came
    }

    /// A policy came, changed or went.
    fn is_news(&mut self, key: &Name, came: Instant) {
        // While nothing is written who came and went again is nobody's news, and what went the catalogue tells when all is compiled anew.
        let waits = self.retry.is_some() || self.policies.is_none();
        if waits && !self.cluster.policies.contains_key(key) {
            self.news.policies.remove(key);
        } else {
            self.news.policies.entry(Name::clone(key)).or_insert(came);
        }
    }

    /// Told of the policies that came or changed since the last time that all was in force, by when each came.
    pub(super) fn notice_news(&mut self, reason: Reason, note: impl Fn(Instant) -> Option<String>) {
        for (key, came) in &self.news.policies {
            if let Some(policy) = self.cluster.policies.get(key) {
                self.notices.set(reason, &lines::policy(key, policy), note(*came));
            }
        }
    }

    /// Says whether there is room for all addresses.
    pub(super) fn say_crowded_out(&mut self) {
        let crowded_out = self.policies.as_ref().map(Policies::crowded_out).unwrap_or_default();
        match (self.crowded_out, crowded_out) {
            (0, 1..) => tracing::error!(
                addresses = crowded_out,
                "rules speak of more addresses than there is room for: the highest are no pods to the rules of this node"
            ),
            (1.., 0) => tracing::info!("there is room for all addresses that rules speak of again"),
            _ => {}
        }
        self.crowded_out = crowded_out;
        self.name_crowded_out();
    }

    /// Says which endpoints came to be isolated for want of room, and which are no more; and whether there is room for all addresses.
    pub(super) fn say_over_budget(&mut self) {
        self.say_crowded_out();
        let now = self.policies.as_ref().map(Policies::over_budget).unwrap_or_default();
        if now.is_empty() && self.over_budget.is_empty() {
            return;
        }
        for OverBudget { slot, pod, direction, policies, map, rows, limit } in
            now.iter().filter(|over| !self.over_budget.contains(over))
        {
            let policies: Vec<String> = policies.iter().map(ToString::to_string).collect();
            tracing::error!(
                slot,
                ?pod,
                ?direction,
                ?policies,
                map,
                rows,
                limit,
                "too many rules: the pod stays isolated"
            );
        }
        for OverBudget { slot, pod, direction, .. } in self.over_budget.iter().filter(|over| !now.contains(over)) {
            tracing::info!(slot, ?pod, ?direction, "its rules have room again, or are gone");
        }
        self.notices.over_budget(&now);
        self.over_budget = now;
    }
}
