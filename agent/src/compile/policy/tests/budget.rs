//! Rules that need more rows than there is room for: seen, said, and lifted when they fit; and what rules take.

use serde_json::{Value, json};

use super::{super::budget::COUNTED, sharing::Lab, *};
use crate::model::{Event, Name};

/// Rules from single addresses, each with a port of its own.
fn rules(set: usize, count: usize) -> Value {
    let rule = |n: usize| {
        let cidr = format!("10.{}.{}.{}/32", set % 250, n / 250, n % 250 + 1);
        json!({"from": [{"ipBlock": {"cidr": cidr}}], "ports": [{"port": n + 1}]})
    };
    json!((0..count).map(rule).collect::<Vec<_>>())
}

fn policy(lab: &mut Lab, app: &str, set: usize, count: usize) -> Change {
    lab.policy(app, json!({"podSelector": {"matchLabels": {"app": app}}, "ingress": rules(set, count)}))
}

#[test]
fn rules_for_which_there_is_no_room_isolate_and_are_named_until_they_fit() {
    let mut lab = Lab::default();
    lab.policies.budget = Budget { verdicts: 30, ..Budget::default() };
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    for (slot, app) in [(1, "web"), (2, "db")] {
        lab.pod(app, &format!("10.244.0.{slot}"), json!({"app": app}));
        lab.endpoint(slot, app, &format!("10.244.0.{slot}"));
    }
    policy(&mut lab, "web", 1, 4);
    assert!(lab.policies.over_budget().is_empty());
    let change = policy(&mut lab, "db", 2, 20);
    assert_eq!(change.verdicts.len(), 1, "what isolates alone: {:?}", change.verdicts);
    let head = VerdictKey::head(lab.policies.rules(2).ingress, 0);
    assert_eq!(change.verdicts.get(&head).map(|row| row.flags), Some(0));
    let over = lab.policies.over_budget();
    let [one] = over.as_slice() else { panic!("{over:?}") };
    assert_eq!((one.slot, one.pod.as_ref().map(Name::name), one.rows, one.limit), (2, Some("db"), 41, 30));
    assert_eq!((one.direction, one.policies[0].name.as_str()), (Direction::Ingress, "db"));

    let shut = lab.policies.rules(2).ingress;
    let change = policy(&mut lab, "db", 2, 9);
    assert_eq!(lab.policies.over_budget(), []);
    assert_ne!(lab.policies.rules(2).ingress, shut, "a number never means something else");
    assert_eq!(change.verdicts.len(), 19);
    // Room that another makes is room for it.
    policy(&mut lab, "db", 2, 12);
    assert_eq!(lab.policies.over_budget().len(), 1);
    let change = lab.policy("web", json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": []}));
    assert_eq!(lab.policies.over_budget(), []);
    assert!(change.epochs.contains(&2) && change.endpoints.contains_key(&2), "{change:?}");
}

#[test]
fn ranges_for_which_there_is_no_room_are_not_even_classified() {
    let mut lab = Lab::default();
    lab.policies.budget = Budget { ranges: 10, ..Budget::default() };
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    for (slot, app) in [(1, "web"), (2, "db"), (3, "web")] {
        lab.pod(app, &format!("10.244.0.{slot}"), json!({"app": app}));
        lab.endpoint(slot, app, &format!("10.244.0.{slot}"));
    }
    policy(&mut lab, "web", 1, 4);
    let change = policy(&mut lab, "db", 2, 8);
    assert_eq!((change.verdicts.len(), change.blocks.len()), (1, 0), "{change:?}");
    let over = lab.policies.over_budget();
    let [one] = over.as_slice() else { panic!("{over:?}") };
    assert_eq!((one.slot, one.map, one.rows, one.limit), (2, "peer_blocks", 8, 10));
    // The same ranges cost nothing more.
    let change = policy(&mut lab, "db", 1, 9);
    assert_eq!(lab.policies.over_budget(), []);
    assert_eq!(change.blocks.len(), 5, "those that were not there: {change:?}");
}

#[test]
fn what_a_range_leaves_out_takes_room_as_the_range_does() {
    let mut lab = Lab::default();
    lab.policies.budget = Budget { ranges: 10, ..Budget::default() };
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    lab.pod("web", "10.244.0.1", json!({"app": "web"}));
    lab.endpoint(1, "web", "10.244.0.1");
    let mut without = |parts: u32| {
        let except: Vec<String> = (1..=parts).map(|n| format!("10.0.{n}.0/24")).collect();
        lab.policy("p", json!({"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": except}}]}]}));
        let over = lab.policies.over_budget();
        (lab.policies.classes.prefixes().len() - 1, over.first().map(|over| (over.map, over.rows)))
    };
    assert_eq!(without(10), (0, Some(("peer_blocks", 11))));
    assert_eq!(without(9), (10, None));
}

