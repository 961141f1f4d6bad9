//! Who is where: nodes, namespaces with their apps, pods with their addresses, policies. Numbers only; `objects.rs` has the words.
//!
//! Thirty pods share a namespace; its six apps are what their labels tell apart. Pods are on nodes at random, as a scheduler leaves them,
//! but for those on the node under test, each in another namespace: the most different rules that so many pods can have.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastrand::Rng;

use super::{Event, Kind, PodRef, What};
use crate::manifest::NodeManifest;

/// The ranges that hold those of all nodes.
pub const CLUSTER_CIDRS: [&str; 2] = ["10.128.0.0/9", "fd00:10:244::/48"];
/// Pods of a namespace.
const TOGETHER: usize = 30;
/// Apps of a namespace.
pub(super) const APPS: [&str; 6] = ["web", "api", "db", "cache", "worker", "queue"];
/// The policies of a namespace that are not about one of its apps: what nobody allows is denied, and all may ask for names.
pub(super) const COMMON: usize = 2;

/// How large it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Nodes, the one under test among them.
    pub nodes: usize,
    /// Pods of all nodes.
    pub pods: usize,
    /// NetworkPolicies.
    pub policies: usize,
    /// Pods on the node under test, among `pods`. They have no addresses before a runtime gives them some: see [`Feed::attached`].
    pub here: usize,
}

/// A pod on the node under test, one that its rules allow, and the policy that does: whoever wants to see an event come into force changes
/// the label or the policy. Nothing else ever happens to these three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The pod on the node under test.
    pub here: usize,
    /// The one that may send to it.
    pub peer: usize,
    /// The policy that says so.
    pub policy: usize,
}

/// A cluster as it stands. Pods and policies are known by their index.
#[derive(Clone, Debug)]
pub struct Feed {
    pub(super) own: NodeManifest,
    pub(super) random: Rng,
    pub(super) nodes: Vec<Hosts>,
    pub(super) namespaces: usize,
    pub(super) pods: Vec<Pod>,
    pub(super) policies: Vec<Policy>,
    pub(super) probes: Vec<Probe>,
    /// Steps of [`Self::churn`] so far.
    pub(super) steps: usize,
    /// Pods and policies made so far; each has its number as creation time, seconds.
    made: u64,
}

/// What of a node's ranges is in use.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    used: [bool; 256],
    next: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) namespace: usize,
    /// Its number among those of the namespace.
    pub(super) nth: usize,
    pub(super) node: usize,
    pub(super) name: String,
    pub(super) uid: String,
    /// Seconds.
    pub(super) created: u64,
    /// Its `app` is one that nobody allows.
    pub(super) astray: bool,
    pub(super) host: Option<u8>,
    pub(super) addresses: Vec<IpAddr>,
}

#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) namespace: usize,
    /// Its number among those of the namespace.
    pub(super) nth: usize,
    pub(super) uid: String,
    /// Seconds.
    pub(super) created: u64,
    /// How often it was changed.
    pub(super) changes: u16,
}

/// What a policy is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About {
    Deny,
    Names,
    /// An app receives from another one of the namespace.
    FromApp(usize, usize),
    /// An app receives from an app of other namespaces.
    FromTeam(usize, usize),
    /// An app sends outside.
    ToRanges(usize),
    /// An app sends to the databases of other namespaces.
    ToDatabases(usize),
}

impl Pod {
    pub(super) fn app(&self) -> usize {
        self.nth % APPS.len()
    }
}

impl Policy {
    pub(super) fn about(&self) -> About {
        let Some(number) = self.nth.checked_sub(COMMON) else {
            return if self.nth == 0 { About::Deny } else { About::Names };
        };
        let (app, round) = (number % APPS.len(), number / APPS.len());
        let other = (app + 1 + round / 4) % APPS.len();
        match round % 4 {
            0 => About::FromApp(app, other),
            1 => About::FromTeam(app, other),
            2 => About::ToRanges(app),
            _ => About::ToDatabases(app),
        }
    }
}

impl Feed {
    /// A cluster around the node `own`, of a seed.
    #[must_use]
    pub fn new(sizes: Sizes, seed: u64, own: &NodeManifest) -> Self {
        let namespaces = sizes.pods.max(sizes.policies).div_ceil(TOGETHER).max(1);
        let mut feed = Self {
            own: own.clone(),
            random: Rng::with_seed(seed),
            nodes: vec![Hosts { used: [false; 256], next: 2 }; sizes.nodes.max(1)],
            namespaces,
            pods: Vec::new(),
            policies: Vec::new(),
            probes: Vec::new(),
            steps: 0,
            made: 0,
        };
        // One a namespace, another app each time.
        let together = (sizes.pods / namespaces).max(1);
        let here: BTreeSet<usize> =
            (0..sizes.here).map(|nth| nth % namespaces + namespaces * ((nth / namespaces + nth) % together)).collect();
        for index in 0..sizes.pods {
            let is_here = here.contains(&index);
            let node = if is_here { 0 } else { feed.any_node() };
            let pod = feed.new_pod(index % namespaces, index / namespaces, node);
            feed.pods.push(pod);
            if !is_here {
                feed.give_addresses(index);
            }
        }
        for index in 0..sizes.policies {
            let (uid, created) = (feed.uid(), feed.time());
            let (namespace, nth) = (index % namespaces, index / namespaces);
            feed.policies.push(Policy { namespace, nth, uid, created, changes: 0 });
        }
        feed.probes = feed.find_probes();
        feed
    }

