//! Random clusters as Kubernetes writes them, small enough that everything meets everything: what the compiler and the loaded programs are
//! held against [`World`] with.
//!
//! Invariant: objects alone, as JSON. How they are read, compiled and asked is the affair of who is tested.

#![expect(clippy::expect_used, reason = "objects that do not read are a mistake of this file")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use proptest::{prelude::*, sample::select};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Endpoint, World};

const NAMESPACES: [&str; 3] = ["a", "b", "c"];
const NODE: &str = "here";

/// One thing that happens to the cluster.
#[derive(Clone, Debug)]
pub enum Happening {
    /// An object is like this.
    Is(Value),
    /// An object (kind, namespace, name) is gone.
    Gone(&'static str, String, String),
    /// The runtime added this pod here, with this uid, where it says one.
    Added(u32, Option<&'static str>),
    /// The runtime added an endpoint in this pod's place, and named no pod.
    AddedUnnamed(u32),
    /// The runtime deleted it.
    Deleted(u32),
}

/// The objects as they stand.
#[derive(Clone, Default, Debug)]
pub struct Objects {
    objects: BTreeMap<(String, String, String), Value>,
    added: BTreeSet<u32>,
    unnamed: BTreeSet<u32>,
    uids: BTreeMap<u32, &'static str>,
}

/// Pods 0 to this are this node's, each with addresses of its own; the others are elsewhere and may claim each other's.
pub const LOCALS: u32 = 5;

/// Pods of the cluster.
const PODS: u32 = 9;

/// Namespace and name of a pod.
#[must_use]
pub fn pod_key(pod: u32) -> (String, String) {
    (NAMESPACES[pod as usize % 3].to_owned(), format!("p{pod}"))
}

/// The addresses of a pod of this node, IPv4 first.
#[must_use]
pub fn local_addresses(pod: u32) -> [IpAddr; 2] {
    let (v4, v6) = (format!("10.0.0.{}", 10 + pod), format!("fd00::{}", 10 + pod));
    [v4, v6].map(|text| text.parse().expect("an address"))
}

/// Addresses that anybody may ask about: all that pods have, and some of nobody.
#[must_use]
pub fn addresses() -> Vec<IpAddr> {
    let pods = (10..15).chain(20..24).flat_map(|n| [format!("10.0.0.{n}"), format!("fd00::{n}")]);
    let others = ["10.0.0.1", "10.1.2.3", "192.0.2.1", "203.0.113.7", "fd00:1::1", "2001:db8::1"].map(str::to_owned);
    pods.chain(others).map(|text| text.parse().expect("an address")).collect()
}

impl Objects {
    /// For the oracle.
    #[must_use]
    pub fn world(&self) -> World {
        World {
            namespaces: self.of("Namespace"),
            pods: self.of("Pod"),
            policies: self.of("NetworkPolicy"),
            endpoints: self.added.iter().map(|pod| self.endpoint(*pod)).collect(),
        }
    }

    /// The endpoint that is in a pod's place when it is added.
    #[must_use]
    pub fn endpoint(&self, pod: u32) -> Endpoint {
        let named = !self.unnamed.contains(&pod);
        let uid = self.uids.get(&pod).map(|uid| (*uid).to_owned());
        Endpoint { pod: named.then(|| pod_key(pod)), uid, addresses: local_addresses(pod).to_vec() }
    }

    /// Pods that the runtime has added here.
    #[must_use]
    pub const fn added(&self) -> &BTreeSet<u32> {
        &self.added
    }

    /// What a list of the objects of `now` tells who believes these: what there is, and what is gone.
    #[must_use]
    pub fn relist(&self, now: &Self) -> Vec<Happening> {
        let gone = self.objects.keys().filter(|key| !now.objects.contains_key(*key));
        let kinds = ["Namespace", "Pod", "NetworkPolicy"];
        let gone = gone.filter_map(|(kind, namespace, name)| {
            let kind = kinds.into_iter().find(|of| of == kind)?;
            Some(Happening::Gone(kind, namespace.clone(), name.clone()))
        });
        gone.chain(now.objects.values().cloned().map(Happening::Is)).collect()
    }

    fn of<T: DeserializeOwned>(&self, kind: &str) -> Vec<T> {
        let those = self.objects.iter().filter(|(key, _)| key.0 == kind);
        those.map(|(_, object)| serde_json::from_value(object.clone()).expect("an object of its kind")).collect()
    }

    /// Makes it happen.
    pub fn apply(&mut self, happening: &Happening) {
        match happening {
            Happening::Is(object) => {
                let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
                let key = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
                self.objects.insert(key, object.clone());
            }
            Happening::Gone(kind, namespace, name) => {
                self.objects.remove(&((*kind).to_owned(), namespace.clone(), name.clone()));
            }
            Happening::Added(pod, uid) => {
                self.added.insert(*pod);
                self.unnamed.remove(pod);
                self.uids.remove(pod);
                self.uids.extend(uid.map(|uid| (*pod, uid)));
            }
            Happening::AddedUnnamed(pod) => {
                self.added.insert(*pod);
                self.unnamed.insert(*pod);
                self.uids.remove(pod);
            }
            Happening::Deleted(pod) => {
                self.added.remove(pod);
            }
        }
    }
}

/// A cluster that comes to be, in any order, and then changes. Most of it is there in the end, so that packets pass as well as not.
pub fn story() -> impl Strategy<Value = Vec<Happening>> {
    fn most<S: Strategy<Value = Happening>>(
        weight: f64,
        all: impl IntoIterator<Item = S>,
    ) -> impl Strategy<Value = Vec<Happening>> {
        let each: Vec<_> = all.into_iter().map(|one| prop::option::weighted(weight, one)).collect();
        each.prop_map(|some| some.into_iter().flatten().collect())
    }
    let opening = (
        most(0.9, NAMESPACES.map(namespace_of)),
        most(0.85, (0..LOCALS).map(pod_of)),
        most(0.4, (LOCALS..PODS).map(pod_of)),
        prop::collection::vec(policy(), 1..5),
        most(0.75, (0..LOCALS).map(added_of)),
    );
    let opening = opening.prop_map(|(a, b, c, d, e)| [a, b, c, d, e].concat()).prop_shuffle();
    (opening, prop::collection::vec(happening(), 1..8)).prop_map(|(opening, then)| [opening, then].concat())
}

/// One change of a cluster that is there.
pub fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => namespace(),
        4 => pod(),
        5 => policy(),
        1 => select(&NAMESPACES[..]).prop_map(|n| Happening::Gone("Namespace", String::new(), n.to_owned())),
        1 => (0..PODS).prop_map(|pod| Happening::Gone("Pod", pod_key(pod).0, pod_key(pod).1)),
        2 => (select(&NAMESPACES[..]), 0..3_u32)
            .prop_map(|(n, i)| Happening::Gone("NetworkPolicy", n.to_owned(), format!("np{i}"))),
        1 => added(),
        1 => (0..LOCALS).prop_map(Happening::Deleted),
    ]
}

