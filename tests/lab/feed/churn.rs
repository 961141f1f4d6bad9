//! What happens in the cluster: pods replaced, policies edited, nodes that report.
//!
//! A step is the replacement of one pod, as a rolling update does it. With ten steps a second, twenty pods come or go, which is as much churn
//! as Kubernetes promises to bear (its scalability SLOs), and three of a thousand nodes report, as kubelets do every five minutes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::cluster::{Feed, Pod};
use super::objects::Stage;
use super::{Event, Kind, What};

/// Steps between two edits of a policy.
const EDIT: usize = 10;
/// Steps between two reports of a node.
const REPORT: usize = 3;

impl Feed {
    /// A step: a pod that is not on the node under test is replaced, and in some steps a policy is edited or a node reports. The events in
    /// their order.
    pub fn churn(&mut self) -> Vec<Event> {
        self.steps += 1;
        let mut events = self.replace();
        if self.steps.is_multiple_of(EDIT) {
            events.extend(self.any_policy().map(|policy| self.edit(policy)));
        }
        if self.steps.is_multiple_of(REPORT) {
            let node = self.any_node();
            events.push(Event { kind: Kind::Node, what: What::Modified, object: self.node_object(node) });
        }
        events
    }

    /// A runtime gave a pod of the node under test these addresses, and its kubelet says so.
    pub fn attached(&mut self, pod: usize, addresses: &[IpAddr]) -> Event {
        self.pods[pod].addresses = addresses.to_vec();
        self.modified(pod, Stage::Running)
    }

    /// A pod's `app` becomes one that nobody allows, or again what it was.
    pub fn relabel(&mut self, pod: usize) -> Event {
        self.pods[pod].astray = !self.pods[pod].astray;
        self.modified(pod, self.pods[pod].stage())
    }

    /// A policy of an app allows the next port instead.
    pub fn edit(&mut self, policy: usize) -> Event {
        self.policies[policy].changes += 1;
        Event { kind: Kind::Policy, what: What::Modified, object: self.policy_object(&self.policies[policy]) }
    }

    /// A policy by which the pods of a namespace receive from every second pod of the cluster: it comes, or goes.
    #[must_use]
    pub fn open(&self, namespace_of: usize, what: What) -> Event {
        Event { kind: Kind::Policy, what, object: self.open_object(&self.pods[namespace_of]) }
    }

    fn modified(&self, pod: usize, stage: Stage) -> Event {
        Event { kind: Kind::Pod, what: What::Modified, object: self.pod_object(&self.pods[pod], stage) }
    }

    /// The one that goes is told to end, the one that comes is scheduled and gets its addresses, and the other is gone.
    fn replace(&mut self) -> Vec<Event> {
        let kept: BTreeSet<usize> = self.probes.iter().map(|probe| probe.peer).collect();
        let Some(index) = self.any(self.pods.len(), |feed, index| feed.pods[index].node != 0 && !kept.contains(&index))
        else {
            return Vec::new();
        };
        let old = self.pods[index].clone();
        let of =
            |feed: &Self, what, pod: &Pod, stage| Event { kind: Kind::Pod, what, object: feed.pod_object(pod, stage) };
        let mut events = vec![of(self, What::Modified, &old, Stage::Ending)];
        let node = self.any_node();
        let new = self.new_pod(old.namespace, old.nth, node);
        events.push(of(self, What::Added, &new, Stage::Unscheduled));
        events.push(of(self, What::Modified, &new, Stage::Scheduled));
        self.pods[index] = new;
        self.give_addresses(index);
        events.push(self.modified(index, Stage::Running));
        events.push(of(self, What::Deleted, &old, Stage::Ending));
        self.free_addresses(&old);
        events
    }

    fn any_policy(&mut self) -> Option<usize> {
        let kept: BTreeSet<usize> = self.probes.iter().map(|probe| probe.policy).collect();
        self.any(self.policies.len(), |_, index| !kept.contains(&index))
    }

    /// One of `count` that will do; `None` where hardly any does.
    fn any(&mut self, count: usize, will_do: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        (0..1000).filter(|_| count > 0).find_map(|_| {
            let index = self.random.usize(..count);
            will_do(self, index).then_some(index)
        })
    }
}
