//! Feeds say the same twice, and nothing that an apiserver could not say.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Event, Feed, Kind, Sizes, What};
use crate::manifest::NodeManifest;

const SIZES: Sizes = Sizes { nodes: 8, pods: 300, policies: 150, here: 9 };

fn feed(seed: u64) -> Feed {
    let own = NodeManifest { name: "n1".into(), addresses: Vec::new(), pod_cidrs: vec!["10.244.1.0/24".into()] };
    Feed::new(SIZES, seed, &own)
}

fn name(object: &Value) -> String {
    format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"])
}

fn addresses(pod: &Value) -> Vec<&str> {
    pod["status"]["podIPs"].as_array().into_iter().flatten().filter_map(|ip| ip["ip"].as_str()).collect()
}

#[test]
fn a_seed_says_the_same_again_and_another_does_not() {
    let said = |seed| {
        let mut feed = feed(seed);
        let first = feed.events();
        let then: Vec<Event> = (0..50).flat_map(|_| feed.churn()).collect();
        first.iter().chain(&then).map(Event::line).collect::<Vec<_>>()
    };
    assert_eq!(said(1), said(1));
    assert_ne!(said(1), said(2));
}

#[test]
fn what_changes_is_there_and_no_two_pods_have_an_address() {
    let mut feed = feed(1);
    let mut there: BTreeMap<(Kind, String), Value> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    let first = feed.events();
    let (start, churn) = (first.len(), (0..150).flat_map(|_| feed.churn()).collect::<Vec<_>>());
    for (index, Event { kind, what, object }) in first.into_iter().chain(churn).enumerate() {
        *counts.entry(kind).or_insert(0) += usize::from(index < start);
        let key = (kind, name(&object));
        assert_eq!(what == What::Added, !there.contains_key(&key), "{what:?} {key:?}");
        match what {
            What::Deleted => drop(there.remove(&key)),
            What::Added | What::Modified => drop(there.insert(key, object)),
        }
        let pods = || there.iter().filter(|((kind, _), _)| *kind == Kind::Pod);
        if index + 1 >= start && (index % 50 == 0) {
            let all: Vec<&str> = pods().flat_map(|(_, pod)| addresses(pod)).collect();
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        }
    }
    assert_eq!(counts, BTreeMap::from([(Kind::Node, 8), (Kind::Namespace, 10), (Kind::Policy, 150), (Kind::Pod, 300)]));
    let pods: Vec<&Value> = there.iter().filter(|((kind, _), _)| *kind == Kind::Pod).map(|(_, pod)| pod).collect();
    assert_eq!(pods.len(), SIZES.pods);
    let here: Vec<_> = pods.iter().filter(|pod| pod["spec"]["nodeName"] == "n1").collect();
    assert!(here.len() == SIZES.here && here.iter().all(|pod| addresses(pod).is_empty()));
    assert!(pods.iter().all(|pod| pod["spec"]["nodeName"] == "n1" || addresses(pod).len() == 2));
}

#[test]
fn a_probe_is_a_pod_here_and_one_that_its_policy_lets_in_and_churn_leaves_them_alone() {
    let mut feed = feed(1);
    assert!(feed.probes().len() >= 3);
    let mut kept = BTreeSet::new();
    for probe in feed.probes().to_vec() {
        let policy = feed.edit(probe.policy).object;
        let app = |pod: usize| feed.clone().relabel(pod).object["metadata"]["labels"]["app.kubernetes.io/name"].clone();
        let selects = |selector: &Value| selector["podSelector"]["matchLabels"]["app"].clone();
        assert_eq!(selects(&policy["spec"]), app(probe.here));
        assert_eq!(selects(&policy["spec"]["ingress"][0]["from"][0]), app(probe.peer));
        for pod in [probe.here, probe.peer] {
            assert_eq!(policy["metadata"]["namespace"], feed.pod(pod).namespace.as_str());
            kept.insert(format!("{:?}/{:?}", feed.pod(pod).namespace, feed.pod(pod).name));
        }
        kept.insert(name(&policy));
    }
    for event in (0..300).flat_map(|_| feed.churn()) {
        assert!(!kept.contains(&name(&event.object)), "{}", event.line());
    }
}
