//! The model as it stands, and its way into the maps.

use std::{collections::BTreeSet, sync::Arc};

use tokio::{sync::watch, time::Instant};

use super::dataplane::Shared;
use crate::{
    attachments::{NodeFacts, known::Pods},
    compile::{Desired, addresses_to_resolve, compile, pod_mtu},
    model::{Cluster, Event, Kind, Numbers, Settings, Underlay},
    serve::metrics::Metrics,
    underlay::Wanted,
};

/// Underlay and numbers; the cluster is where its policies are.
pub(super) struct Model {
    settings: Settings,
    numbers: Numbers,
    underlay: Underlay,
    want: watch::Sender<Wanted>,
    shared: Shared,
    metrics: Arc<Metrics>,
    /// What the maps hold, programs on all its devices; `None` while that is not sure.
    brought: Option<Desired>,
    /// What is wrong as far as the maps go.
    problems: BTreeSet<String>,
    /// What of it was said, so that it is said once.
    said: BTreeSet<String>,
}

impl Model {
    pub(super) fn new(
        settings: Settings,
        numbers: Numbers,
        underlay: Underlay,
        want: watch::Sender<Wanted>,
        shared: Shared,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            settings,
            numbers,
            underlay,
            want,
            shared,
            metrics,
            brought: None,
            problems: BTreeSet::new(),
            said: BTreeSet::new(),
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The pods of the source, of all nodes; `None`: it has not told of all since its start.
    pub(super) fn pods(&self) -> Option<Pods> {
        self.shared.with_cluster(pods)
    }

    /// Takes in events that came at `since`; whether there is something to bring. What they say of policy is in force when this returns.
    pub(super) fn take(&mut self, events: Vec<Event>, since: Instant) -> bool {
        let changed = self.shared.take(events, since).nodes;
        if changed {
            let wanted = self.shared.with_cluster(|cluster| Wanted::new(cluster, &self.settings));
            self.want.send_if_modified(|old| {
                let new = *old != wanted;
                if new {
                    *old = wanted;
                }
                new
            });
        }
        changed
    }

    /// Whether nodes have addresses whose way is still being asked for. Their rows would be missing, those of before are better.
    pub(super) fn awaits_ways(&self) -> bool {
        let asked = self.shared.with_cluster(|cluster| addresses_to_resolve(cluster, &self.settings.node));
        !asked.is_subset(&self.underlay.asked)
    }

    pub(super) fn set_underlay(&mut self, underlay: Underlay) {
        self.underlay = underlay;
        // Another device may have the number of one that went: its programs are looked at.
        self.brought = None;
    }

    /// Brings nodes, routes and configuration to the model. False: the maps refused, and it has to be tried again.
    pub(super) fn bring(&mut self) -> bool {
        let (without, compiled) = self.shared.with_cluster(|cluster| {
            let without = self.numbers.assign(cluster, &self.settings.node);
            (without, compile(cluster, &self.underlay, &self.settings, &self.numbers))
        });
        let numberless = without.into_iter().map(|name| format!("node {name:?}: all node numbers are in use"));
        self.problems = compiled.problems.into_iter().chain(numberless).collect();
        self.metrics.problems("model", self.problems.len());
        let desired = compiled.desired;
        if self.brought.as_ref() == Some(&desired) {
            return true;
        }
        self.brought = None;
        let result = self.shared.apply(&desired);
        self.metrics.applied(result.is_ok());
        match result {
            Ok(applied) => {
                // A device that vanished meanwhile comes as an event; until the maps are as wanted no number is given again.
                self.metrics.rows(desired.nodes.len(), desired.routes.len(), applied.generation);
                if applied.gone.is_empty() {
                    self.numbers.settle();
                    self.brought = Some(desired);
                }
                true
            }
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::from(error));
                tracing::error!(error, "the maps are not as they should be; tried again");
                false
            }
        }
    }

    /// What attachments need to know.
    pub(super) fn facts(&self) -> NodeFacts {
        self.shared.with_cluster(|cluster| {
            let this = cluster.nodes.get(&self.settings.node);
            NodeFacts {
                name: self.settings.node.clone(),
                pod_cidrs: this.map(|node| node.pod_cidrs.clone()).unwrap_or_default(),
                pod_mtu: pod_mtu(this, &self.underlay, &self.settings),
                ipv6: self.underlay.ipv6,
            }
        })
    }

    /// Whether there is something to say that [`Self::say`] has not said.
    pub(super) fn is_unsaid(&self) -> bool {
        self.problems != self.said
    }

    /// Says what became wrong and what is solved. Not at once: a new node has no way until the underlay was asked for one.
    pub(super) fn say(&mut self) {
        for problem in self.problems.difference(&self.said) {
            tracing::warn!(problem, "the model has a problem");
        }
        for problem in self.said.difference(&self.problems) {
            tracing::info!(problem, "solved");
        }
        self.said.clone_from(&self.problems);
    }
}

/// All pods, unless some may only be remembered: what attachments are compared with once has to be as it is now.
fn pods(cluster: &Cluster) -> Option<Pods> {
    let all = cluster.told.contains(&Kind::Pod) && !cluster.remembered.contains(&Kind::Pod);
    all.then(|| cluster.pods.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_are_compared_with_pods_that_are_told_and_not_with_those_that_are_remembered() {
        let mut cluster = Cluster::default();
        assert_eq!(pods(&cluster), None);
        cluster.apply(Event::Remembered(Kind::Pod));
        assert_eq!(pods(&cluster), None, "they may be others by now");
        cluster.apply(Event::Told(Kind::Pod));
        assert_eq!(pods(&cluster), Some(Pods::new()));
    }
}