fn added() -> impl Strategy<Value = Happening> {
    (0..LOCALS).prop_flat_map(added_of)
}

fn added_of(pod: u32) -> impl Strategy<Value = Happening> {
    prop_oneof![9 => uid().prop_map(move |uid| Happening::Added(pod, uid)), 1 => Just(Happening::AddedUnnamed(pod))]
}

/// Of a pod, as its object or the runtime says it: mostly that of the one that is there, at times that of the one before it.
fn uid() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![8 => Just(Some("now")), 1 => Just(Some("before")), 1 => Just(None)]
}

fn labels() -> impl Strategy<Value = Value> {
    let value = || prop::option::weighted(0.8, select(&["x", "y"][..]));
    (value(), value()).prop_map(|(app, tier)| {
        let pairs =
            [("app", app), ("tier", tier)].into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?))));
        Value::Object(pairs.collect())
    })
}

fn namespace() -> impl Strategy<Value = Happening> {
    select(&NAMESPACES[..]).prop_flat_map(namespace_of)
}

fn namespace_of(name: &'static str) -> impl Strategy<Value = Happening> {
    labels().prop_map(move |mut labels| {
        // As the apiserver does.
        labels["kubernetes.io/metadata.name"] = json!(name);
        Happening::Is(json!({"kind": "Namespace", "metadata": {"name": name, "labels": labels}}))
    })
}

/// Ports of a pod's containers.
fn container_ports() -> impl Strategy<Value = Vec<Value>> {
    let port = (select(&["http", "dns"][..]), select(&[80, 8080, 53][..]), prop::option::of(protocol()));
    let port =
        port.prop_map(|(name, port, protocol)| json!({"name": name, "containerPort": port, "protocol": protocol}));
    prop::collection::vec(port, 0..3)
}

/// Which of a pod's containers name ports: an init container's count if it goes on running.
fn containers() -> impl Strategy<Value = Value> {
    let init = prop_oneof![
        4 => Just(None),
        1 => (container_ports(), prop::option::of(Just("Always"))).prop_map(Some),
    ];
    (container_ports(), init).prop_map(|(ports, init)| {
        let init = init.map(|(ports, restart)| json!([{"name": "i", "restartPolicy": restart, "ports": ports}]));
        json!({"containers": [{"name": "c", "ports": ports}], "initContainers": init})
    })
}

