//! What costs rows and numbers, and what does not.

use osmia_maps::layout::policy::V_ALLOW;
use serde_json::{Value, json};

use super::super::*;
use crate::{
    model::{Event, Name},
    source::{folder::manifest, object::Object},
};

#[derive(Default)]
pub(super) struct Lab {
    pub(super) cluster: Cluster,
    pub(super) policies: Policies,
}

impl Lab {
    pub(super) fn is(&mut self, object: Value) -> Change {
        let read = manifest::parse(&object.to_string()).unwrap();
        let mut touched = Vec::new();
        for object in read {
            let event = match object {
                Object::Namespace(name, namespace) => {
                    touched.push(Touched::Namespace(name.clone()));
                    Event::Namespace(name, namespace)
                }
                Object::Pod(namespace, name, pod) => {
                    let key = Name::from((namespace, name));
                    touched.push(Touched::Pod(Name::clone(&key)));
                    Event::Pod(key, pod)
                }
                Object::Policy(namespace, name, policy) => {
                    let key = Name::from((namespace, name));
                    touched.push(Touched::Policy(Name::clone(&key)));
                    Event::Policy(key, policy)
                }
                Object::Node(name, node) => Event::Node(name, node),
            };
            self.cluster.apply(event);
        }
        self.policies.update(&self.cluster, touched)
    }

    pub(super) fn pod(&mut self, name: &str, ip: &str, labels: Value) -> Change {
        self.is(json!({"kind": "Pod", "metadata": {"namespace": "a", "name": name, "labels": labels},
                       "status": {"podIPs": [{"ip": ip}]}}))
    }

    pub(super) fn endpoint(&mut self, slot: u32, name: &str, ip: &str) -> Change {
        let local = Local { pod: Some(Name::new("a", name)), addresses: vec![ip.parse().unwrap()], ..Local::default() };
        self.policies.update(&self.cluster, [Touched::Endpoint(slot, Some(local))])
    }

    pub(super) fn policy(&mut self, name: &str, spec: Value) -> Change {
        self.is(json!({"kind": "NetworkPolicy", "metadata": {"namespace": "a", "name": name}, "spec": spec}))
    }
}

fn from_app(app: &str) -> Value {
    json!({"ingress": [{"from": [{"podSelector": {"matchLabels": {"app": app}}}]}]})
}

#[test]
fn replicas_share_a_rule_set_and_peers_alike_a_class() {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    for n in 1..=50 {
        lab.pod(&format!("web{n}"), &format!("10.0.0.{n}"), json!({"app": "web"}));
        lab.endpoint(n, &format!("web{n}"), &format!("10.0.0.{n}"));
        lab.pod(&format!("db{n}"), &format!("10.0.1.{n}"), json!({"app": "db"}));
    }
    let change =
        lab.policy("p", json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": from_app("db")["ingress"]}));
    let sets: BTreeSet<Rules> = change.endpoints.values().copied().collect();
    assert_eq!((change.endpoints.len(), sets.len()), (50, 1));
    let classes: BTreeSet<Option<u32>> = change.peers.values().copied().collect();
    assert_eq!((change.peers.len(), classes.len()), (50, 1));
    assert_eq!(change.verdicts.len(), 2, "what isolates, and the head of the one class");
}

#[test]
fn a_pod_that_no_rule_here_speaks_of_costs_nothing() {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    lab.pod("web", "10.0.0.1", json!({"app": "web"}));
    lab.endpoint(1, "web", "10.0.0.1");
    lab.policy("p", from_app("db"));
    assert_eq!(lab.pod("other", "10.0.1.1", json!({"app": "other"})), Change::default());
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "b"}}));
    let elsewhere = lab.is(json!({"kind": "NetworkPolicy", "metadata": {"namespace": "b", "name": "p"}, "spec": {}}));
    assert_eq!(elsewhere, Change::default());
}

#[test]
fn another_replica_of_a_peer_touches_one_address_alone() {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    lab.pod("web", "10.0.0.1", json!({"app": "web"}));
    lab.endpoint(1, "web", "10.0.0.1");
    lab.policy("p", from_app("db"));
    lab.pod("db1", "10.0.1.1", json!({"app": "db"}));
    let second = lab.pod("db2", "10.0.1.2", json!({"app": "db"}));
    assert_eq!((second.verdicts.len(), second.peers.len(), second.old_verdicts.len()), (0, 1, 0));
    assert_eq!(second.epochs, BTreeSet::from([1]), "what was refused may pass now, and what passed may not");
    assert!(second.closing.is_empty(), "one pointer needs no shutting");
}

