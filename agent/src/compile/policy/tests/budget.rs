//! Rules that need more rows than there is room for: seen, said, and lifted when they fit; and what the most that fits costs.

use std::{fs, time::Instant};

use serde_json::{Value, json};

use super::{sharing::Lab, *};

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
    assert_eq!(change.verdicts.len(), 1, "the base row alone: {:?}", change.verdicts);
    assert_eq!(change.verdicts.get(&VerdictKey::Base(lab.policies.rules(2).ingress)).map(|v| v.allow), Some(false));
    let over = lab.policies.over_budget();
    let [one] = over.as_slice() else { panic!("{over:?}") };
    assert_eq!((one.slot, one.pod.as_ref().map(|pod| pod.1.as_str()), one.rows, one.limit), (2, Some("db"), 41, 30));
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
fn ranges_are_counted_anew_only_where_rule_sets_come_or_go() {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    for slot in 1..=20 {
        let app = format!("app{slot}");
        lab.pod(&app, &format!("10.244.0.{slot}"), json!({"app": app}));
        lab.endpoint(slot, &app, &format!("10.244.0.{slot}"));
        policy(&mut lab, &app, 1, 400);
    }
    let mut shortest = |third: u32, budget| {
        lab.policies.budget = budget;
        let pods = (1..=20).map(|n| {
            let (name, ip) = (format!("other{n}"), format!("10.245.{third}.{n}"));
            let begin = Instant::now();
            lab.pod(&name, &ip, json!({"app": "other"}));
            begin.elapsed()
        });
        pods.min().unwrap()
    };
    let far = shortest(1, Budget::default());
    // They fit, but would not if ranges that several write down counted for each of them.
    let near = shortest(2, Budget { ranges: 500, ..Budget::default() });
    assert_eq!(lab.policies.over_budget(), []);
    assert!(near < 10 * far, "{near:?} for a pod that no rule speaks of, {far:?} with a larger budget");
}

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
#[ignore = "prints what 250 endpoints with 250 rule sets of 2,000 single-CIDR rules with ports cost; seconds in a release build, minutes without"]
fn the_most_that_fits() {
    for (name, distinct) in [("the same ranges in all", false), ("other ranges in each", true)] {
        let mut lab = Lab::default();
        lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
        let mut locals = BTreeMap::new();
        for n in 0..250_usize {
            let (app, ip) = (format!("app{n}"), format!("10.254.0.{}", n + 1));
            lab.pod(&app, &ip, json!({"app": app}));
            let local = Local {
                pod: Some(("a".into(), app.clone())),
                addresses: vec![ip.parse().unwrap()],
                ..Local::default()
            };
            locals.insert(n as u32 + 1, local);
            policy(&mut lab, &app, if distinct { n } else { 0 }, 2000);
        }
        let (before, begin) = (resident(), Instant::now());
        let mut first = Policies::resume(&Catalogue::default(), &Pinned::default(), &lab.cluster, &locals);
        let took = begin.elapsed();
        let after = resident();
        let change = &first.change;
        println!(
            "{name}: {} verdicts, {} ranges, {} addresses, {} over budget in {took:?}, {} MB more",
            change.verdicts.len(),
            change.blocks.len(),
            change.peers.len(),
            first.policies.over_budget().len(),
            after.saturating_sub(before),
        );
        let begin = Instant::now();
        let lines = first.policies.take_names();
        let bytes: usize = lines.iter().map(|line| serde_json::to_vec(line).unwrap().len() + 1).sum();
        println!("{name}: {} names of {} MB in {:?}", lines.len(), bytes >> 20, begin.elapsed());
        let mut catalogue = Catalogue::default();
        lines.into_iter().for_each(|line| catalogue.take(line));
        let pinned = Pinned {
            peers: first.policies.classes.addresses().clone(),
            blocks: first.policies.classes.prefixes().clone(),
            rules: locals.keys().map(|slot| (*slot, first.policies.rules(*slot))).collect(),
            verdicts: change.verdicts.iter().map(|(key, verdict)| (key.row(), verdict.row(key))).collect(),
        };
        assert!(change.verdicts.len() <= first.policies.budget.verdicts + 1);
        let begin = Instant::now();
        let again = Policies::resume(&catalogue, &pinned, &lab.cluster, &locals);
        println!("{name}: a start over them in {:?}, {} MB", begin.elapsed(), resident());
        assert_eq!((again.unknown, again.change.verdicts.len(), again.change.old_verdicts.len()), (None, 0, 0));
    }
}