/// How a status tells addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Both,
    /// Of one family alone.
    V4,
    V6,
    /// By the older field.
    One,
    /// Not yet.
    None,
}

fn pod() -> impl Strategy<Value = Happening> {
    (0..PODS).prop_flat_map(pod_of)
}

fn pod_of(pod: u32) -> impl Strategy<Value = Happening> {
    let phases = &["Pending", "Running", "Running", "Running", "Running", "Succeeded", "Failed"][..];
    let phase = prop::option::of(select(phases));
    let told = prop_oneof![
        6 => Just(Told::Both), 1 => Just(Told::V4), 1 => Just(Told::V6), 1 => Just(Told::One), 1 => Just(Told::None),
    ];
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.2), prop::bool::weighted(0.1));
    (labels(), uid(), containers(), phase, 0..4_u32, 0..3_u32, told, flags).prop_map(
        move |(labels, uid, mut spec, phase, address, created, told, (host, other, ending))| {
            let (namespace, name) = pod_key(pod);
            let here = pod < LOCALS;
            // One that is not here may share an address with another for a while, or claim one that was given anew here. In place of one that
            // is here the pod that had its name before may be told, for the most part at its end.
            let [v4, v6] = match (here, other) {
                (true, false) => local_addresses(pod).map(|address| address.to_string()),
                (false, true) => local_addresses(address).map(|address| address.to_string()),
                _ => [format!("10.0.0.{}", 20 + address), format!("fd00::{}", 20 + address)],
            };
            let phase = if here && other && created > 0 { Some("Succeeded") } else { phase };
            let ips = |ips: &[&String]| -> Vec<Value> { ips.iter().map(|ip| json!({"ip": ip})).collect() };
            let status = match told {
                Told::Both => json!({"phase": phase, "podIP": v4, "podIPs": ips(&[&v4, &v6])}),
                Told::V4 => json!({"phase": phase, "podIP": v4, "podIPs": ips(&[&v4])}),
                Told::V6 => json!({"phase": phase, "podIP": v6, "podIPs": ips(&[&v6])}),
                Told::One => json!({"phase": phase, "podIP": v4}),
                Told::None => json!({"phase": phase}),
            };
            spec["nodeName"] = json!(if here { NODE } else { "there" });
            spec["hostNetwork"] = json!(host);
            let ending = ending.then_some("2026-01-01T00:00:09Z");
            Happening::Is(json!({
                "kind": "Pod",
                "metadata": {"namespace": namespace, "name": name, "uid": uid, "labels": labels, "deletionTimestamp": ending,
                             "creationTimestamp": format!("2026-01-01T00:00:0{created}Z")},
                "spec": spec,
                "status": status,
            }))
        },
    )
}

fn protocol() -> impl Strategy<Value = &'static str> {
    select(&["TCP", "UDP", "SCTP"][..])
}

fn selector() -> impl Strategy<Value = Value> {
    let key = || select(&["app", "tier"][..]);
    let values = || prop::collection::btree_set(select(&["x", "y", "z"][..]), 1..3);
    let expression = prop_oneof![
        (key(), values()).prop_map(|(key, values)| json!({"key": key, "operator": "In", "values": values})),
        (key(), values()).prop_map(|(key, values)| json!({"key": key, "operator": "NotIn", "values": values})),
        key().prop_map(|key| json!({"key": key, "operator": "Exists"})),
        key().prop_map(|key| json!({"key": key, "operator": "DoesNotExist"})),
    ];
    let equal = || (key(), select(&["x", "y"][..]));
    let expressions = prop::collection::vec(expression, 1..3);
    prop_oneof![
        2 => Just(json!({})),
        3 => equal().prop_map(|(key, value)| json!({"matchLabels": {key: value}})),
        2 => expressions.clone().prop_map(|list| json!({"matchExpressions": list})),
        1 => (equal(), expressions).prop_map(|((key, value), list)| json!({"matchLabels": {key: value}, "matchExpressions": list})),
        1 => select(&NAMESPACES[..]).prop_map(|n| json!({"matchLabels": {"kubernetes.io/metadata.name": n}})),
    ]
}