#[test]
fn of_more_addresses_than_there_is_room_for_the_lowest_are_pods() {
    let mut lab = Lab::default();
    lab.policies.budget = Budget { peers: 2, ..Budget::default() };
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    lab.pod("web", "10.0.0.1", json!({"app": "web"}));
    lab.endpoint(1, "web", "10.0.0.1");
    let from = json!([{"podSelector": {"matchLabels": {"app": "db"}}}]);
    lab.policy("p", json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": from}]}));
    let address = |n: u8| IpAddr::from([10, 0, 1, n]);
    let comes = |lab: &mut Lab, n: u8| lab.pod(&format!("db{n}"), &address(n).to_string(), json!({"app": "db"}));
    let has = |lab: &Lab| lab.policies.classes.addresses().keys().copied().collect::<Vec<_>>();
    comes(&mut lab, 4);
    comes(&mut lab, 2);
    let change = comes(&mut lab, 5);
    assert_eq!((change, lab.policies.crowded_out()), (Change::default(), 1), "nothing is written");
    assert_eq!(has(&lab), [address(2), address(4)]);
    let change = comes(&mut lab, 3);
    assert_eq!((has(&lab), lab.policies.crowded_out()), (vec![address(2), address(3)], 2));
    assert_eq!(change.peers.get(&address(4)), Some(&None), "{change:?}");
    assert!(change.epochs.contains(&1), "what it was allowed is judged again: {change:?}");
    let gone = Name::new("a", "db2");
    lab.cluster.apply(Event::PodGone(gone.clone()));
    let change = lab.policies.update(&lab.cluster, [Touched::Pod(gone)]);
    assert_eq!((has(&lab), lab.policies.crowded_out()), (vec![address(3), address(4)], 1));
    assert!(change.peers[&address(4)].is_some() && change.epochs.contains(&1), "{change:?}");
}

#[test]
fn ranges_are_counted_anew_only_where_rule_sets_come_or_go() {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    for slot in 1..=20 {
        let app = format!("app{slot}");
        lab.pod(&app, &format!("10.244.0.{slot}"), json!({"app": app}));
        lab.endpoint(slot, &app, &format!("10.244.0.{slot}"));
        policy(&mut lab, &app, 1, 400);
    }
    // They fit, but would not if ranges that several write down counted for each of them.
    lab.policies.budget = Budget { ranges: 500, ..Budget::default() };
    let before = COUNTED.get();
    for n in 1..=20 {
        lab.pod(&format!("other{n}"), &format!("10.245.0.{n}"), json!({"app": "other"}));
    }
    assert_eq!(COUNTED.get(), before, "no rule speaks of these pods");
    policy(&mut lab, "app1", 1, 300);
    assert!(COUNTED.get() > before, "there is another rule set");
    assert_eq!(lab.policies.over_budget(), []);
}

/// The shape that fills a node, with fewer of each: `bench -- --metric limits` has it whole, at a real agent.
#[test]
fn a_rule_of_a_range_and_a_port_takes_two_rows_and_a_start_over_them_none() {
    const SETS: usize = 12;
    const RULES: usize = 100;
    for distinct in [false, true] {
        let mut lab = Lab::default();
        lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
        let mut locals = BTreeMap::new();
        for n in 0..SETS {
            let (app, ip) = (format!("app{n}"), format!("10.254.0.{}", n + 1));
            lab.pod(&app, &ip, json!({"app": app}));
            let local =
                Local { pod: Some(Name::new("a", &app)), addresses: vec![ip.parse().unwrap()], ..Local::default() };
            locals.insert(n as u32 + 1, local);
            policy(&mut lab, &app, if distinct { n } else { 0 }, RULES);
        }
        let resume = |catalogue: &Catalogue, pinned: &Pinned| {
            let mut resumed = Policies::resume(catalogue, pinned, &lab.cluster, &locals);
            let names: Vec<_> = resumed.policies.take_names().collect();
            (resumed, names)
        };
        let (first, names) = resume(&Catalogue::default(), &Pinned::default());
        let change = &first.change;
        // A head and a row for the port; a head for anybody each, and the one of whom is shut.
        assert_eq!(change.verdicts.len(), 1 + SETS * (1 + 2 * RULES), "distinct: {distinct}");
        let ranges = if distinct { SETS * RULES } else { RULES };
        // All of IPv4 is class 0.
        assert_eq!(change.blocks.len(), ranges + 1, "distinct: {distinct}");
        // What it is thought to take is what it takes.
        let counted: usize = first.policies.sets.used().map(|(_, set)| set.rows).sum();
        assert_eq!((counted + 1, first.policies.over_budget()), (change.verdicts.len(), Vec::new()));

        let mut catalogue = Catalogue::default();
        names.into_iter().for_each(|line| catalogue.take(line));
        let pinned = Pinned {
            peers: first.policies.classes.addresses().clone(),
            blocks: first.policies.classes.prefixes().clone(),
            rules: locals.keys().map(|slot| (*slot, first.policies.rules(*slot))).collect(),
            verdicts: change.verdicts.clone(),
        };
        let (again, _) = resume(&catalogue, &pinned);
        assert_eq!((again.unknown, again.change.verdicts.len(), again.change.old_verdicts.len()), (None, 0, 0));
    }
}
