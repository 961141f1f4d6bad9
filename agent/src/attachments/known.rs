//! What the source says of this node's pods, against the attachments: each difference, said at start with what is done about it.
//!
//! Invariant: pure, and nothing here ends an attachment. A source may be late, a pod's link is not: what has one goes on.

use std::{collections::BTreeMap, net::IpAddr};

use osmia_cni::protocol::PodRef;
use osmia_maps::catalogue::PodName;

use super::record::Record;
use crate::model::{Name, PodObject};

/// Pods.
pub type Pods = BTreeMap<Name, Box<PodObject>>;

/// The pods of endpoints by slot, as the catalogue of policies has them; `None`: the runtime named none.
pub type Names = BTreeMap<u32, Option<PodName>>;

/// What the two say differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// An attachment whose record was lost has the address of exactly one pod of this node: it is that pod's.
    Named {
        /// Its link.
        host_link: String,
        /// The pod.
        pod: PodRef,
    },
    /// The source knows an attachment's pod otherwise.
    Otherwise {
        /// The attachment.
        name: String,
        /// What the source says.
        said: String,
    },
    /// A pod of this node that has addresses by the source and no attachment here.
    Unknown {
        /// Namespace and name.
        pod: String,
    },
}

/// All differences. Records without a pod (a runtime that tells none) are nobody's by the source.
#[must_use]
pub fn compare(records: &BTreeMap<String, Record>, pods: &Pods, node: &str) -> Vec<Difference> {
    let mut found = Vec::new();
    for record in records.values().filter(|record| record.ifindex().is_some()) {
        if record.unknown {
            found.extend(
                owner(record, pods, node).map(|pod| Difference::Named { host_link: record.host_link.clone(), pod }),
            );
        } else if let Some(said) = otherwise(record, records, pods, node) {
            found.push(Difference::Otherwise { name: record.name(), said });
        }
    }
    for (key, pod) in of_node(pods, node) {
        let (namespace, name) = (key.namespace(), key.name());
        let known = records.values().any(|record| {
            let named = record.pod.namespace == namespace && record.pod.name == name;
            named || record.addresses.iter().any(|ip| pod.ips.contains(ip))
        });
        // One without addresses is about to come; its ADD is what makes it known.
        if !known && !pod.ips.is_empty() {
            found.push(Difference::Unknown { pod: format!("{namespace}/{name}") });
        }
    }
    found
}

/// Pods that have, or will have, an attachment on this node.
fn of_node<'a>(pods: &'a Pods, node: &str) -> impl Iterator<Item = (&'a Name, &'a PodObject)> {
    let pods = pods.iter().map(|(key, pod)| (key, &**pod));
    pods.filter(move |(_, pod)| *pod.node == *node && !pod.host_network && !pod.completed)
}

fn owner(record: &Record, pods: &Pods, node: &str) -> Option<PodRef> {
    let mut owners = of_node(pods, node).filter(|(_, pod)| record.addresses.iter().any(|ip| pod.ips.contains(ip)));
    let (key, pod) = owners.next()?;
    let of = || PodRef { namespace: key.namespace().into(), name: key.name().into(), uid: pod.uid.to_string() };
    owners.next().is_none().then(of)
}