fn block() -> impl Strategy<Value = Value> {
    let blocks = [
        ("0.0.0.0/0", &["10.0.0.0/8", "203.0.113.0/24"][..]),
        ("10.0.0.0/8", &["10.0.0.0/24", "10.0.0.12/32", "10.0.0.20/30"][..]),
        ("10.0.0.0/24", &["10.0.0.10/31", "10.0.0.16/28"][..]),
        ("10.0.0.12/32", &[][..]),
        ("::/0", &["fd00::/16"][..]),
        ("fd00::/64", &["fd00::10/124", "fd00::20/128"][..]),
        ("203.0.113.0/24", &[][..]),
        // Bits of the host count for nothing.
        ("10.0.0.77/24", &["10.0.0.21/30", "10.0.0.12/32"][..]),
    ];
    select(blocks.to_vec()).prop_flat_map(|(cidr, parts)| {
        prop::sample::subsequence(parts.to_vec(), 0..=parts.len().min(2))
            .prop_map(move |except| json!({"ipBlock": {"cidr": cidr, "except": except}}))
    })
}

/// What the API would refuse: it speaks of nobody.
fn refused_peer() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"ipBlock": {"cidr": "10.0.0.0/24", "except": ["10.1.0.0/24"]}}),
        json!({"ipBlock": {"cidr": "10.0.0.0/24", "except": ["10.0.0.0/16"]}}),
        json!({"ipBlock": {"cidr": "10.0.0.0/24", "except": ["fd00::/64"]}}),
        json!({"ipBlock": {"cidr": "10.0.0.0/33"}}),
        json!({"ipBlock": {"cidr": "10.0.0.12"}}),
        json!({"ipBlock": {"cidr": "::ffff:10.0.0.0/104"}}),
        json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}),
        json!({"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": []}]}}),
        json!({"podSelector": {"matchExpressions": [{"key": "app", "operator": "Is", "values": ["x"]}]}}),
        json!({}),
    ])
}

/// What the API would refuse: it covers nothing.
fn refused_port() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"port": 0}),
        json!({"port": 65536}),
        json!({"port": 443, "endPort": 80}),
        json!({"port": 80, "endPort": 65536}),
        json!({"port": "http", "endPort": 8080}),
        json!({"endPort": 8080}),
        json!({"protocol": "ICMP"}),
    ])
}

fn peer() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => refused_peer(),
        4 => selector().prop_map(|pods| json!({"podSelector": pods})),
        3 => selector().prop_map(|namespaces| json!({"namespaceSelector": namespaces})),
        3 => (selector(), selector()).prop_map(|(n, p)| json!({"namespaceSelector": n, "podSelector": p})),
        4 => block(),
    ]
}

fn port() -> impl Strategy<Value = Value> {
    let protocol = || prop::option::of(protocol());
    prop_oneof![
        1 => refused_port(),
        3 => protocol().prop_map(|p| json!({"protocol": p})),
        5 => (protocol(), select(&[80, 53, 443, 8080, 65535, 1][..])).prop_map(|(p, n)| json!({"protocol": p, "port": n})),
        3 => (protocol(), select(&["http", "dns", "none"][..])).prop_map(|(p, n)| json!({"protocol": p, "port": n})),
        3 => (protocol(), select(&[(1, 65535), (80, 81), (79, 8080), (443, 443)][..]))
            .prop_map(|(p, (first, last))| json!({"protocol": p, "port": first, "endPort": last})),
    ]
}

fn rules(field: &'static str) -> impl Strategy<Value = Value> {
    // The same twice is the same once.
    let twice = |(mut peers, twice): (Vec<Value>, bool)| {
        peers.extend(twice.then(|| peers.first().cloned()).flatten());
        Some(peers)
    };
    let some = (prop::collection::vec(peer(), 1..4), prop::bool::weighted(0.1)).prop_map(twice);
    let peers = prop_oneof![1 => Just(None), 1 => Just(Some(vec![])), 5 => some];
    let ports =
        prop_oneof![2 => Just(None), 1 => Just(Some(vec![])), 4 => prop::collection::vec(port(), 1..4).prop_map(Some)];
    let rule = (peers, ports).prop_map(move |(peers, ports)| json!({field: peers, "ports": ports}));
    prop::option::weighted(0.85, prop::collection::vec(rule, 0..4)).prop_map(|rules| json!(rules))
}

fn policy() -> impl Strategy<Value = Happening> {
    let types =
        select(vec![json!(null), json!([]), json!(["Ingress"]), json!(["Egress"]), json!(["Ingress", "Egress"])]);
    (select(&NAMESPACES[..]), 0..3_u32, prop::option::of(selector()), types, rules("from"), rules("to")).prop_map(
        |(namespace, i, pods, types, ingress, egress)| {
            Happening::Is(json!({
                "kind": "NetworkPolicy",
                "metadata": {"namespace": namespace, "name": format!("np{i}")},
                "spec": {"podSelector": pods, "policyTypes": types, "ingress": ingress, "egress": egress},
            }))
        },
    )
}

#[cfg(test)]
mod coverage;