    /// Everything as it is, as events that say it came: kind by kind, Pods last.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let added = |kind, object| Event { kind, what: What::Added, object };
        let nodes = (0..self.nodes.len()).map(|node| added(Kind::Node, self.node_object(node)));
        let namespaces = (0..self.namespaces).map(|number| added(Kind::Namespace, self.namespace_object(number)));
        let policies = self.policies.iter().map(|policy| added(Kind::Policy, self.policy_object(policy)));
        let pods = self.pods.iter().map(|pod| added(Kind::Pod, self.pod_object(pod, pod.stage())));
        nodes.chain(namespaces).chain(policies).chain(pods).collect()
    }

    /// The pods on the node under test.
    pub fn here(&self) -> impl Iterator<Item = usize> {
        self.pods.iter().enumerate().filter(|(_, pod)| pod.node == 0).map(|(index, _)| index)
    }

    /// Changes to watch for, one a pod on the node under test that has some.
    #[must_use]
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// A pod by its index.
    #[must_use]
    pub fn pod(&self, index: usize) -> PodRef {
        let pod = &self.pods[index];
        PodRef {
            namespace: namespace(pod.namespace),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            addresses: pod.addresses.clone(),
        }
    }

    fn find_probes(&self) -> Vec<Probe> {
        let mut probes = Vec::new();
        let mut peers = BTreeSet::new();
        for here in self.here() {
            let pod = &self.pods[here];
            // Pods and policies of a namespace are as far apart as there are namespaces.
            let own = |count: usize| (pod.namespace..count).step_by(self.namespaces);
            let found = own(self.policies.len()).find_map(|policy| {
                let About::FromApp(app, from) = self.policies[policy].about() else { return None };
                let is_peer = |index: &usize| self.pods[*index].app() == from && self.pods[*index].node != 0;
                let peer = own(self.pods.len()).find(is_peer).filter(|_| app == pod.app())?;
                Some(Probe { here, peer, policy })
            });
            probes.extend(found.filter(|probe| peers.insert(probe.peer)));
        }
        probes
    }

    pub(super) fn new_pod(&mut self, namespace: usize, nth: usize, node: usize) -> Pod {
        let (uid, created) = (self.uid(), self.time());
        let app = APPS[nth % APPS.len()];
        let name = format!("{app}-7d9f8b6c5d-{:05x}", self.made);
        Pod { namespace, nth, node, name, uid, created, astray: false, host: None, addresses: Vec::new() }
    }

    /// A node that is not under test.
    pub(super) fn any_node(&mut self) -> usize {
        match self.nodes.len() {
            0 | 1 => 0,
            count => self.random.usize(1..count),
        }
    }

    /// Gives a pod the next free addresses of its node.
    pub(super) fn give_addresses(&mut self, index: usize) {
        let pod = &mut self.pods[index];
        let hosts = &mut self.nodes[pod.node];
        while hosts.used[usize::from(hosts.next)] {
            hosts.next = after(hosts.next);
        }
        let host = hosts.next;
        hosts.used[usize::from(host)] = true;
        hosts.next = after(host);
        pod.host = Some(host);
        pod.addresses = vec![pod_v4(pod.node, host).into(), pod_v6(pod.node, host).into()];
    }

    /// The addresses of a pod that went are free again.
    pub(super) fn free_addresses(&mut self, pod: &Pod) {
        if let Some(host) = pod.host {
            self.nodes[pod.node].used[usize::from(host)] = false;
        }
    }

    fn uid(&mut self) -> String {
        let (a, b) = (self.random.u64(..), self.random.u64(..));
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xffff,
            b >> 48,
            b & 0xffff_ffff_ffff
        )
    }

    /// The time of what is made now, seconds: each thing later than the one before.
    fn time(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    pub(super) fn now(&self) -> u64 {
        self.made
    }
}

/// Two addresses of a range are the network's own, and the last is its broadcast.
const fn after(host: u8) -> u8 {
    if host >= 254 { 2 } else { host + 1 }
}

/// Name of a namespace.
pub(super) fn namespace(number: usize) -> String {
    if number == 0 { "kube-system".to_owned() } else { format!("team-{:02}-app-{number:04}", number % 20) }
}

/// InternalIPs of a node that is not under test.
pub(super) fn node_addresses(node: usize) -> [IpAddr; 2] {
    let [high, low] = (node as u16).to_be_bytes();
    [Ipv4Addr::new(10, 64, high, low).into(), Ipv6Addr::new(0xfd00, 0x64, 0, 0, 0, 0, 0, node as u16).into()]
}

/// Ranges of a node that is not under test.
pub(super) fn node_ranges(node: usize) -> [String; 2] {
    [format!("{}/24", pod_v4(node, 0)), format!("{}/64", pod_v6(node, 0))]
}

fn pod_v4(node: usize, host: u8) -> Ipv4Addr {
    let [high, low] = (node as u16).to_be_bytes();
    Ipv4Addr::new(10, 128 + high, low, host)
}

fn pod_v6(node: usize, host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x10, 0x244, 0x1000 + node as u16, 0, 0, 0, u16::from(host))
}