fn otherwise(record: &Record, records: &BTreeMap<String, Record>, pods: &Pods, node: &str) -> Option<String> {
    let PodRef { namespace, name, uid } = &record.pod;
    if name.is_empty() {
        return None;
    }
    let Some(pod) = pods.get(&Name::new(namespace, name)) else {
        return Some(format!("pod {namespace}/{name} is not there (any more)"));
    };
    if !uid.is_empty() && !pod.uid.is_empty() && pod.uid != *uid {
        return Some(format!("pod {namespace}/{name} has uid {}, not {uid}", pod.uid));
    }
    if *pod.node != *node {
        return Some(format!("pod {namespace}/{name} is on node {:?}", pod.node));
    }
    if pod.completed {
        return Some(format!("pod {namespace}/{name} has ended"));
    }
    // A pod may have several attachments; the source tells the first one's addresses.
    let same_pod = |other: &Record| (&other.pod.namespace, &other.pod.name) == (namespace, name);
    let has = |ip: &IpAddr| records.values().any(|other| same_pod(other) && other.addresses.contains(ip));
    let strange = pod.ips.iter().find(|ip| !has(ip));
    strange.map(|ip| format!("pod {namespace}/{name} has {ip}, which no attachment of it has"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{attachments::record::Phase, model::Uid};

    fn record(id: &str, ip: &str, phase: Phase) -> Record {
        Record { addresses: vec![ip.parse().unwrap()], ..Record::example(id, phase) }
    }

    fn pod(ips: &[&str]) -> PodObject {
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        PodObject { uid: "u1".into(), node: "n".into(), ips, ..PodObject::default() }
    }

    fn found(record: &Record, pods: &[(&str, PodObject)]) -> Vec<Difference> {
        let pods = pods.iter().map(|(name, pod)| (Name::new("ns", name), pod.clone().into())).collect();
        compare(&[(record.host_link.clone(), record.clone())].into(), &pods, "n")
    }

    const ADDED: Phase = Phase::Added { ifindex: 7 };

    #[test]
    fn what_agrees_or_is_not_there_yet_is_no_difference() {
        let a = record("a", "10.0.0.1", ADDED);
        // Of this node without addresses yet, on the host's network, ended, of another node.
        let others = [
            ("new", pod(&[])),
            ("host", PodObject { host_network: true, ..pod(&["192.0.2.1"]) }),
            ("done", PodObject { completed: true, ..pod(&["10.0.0.9"]) }),
            ("far", PodObject { node: "m".into(), ..pod(&["10.9.0.1"]) }),
        ];
        for own in [pod(&["10.0.0.1"]), pod(&[]), PodObject { uid: Uid::default(), ..pod(&[]) }] {
            assert_eq!(found(&a, &[&others[..], &[("a", own)]].concat()), []);
        }
        // An ADD that is not complete is undone elsewhere.
        assert_eq!(found(&record("a", "10.0.0.1", Phase::Adding), &[]), []);
    }

    #[test]
    fn a_pod_that_the_source_knows_otherwise_is_said() {
        let a = record("a", "10.0.0.1", ADDED);
        for (pods, part) in [
            (vec![], "is not there"),
            (vec![("a", PodObject { uid: "u2".into(), ..pod(&[]) })], "has uid u2, not u1"),
            (vec![("a", PodObject { node: "m".into(), ..pod(&[]) })], "is on node \"m\""),
            (vec![("a", PodObject { completed: true, ..pod(&[]) })], "has ended"),
            (vec![("a", pod(&["10.0.0.2"]))], "has 10.0.0.2"),
        ] {
            let found = found(&a, &pods);
            assert!(
                matches!(&found[..], [Difference::Otherwise { said, .. }] if said.contains(part)),
                "{part}: {found:?}"
            );
        }
    }

    #[test]
    fn a_pod_with_addresses_and_no_attachment_is_said() {
        let pods = [("a", pod(&["10.0.0.1"])), ("b", pod(&["10.0.0.2"]))];
        let found = found(&record("a", "10.0.0.1", ADDED), &pods);
        assert_eq!(found, [Difference::Unknown { pod: "ns/b".into() }]);
    }

    #[test]
    fn an_attachment_without_record_is_named_by_its_address() {
        let lost = Record { key: None, pod: PodRef::default(), unknown: true, ..record("a", "10.0.0.1", ADDED) };
        let own = PodRef { namespace: "ns".into(), name: "a".into(), uid: "u1".into() };
        let named = Difference::Named { host_link: lost.host_link.clone(), pod: own };
        assert_eq!(found(&lost, &[("a", pod(&["10.0.0.1"]))]), [named]);
        // Two of one address: nobody knows whose it is.
        assert_eq!(found(&lost, &[("a", pod(&["10.0.0.1"])), ("b", pod(&["10.0.0.1"]))]), []);
    }
}
