//! The API's text, a case for each sentence that implementations have got wrong.

#![expect(clippy::unwrap_used, reason = "tests panic, for the backtrace")]

use std::net::IpAddr;

use osmia_oracle::{Direction, Endpoint, Protocol, Traffic, Verdict, World};
use serde_json::{Value, json};

/// Namespaces `a` (team=x) and `b` (team=y); pods `a/web` (app=web, 10.0.0.1), `a/db` (app=db, 10.0.0.2), `b/web` (app=web, 10.0.0.3), all
/// dual stack, `a/web` with port 8080 named http; and policies of namespace `a`.
fn world(specs: &[Value]) -> World {
    let namespace = |name: &str, team: &str| json!({"metadata": {"name": name, "labels": {"team": team, "kubernetes.io/metadata.name": name}}});
    let pod = |namespace: &str, name: &str, ip: u32| {
        json!({"metadata": {"namespace": namespace, "name": name, "labels": {"app": name}},
               "spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]},
               "status": {"phase": "Running", "podIPs": [{"ip": format!("10.0.0.{ip}")}, {"ip": format!("fd00::{ip}")}]}})
    };
    let policy =
        |(i, spec): (usize, &Value)| json!({"metadata": {"namespace": "a", "name": format!("p{i}")}, "spec": spec});
    let read = |value: Vec<Value>| serde_json::from_value(Value::Array(value)).unwrap();
    World {
        namespaces: serde_json::from_value(json!([namespace("a", "x"), namespace("b", "y")])).unwrap(),
        pods: serde_json::from_value(json!([pod("a", "web", 1), pod("a", "db", 2), pod("b", "web", 3)])).unwrap(),
        policies: read(specs.iter().enumerate().map(policy).collect()),
        endpoints: Vec::new(),
    }
}

fn tcp(port: u16) -> Traffic {
    Traffic { protocol: Protocol::Tcp, port }
}

fn ask(world: &World, direction: Direction, peer: &str, traffic: Traffic) -> Verdict {
    let pod = world.pods.iter().find(|pod| pod.metadata.name.as_deref() == Some("web")).unwrap();
    world.verdict(pod, direction, peer.parse::<IpAddr>().unwrap(), traffic)
}

fn ingress(spec: Value, peer: &str, traffic: Traffic) -> bool {
    ask(&world(&[spec]), Direction::Ingress, peer, traffic).passes()
}

fn egress(spec: Value, peer: &str, traffic: Traffic) -> bool {
    ask(&world(&[spec]), Direction::Egress, peer, traffic).passes()
}

#[test]
fn types_default_to_ingress_and_to_egress_only_with_rules() {
    let isolated = |spec: Value| {
        let world = world(&[spec]);
        [Direction::Ingress, Direction::Egress].map(|d| ask(&world, d, "192.0.2.1", tcp(80)) != Verdict::NotIsolated)
    };
    assert_eq!(isolated(json!({})), [true, false]);
    assert_eq!(isolated(json!({"egress": []})), [true, false]);
    assert_eq!(isolated(json!({"egress": [{}]})), [true, true], "a policy of egress alone isolates ingress too");
    assert_eq!(isolated(json!({"policyTypes": ["Egress"]})), [false, true]);
    assert_eq!(isolated(json!({"policyTypes": ["Egress"], "ingress": [{}]})), [false, true]);
    assert_eq!(isolated(json!({"podSelector": {"matchLabels": {"app": "other"}}})), [false, false]);
}

#[test]
fn an_empty_list_allows_nothing_and_an_empty_rule_everything() {
    for nothing in [json!({}), json!({"ingress": []})] {
        assert!(!ingress(nothing, "10.0.0.2", tcp(80)));
    }
    for everything in [json!({"ingress": [{}]}), json!({"ingress": [{"from": [], "ports": []}]})] {
        assert!(ingress(everything.clone(), "203.0.113.1", Traffic { protocol: Protocol::Other, port: 0 }));
        assert!(ingress(everything, "fd00::3", tcp(1)));
    }
}

