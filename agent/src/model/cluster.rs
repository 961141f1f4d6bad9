//! The cluster's objects, folded to the fields that matter.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Event, Kind, Labels, Name, NamedPort, PolicyObject, Uid, packed::pack};

/// Everything a source has told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cluster {
    /// Nodes by name.
    pub nodes: BTreeMap<String, NodeObject>,
    /// Pods. Each has a place of its own, which the next one takes: inside the map's nodes those that come would leave room that nothing else takes.
    pub pods: BTreeMap<Name, Box<PodObject>>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<String, NamespaceObject>,
    /// NetworkPolicies.
    pub policies: BTreeMap<Name, PolicyObject>,
    /// What policies said since they were told, the last one last, of those that wait ([`Event::Waits`]).
    pub waiting: BTreeMap<Name, Vec<PolicyObject>>,
    /// The kinds of which everything was told once. Of another kind what is missing here may be there all the same.
    pub told: BTreeSet<Kind>,
    /// Those of them that the source only remembers: it has not seen all of them since its start, or since it could not ask for them any more,
    /// and what is new among them is missing here.
    pub remembered: BTreeSet<Kind>,
    /// Pods that are newer than the policies or namespaces that are only remembered ([`Self::is_old`]).
    pub early: BTreeSet<Name>,
}

impl Cluster {
    /// Takes one event in; whether anything changed.
    pub fn apply(&mut self, event: Event) -> bool {
        match event {
            Event::Node(name, node) => set(&mut self.nodes, name, node),
            Event::NodeGone(name) => self.nodes.remove(&name).is_some(),
            Event::Pod(key, pod) => set(&mut self.pods, key, Box::new(pod)),
            Event::PodGone(key) => {
                self.early.remove(&key);
                self.pods.remove(&key).is_some()
            }
            Event::Namespace(name, namespace) => set(&mut self.namespaces, name, namespace),
            Event::NamespaceGone(name) => self.namespaces.remove(&name).is_some(),
            Event::Policy(key, policy) => {
                let waited = self.waiting.remove(&key).is_some();
                set(&mut self.policies, key, policy) || waited
            }
            Event::PolicyGone(key) => {
                let waited = self.waiting.remove(&key).is_some();
                self.policies.remove(&key).is_some() || waited
            }
            Event::Waits(key, said) => set(&mut self.waiting, key, said),
            Event::Early(key) => self.is_old() && self.early.insert(key),
            Event::Remembered(kind) => {
                self.told.insert(kind);
                self.remembered.insert(kind)
            }
            Event::Told(kind) => {
                let is_new = self.told.insert(kind);
                let was_old = self.remembered.remove(&kind);
                if !self.is_old() {
                    self.early.clear();
                }
                is_new || was_old
            }
        }
    }

    /// Whether policies or namespaces are only remembered: until the source has seen all of them, one may be there that is newer than what
    /// is told.
    #[must_use]
    pub fn is_old(&self) -> bool {
        Kind::JUDGES.iter().any(|kind| self.remembered.contains(kind))
    }

    /// The pods of a namespace.
    pub fn pods_in(&self, namespace: &str) -> impl Iterator<Item = (&Name, &PodObject)> {
        within(&self.pods, namespace).map(|(key, pod)| (key, &**pod))
    }

    /// The policies of a namespace.
    pub fn policies_in(&self, namespace: &str) -> impl Iterator<Item = (&Name, &PolicyObject)> {
        within(&self.policies, namespace)
    }

    /// All that a policy isolates by: what it was told to be, before that what it said since and waits, the newest first.
    pub fn said<'a>(&'a self, key: &Name, told: &'a PolicyObject) -> impl Iterator<Item = &'a PolicyObject> {
        let since = self.waiting.get(key).map(Vec::as_slice).unwrap_or_default();
        since.iter().rev().chain([told])
    }

    /// Leaves no room between what it has: worth it once much was told.
    pub fn pack(&mut self) {
        pack(&mut self.pods);
        pack(&mut self.policies);
    }

    /// The kinds of which not everything was told yet.
    #[must_use]
    pub fn untold(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| !self.told.contains(kind)).collect()
    }
}

fn within<'a, V>(map: &'a BTreeMap<Name, V>, namespace: &str) -> impl Iterator<Item = (&'a Name, &'a V)> {
    map.range(Name::first_in(namespace)..).take_while(move |(key, _)| key.is_in(namespace))
}

fn set<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: V) -> bool {
    match map.entry(key) {
        Entry::Occupied(known) if *known.get() == value => return false,
        // Its key stays: others may share it.
        Entry::Occupied(mut known) => drop(known.insert(value)),
        Entry::Vacant(new) => {
            new.insert(value);
        }
    }
    true
}

/// A Node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeObject {
    /// `metadata.uid`, empty where a manifest has none.
    pub uid: String,
    /// `status.addresses` of type InternalIP, in order.
    pub internal_ips: Vec<IpAddr>,
    /// `spec.podCIDRs` (else `spec.podCIDR`), in order.
    pub pod_cidrs: Vec<IpNet>,
}

/// A Pod.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PodObject {
    /// The uid by which its runtime knows it: `metadata.uid`, of a static pod's object what its annotation says; empty where a manifest has none.
    pub uid: Uid,
    /// `spec.nodeName`, empty while unscheduled.
    pub node: Arc<str>,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// `status.podIPs`.
    pub ips: Arc<[IpAddr]>,
    /// Succeeded or Failed: it has no network any more.
    pub completed: bool,
    /// `metadata.creationTimestamp`, seconds since 1970; `None` where a manifest has none.
    pub created: Option<i64>,
    /// `metadata.labels`.
    pub labels: Arc<Labels>,
    /// Named ports of its containers and sidecars, sorted.
    pub ports: Arc<[NamedPort]>,
}

impl PodObject {
    /// Whether it has a network of its own now: pods on their node's network are a part of the node, and completed ones have none.
    #[must_use]
    pub fn has_network(&self) -> bool {
        !self.host_network && !self.completed
    }
}

/// A Namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NamespaceObject {
    /// `metadata.labels`, the name's own label among them.
    pub labels: Arc<Labels>,
}