#[test]
fn a_peer_that_changes_its_address_or_label_is_one_by_what_it_has_now_alone() {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    lab.pod("web", "10.0.0.1", json!({"app": "web"}));
    lab.endpoint(1, "web", "10.0.0.1");
    lab.policy("p", from_app("db"));
    let of = |change: Change| -> Vec<(String, bool)> {
        change.peers.into_iter().map(|(address, class)| (address.to_string(), class.is_some())).collect()
    };
    let peer = |address: &str, is: bool| (address.to_owned(), is);
    assert_eq!(of(lab.pod("db", "10.0.1.1", json!({"app": "db"}))), [peer("10.0.1.1", true)]);
    let moved = lab.pod("db", "10.0.1.2", json!({"app": "db"}));
    assert_eq!(of(moved), [peer("10.0.1.1", false), peer("10.0.1.2", true)]);
    assert_eq!(of(lab.pod("db", "10.0.1.2", json!({"app": "other"}))), [peer("10.0.1.2", false)]);
    assert_eq!(of(lab.pod("db", "10.0.1.2", json!({"app": "db"}))), [peer("10.0.1.2", true)]);
}

#[test]
fn an_endpoint_of_this_node_has_its_address_whatever_the_source_says() {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    lab.pod("web", "10.0.0.1", json!({"app": "web"}));
    lab.endpoint(1, "web", "10.0.0.1");
    lab.policy("p", from_app("db"));
    // The delete of the pod that had 10.0.0.2 before is late, and the status of the one that has it now too.
    lab.pod("old", "10.0.0.2", json!({"app": "db"}));
    lab.is(json!({"kind": "Pod", "metadata": {"namespace": "a", "name": "new", "labels": {"app": "x"}}}));
    let change = lab.endpoint(2, "new", "10.0.0.2");
    assert_eq!(change.peers.get(&"10.0.0.2".parse().unwrap()), Some(&None), "it is no peer any more");
}

#[test]
fn an_endpoint_that_no_policy_is_asked_about_has_no_rights_of_who_had_its_address() {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    lab.pod("web", "10.0.0.1", json!({"app": "web"}));
    lab.endpoint(1, "web", "10.0.0.1");
    lab.policy("p", from_app("db"));
    lab.pod("old", "10.0.0.2", json!({"app": "db"}));
    let unmanaged = Local { pod: None, addresses: vec!["10.0.0.2".parse().unwrap()], ..Local::default() };
    let change = lab.policies.update(&lab.cluster, [Touched::Endpoint(2, Some(unmanaged))]);
    assert_eq!(change.peers.get(&"10.0.0.2".parse().unwrap()), Some(&None), "it is no peer: {change:?}");
    // Nor does the pod of its address come back by an event.
    assert_eq!(lab.pod("old", "10.0.0.2", json!({"app": "db", "more": "x"})), Change::default());
}

#[test]
fn an_object_without_network_is_not_that_of_an_endpoint() {
    let of = |phase: &str, host: bool, labels: Value| {
        json!({"kind": "Pod", "metadata": {"namespace": "a", "name": "web", "labels": labels},
               "spec": {"hostNetwork": host}, "status": {"phase": phase, "podIPs": [{"ip": "10.0.0.9"}]}})
    };
    for (phase, host) in [("Succeeded", false), ("Failed", false), ("Running", true)] {
        let mut lab = Lab::default();
        lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
        lab.policy("p", json!({"podSelector": {"matchLabels": {"app": "web"}}}));
        // Its predecessor of the same name, which no policy selects.
        lab.is(of(phase, host, json!({"app": "other"})));
        lab.endpoint(1, "web", "10.0.0.1");
        let Rules { egress, ingress } = lab.policies.rules(1);
        assert!(egress != 0 && ingress != 0, "{phase}: open by the object of another");
        lab.is(of("Running", false, json!({"app": "other"})));
        assert_eq!(lab.policies.rules(1), Rules::default(), "{phase}: its own object says that nothing selects it");
        lab.is(of("Running", false, json!({"app": "web"})));
        let Rules { egress, ingress } = lab.policies.rules(1);
        assert!(egress == 0 && ingress != 0, "{phase}: its own object says that a policy selects it");
    }
}