#[test]
fn peers_are_alternatives_and_the_selectors_of_one_peer_are_not() {
    let from = |peers: Value| json!({"ingress": [{"from": peers}]});
    let b = json!({"matchLabels": {"team": "y"}});
    let db = json!({"matchLabels": {"app": "db"}});
    let both = from(json!([{"namespaceSelector": b, "podSelector": db}]));
    assert!(!ingress(both.clone(), "10.0.0.2", tcp(80)) && !ingress(both, "10.0.0.3", tcp(80)));
    let either = from(json!([{"namespaceSelector": b}, {"podSelector": db}]));
    assert!(ingress(either.clone(), "10.0.0.2", tcp(80)) && ingress(either, "10.0.0.3", tcp(80)));
    let own = from(json!([{"podSelector": {}}]));
    assert!(ingress(own.clone(), "10.0.0.2", tcp(80)) && !ingress(own, "10.0.0.3", tcp(80)));
    let pods = from(json!([{"namespaceSelector": {}}]));
    assert!(ingress(pods.clone(), "fd00::3", tcp(80)) && !ingress(pods, "203.0.113.1", tcp(80)));
}

#[test]
fn a_missing_key_is_not_in_any_set() {
    let from = |operator: &str, values: Value| json!({"ingress": [{"from": [{"podSelector": {"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}}]}]});
    let cases = [("In", json!(["db"]), true), ("NotIn", json!(["db"]), false), ("Exists", json!(null), true)];
    for (operator, values, is_db) in cases {
        assert_eq!(ingress(from(operator, values), "10.0.0.2", tcp(80)), is_db, "{operator}");
    }
    let other_key = json!({"ingress": [{"from": [{"podSelector": {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["y"]}]}}]}]});
    assert!(ingress(other_key, "10.0.0.2", tcp(80)));
}

#[test]
fn a_port_without_protocol_is_tcp_and_without_number_all() {
    let ports = |item: Value| json!({"ingress": [{"ports": [item]}]});
    let udp = Traffic { protocol: Protocol::Udp, port: 80 };
    assert!(
        ingress(ports(json!({"port": 80})), "10.0.0.2", tcp(80))
            && !ingress(ports(json!({"port": 80})), "10.0.0.2", udp)
    );
    assert!(ingress(ports(json!({"protocol": "UDP"})), "10.0.0.2", udp));
    assert!(!ingress(ports(json!({"protocol": "TCP"})), "10.0.0.2", Traffic { protocol: Protocol::Sctp, port: 80 }));
    let range = ports(json!({"port": 80, "endPort": 81}));
    let passes: Vec<bool> = (79..83).map(|port| ingress(range.clone(), "10.0.0.2", tcp(port))).collect();
    assert_eq!(passes, [false, true, true, false]);
}

#[test]
fn a_named_port_is_the_destination_pods() {
    let named = json!([{"port": "http"}]);
    let into = json!({"ingress": [{"ports": named}]});
    assert!(ingress(into.clone(), "203.0.113.1", tcp(8080)) && !ingress(into, "203.0.113.1", tcp(80)));
    let out = json!({"policyTypes": ["Egress"], "egress": [{"ports": named}]});
    assert!(egress(out.clone(), "10.0.0.3", tcp(8080)) && !egress(out, "203.0.113.1", tcp(8080)));
    let block =
        json!({"policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": named}]});
    assert!(!egress(block, "10.0.0.3", tcp(8080)), "a range has no named ports");
}

#[test]
fn an_exception_takes_from_its_own_block_only() {
    let block = |cidr: &str, except: Value| json!({"ipBlock": {"cidr": cidr, "except": except}});
    let one = json!({"ingress": [{"from": [block("10.0.0.0/8", json!(["10.0.0.2/32"]))]}]});
    assert!(ingress(one.clone(), "10.0.0.3", tcp(80)) && !ingress(one, "10.0.0.2", tcp(80)));
    let two = json!({"ingress": [{"from": [block("10.0.0.0/8", json!(["10.0.0.2/32"])), block("10.0.0.2/31", json!(null))]}]});
    assert!(ingress(two, "10.0.0.2", tcp(80)));
    let all4 = json!({"ingress": [{"from": [block("0.0.0.0/0", json!([]))]}]});
    assert!(ingress(all4.clone(), "203.0.113.1", tcp(80)) && !ingress(all4, "2001:db8::1", tcp(80)));
    let outside = json!({"ingress": [{"from": [block("10.0.0.0/24", json!(["10.1.0.0/24"]))]}]});
    assert!(!ingress(outside, "10.0.0.3", tcp(80)), "the API would refuse it: it allows nothing");
}

#[test]
fn completed_pods_are_nobody_and_the_newest_owner_has_an_address() {
    let spec = json!({"ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]});
    let mut world = world(&[spec]);
    let passes = |world: &World| ask(world, Direction::Ingress, "10.0.0.2", tcp(80)).passes();
    assert!(passes(&world));
    let mut newer = world.pods[1].clone();
    newer.metadata.name = Some("job".to_owned());
    newer.metadata.labels = Some([("app".to_owned(), "job".to_owned())].into());
    newer.metadata.creation_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    world.pods.push(newer);
    assert!(!passes(&world));
    world.pods[3].status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
    assert!(passes(&world));
}

#[test]
fn an_endpoint_is_held_to_its_own_object_and_without_one_to_whatever_may_select_it() {
    let mut world =
        world(&[json!({"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"from": [{"podSelector": {}}]}]})]);
    let endpoint = |pod: Option<(&str, &str)>, ip: &str| Endpoint {
        pod: pod.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
        uid: None,
        addresses: vec![ip.parse().unwrap()],
    };
    let held = |world: &World, pod, peer: &str| {
        world.held(&endpoint(pod, "10.0.0.9"), Direction::Ingress, peer.parse().unwrap(), tcp(80))
    };
    let (web, db, untold) = (Some(("a", "web")), Some(("a", "db")), Some(("a", "new")));
    assert_eq!(held(&world, web, "10.0.0.2"), Verdict::NotIsolated);
    assert!(held(&world, db, "10.0.0.1").passes() && !held(&world, db, "10.0.0.3").passes());
    // The address of a pod that the node has given to another, or to none, since.
    world.endpoints = vec![endpoint(None, "10.0.0.1")];
    assert!(!held(&world, db, "10.0.0.1").passes());
    world.endpoints = vec![endpoint(untold, "10.0.0.1")];
    assert!(!held(&world, db, "10.0.0.1").passes());
    world.endpoints = vec![endpoint(web, "10.0.0.3")];
    assert!(held(&world, db, "10.0.0.3").passes());
    let policies = vec![("a".to_owned(), "p0".to_owned())];
    assert_eq!(held(&world, untold, "10.0.0.1"), Verdict::Denied(policies.clone()));
    assert_eq!(held(&world, Some(("b", "new")), "10.0.0.1"), Verdict::NotIsolated);
    assert_eq!(held(&world, Some(("c", "new")), "10.0.0.1"), Verdict::Denied(vec![]));
    assert_eq!(held(&world, None, "10.0.0.1"), Verdict::NotIsolated);
    // The pod that had its name before.
    for end in [json!({"status": {"phase": "Succeeded"}}), json!({"spec": {"hostNetwork": true, "containers": []}})] {
        let mut world = world.clone();
        let before = world.pods.iter_mut().find(|pod| pod.metadata.name.as_deref() == Some("web")).unwrap();
        let mut object = serde_json::to_value(&*before).unwrap();
        for (key, value) in end.as_object().unwrap() {
            object[key] = value.clone();
        }
        *before = serde_json::from_value(object).unwrap();
        assert_eq!(held(&world, web, "10.0.0.2"), Verdict::Denied(policies.clone()));
    }
    world.pods.iter_mut().for_each(|pod| pod.metadata.uid = Some("now".to_owned()));
    for (uid, is_own) in [(Some("now"), true), (None, true), (Some("before"), false)] {
        let endpoint = Endpoint { uid: uid.map(str::to_owned), ..endpoint(web, "10.0.0.9") };
        let verdict = world.held(&endpoint, Direction::Ingress, "10.0.0.2".parse().unwrap(), tcp(80));
        assert_eq!(verdict == Verdict::NotIsolated, is_own, "{uid:?}: {verdict:?}");
    }
}

#[test]
fn policies_add_up_and_a_drop_names_those_that_isolate() {
    let world = world(&[json!({}), json!({"ingress": [{"ports": [{"port": 80}]}]})]);
    let names = |rules: &[(&str, usize)]| rules.iter().map(|(p, r)| ((*p).to_owned(), *r)).collect::<Vec<_>>();
    match ask(&world, Direction::Ingress, "10.0.0.2", tcp(80)) {
        Verdict::Allowed(rules) => {
            let rules: Vec<(String, usize)> = rules.into_iter().map(|r| (r.policy, r.rule)).collect();
            assert_eq!(rules, names(&[("p1", 0)]));
        }
        other => panic!("{other:?}"),
    }
    let both = vec![("a".to_owned(), "p0".to_owned()), ("a".to_owned(), "p1".to_owned())];
    assert_eq!(ask(&world, Direction::Ingress, "10.0.0.2", tcp(81)), Verdict::Denied(both));
}