#[test]
fn an_object_with_another_uid_is_not_that_of_an_endpoint() {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    lab.pod("db", "10.0.0.2", json!({"app": "db"}));
    lab.endpoint(2, "db", "10.0.0.2");
    let from = json!([{"podSelector": {"matchLabels": {"app": "web"}}}]);
    lab.policy("p", json!({"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"from": from}]}));
    let of = |uid: &str| json!({"kind": "Pod", "metadata": {"namespace": "a", "name": "web", "uid": uid, "labels": {"app": "web"}}});
    let address = "10.0.0.1".parse().unwrap();
    let endpoint = |uid: &str| {
        let (pod, uid) = (Some(Name::new("a", "web")), uid.into());
        Touched::Endpoint(1, Some(Local { pod, uid, addresses: vec![address] }))
    };
    let isolated = |lab: &Lab| {
        let Rules { egress, ingress } = lab.policies.rules(1);
        (egress != 0, ingress != 0)
    };
    lab.is(of("before"));
    // A runtime that says no uid is believed by the name.
    for uid in ["before", ""] {
        let change = lab.policies.update(&lab.cluster, [endpoint(uid)]);
        assert_eq!(isolated(&lab), (false, false), "no policy selects it");
        assert!(uid.is_empty() || matches!(change.peers.get(&address), Some(Some(_))), "a peer: {change:?}");
    }
    let change = lab.policies.update(&lab.cluster, [endpoint("next")]);
    assert_eq!(isolated(&lab), (true, true), "open by the object of the one before");
    assert_eq!(change.peers.get(&address), Some(&None), "it has its rights as a peer: {change:?}");
    let change = lab.is(of("next"));
    assert_eq!(isolated(&lab), (false, false));
    assert!(matches!(change.peers.get(&address), Some(Some(_))), "{change:?}");
}

#[test]
fn a_pod_that_nobody_told_yet_is_isolated_where_a_policy_may_select_it() {
    let mut lab = Lab::default();
    let shut = |lab: &Lab, slot| {
        let rules = lab.policies.rules(slot);
        (rules.egress != 0, rules.ingress != 0)
    };
    lab.endpoint(1, "web", "10.0.0.1");
    assert_eq!(shut(&lab, 1), (true, true), "the namespace is unknown");
    let lost = Local { pod: Some(Name::new("", "")), addresses: vec!["10.0.0.9".parse().unwrap()], ..Local::default() };
    lab.policies.update(&lab.cluster, [Touched::Endpoint(2, Some(lost))]);
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    assert_eq!(shut(&lab, 1), (false, false), "it has no policy");
    assert_eq!(shut(&lab, 2), (true, true), "nobody can tell whose it is");
    lab.policy("p", json!({"podSelector": {"matchLabels": {"app": "db"}}}));
    assert_eq!(shut(&lab, 1), (true, true), "it has one, which may select it or not");
    lab.pod("web", "10.0.0.1", json!({"app": "web"}));
    assert_eq!(shut(&lab, 1), (false, false), "it does not");
}

#[test]
fn a_cookie_is_of_the_rule_as_it_was_written() {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    lab.pod("web", "10.0.0.1", json!({"app": "web"}));
    lab.endpoint(1, "web", "10.0.0.1");
    lab.policy("p", from_app("db"));
    let rule = |lab: &Lab| {
        let cookies = lab.policies.cookies();
        cookies.filter(|(_, c)| matches!(c, Cookie::Rule { .. })).map(|(number, _)| number).collect::<Vec<_>>()
    };
    let first = rule(&lab);
    lab.policy("p", from_app("web"));
    let second = rule(&lab);
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second);
    lab.policy("p", from_app("db"));
    assert!(!first.contains(&rule(&lab)[0]), "never given twice");
}

#[test]
fn what_the_api_would_refuse_allows_nothing_and_the_rest_counts() {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    lab.policy(
        "p",
        json!({"ingress": [
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/24", "except": ["10.1.0.0/24"]}}, {"podSelector": {}}]},
            {"ports": [{"port": 90, "endPort": 80}]},
            {"from": [{"ipBlock": {"cidr": "nonsense"}}]},
        ]}),
    );
    let policy = &lab.cluster.policies[&Name::new("a", "p")];
    assert_eq!(policy.refused.len(), 3);
    for place in ["spec.ingress[0].from[0]", "spec.ingress[1].ports[0]", "spec.ingress[2].from[0]"] {
        assert!(policy.refused.iter().any(|why| why.starts_with(place)), "{place}: {:?}", policy.refused);
    }
    lab.pod("web", "10.0.0.1", json!({}));
    lab.pod("db", "10.0.0.2", json!({}));
    let change = lab.endpoint(1, "web", "10.0.0.1");
    let allowed = change.verdicts.values().filter(|row| row.flags & V_ALLOW != 0).count();
    assert_eq!(allowed, 1, "the pods of the namespace alone: {:?}", change.verdicts);
}
