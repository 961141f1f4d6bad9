//! The agent killed between any two of its writes, and started again over what is there.

use osmia_maps::{catalogue::Line, layout::policy::V_ALLOW};
use prop::sample::Index;
use serde_json::json;

use super::{
    flows::Flows,
    maps::{Write, burials, writes},
    *,
};

/// What an agent does, one step after the other.
#[derive(Clone, Debug)]
enum Step {
    Line(Line),
    Row(Write),
}

/// What outlives an agent.
#[derive(Clone, Default)]
struct Node {
    maps: Maps,
    catalogue: Catalogue,
    flows: Flows,
}

impl Node {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Line(line) => self.catalogue.take(line.clone()),
            Step::Row(write) => {
                if let Write::Verdict(key, row) = write {
                    let (set, class) = (key.asked.set, key.asked.class);
                    assert!(set == CLOSED || self.catalogue.sets.contains_key(&set), "set {set} has no name");
                    assert!(class == 0 || self.catalogue.classes.contains_key(&class), "class {class} has no name");
                    assert!(self.catalogue.cookies.contains_key(&row.cookie), "cookie {} has no name", row.cookie);
                }
                self.maps.write(write);
            }
        }
    }
}

/// The steps of a change, and of collecting what it leaves.
fn steps(policies: &mut Policies, change: &Change, cluster: &Cluster, generation: &mut u64, start: bool) -> Vec<Step> {
    let mut steps = one(policies, change, generation, start);
    let rest = policies.collect(cluster);
    steps.extend(one(policies, &rest, generation, false));
    steps
}

fn one(policies: &mut Policies, change: &Change, generation: &mut u64, start: bool) -> Vec<Step> {
    let (names, gone) = (policies.take_names().collect::<Vec<_>>(), policies.take_gone());
    if change.is_empty() && names.is_empty() && !start {
        return gone.into_iter().map(Step::Line).collect();
    }
    *generation += 1;
    let begins = Line::Generation { generation: *generation, last: policies.last() };
    let ends = Line::InForce { generation: *generation, at_ms: 0, took_us: 0, policies: vec![] };
    let mut steps: Vec<Step> = names.into_iter().chain([begins]).map(Step::Line).collect();
    steps.extend(writes(change).into_iter().map(Step::Row));
    steps.push(Step::Line(ends));
    steps.extend(burials(change).into_iter().map(Step::Row));
    steps.extend(gone.map(Step::Line));
    steps
}

/// Takes steps and looks after each whether more passes than `before` or at the end.
fn walk(node: &mut Node, steps: &[Step], world: &Objects, before: &Answers) -> Result<(), TestCaseError> {
    let locals = world.locals();
    let wanted = truth(&world.world(), &locals);
    let ends = Ends::new((before, &locals), (&wanted, &locals));
    for step in steps {
        node.take(step);
        if matches!(step, Step::Line(_)) {
            continue;
        }
        let said = rows(&node.maps, &locals);
        node.flows.open(&node.maps, &said);
        ends.hold(&said, &|| format!("after {step:?}"))?;
    }
    Ok(())
}

/// Everything is as the oracle says, no row is left or missing, and no flow passes by what was.
fn settled(node: &Node, world: &Objects, cluster: &Cluster, policies: &Policies) -> Result<(), TestCaseError> {
    let locals = world.locals();
    let said = rows(&node.maps, &locals);
    for (key, answers) in held(truth(&world.world(), &locals), policies) {
        for (i, passes) in answers.iter().enumerate() {
            let asked = questions()[i];
            let may_be_less = policies.classes.crowded_out().contains(&asked.0) && !said[&key][i];
            prop_assert!(said[&key][i] == *passes || may_be_less, "{:?} {:?}", key, asked);
        }
    }
    let fresh = fresh(policies.budget, cluster, &locals)?;
    prop_assert_eq!(rows(&fresh, &locals), said.clone(), "another start says something else");
    prop_assert_eq!(fresh.sizes(), node.maps.sizes(), "rows left or missing");
    prop_assert_eq!(node.flows.outlived(&node.maps, &said), None, "a flow passes by what was");
    Ok(())
}

#[derive(Clone, Debug)]
struct Death {
    /// How many steps of the last change, and of each start after it, were taken.
    cuts: Vec<Index>,
    /// What happens meanwhile.
    away: Vec<Happening>,
    /// The file was written anew at each start.
    compact: bool,
    /// The file is lost.
    lost: bool,
}

fn death() -> impl Strategy<Value = Death> {
    let away = prop::collection::vec(generate::happening(), 0..4);
    (prop::collection::vec(any::<Index>(), 1..4), away, any::<bool>(), prop::bool::weighted(0.15))
        .prop_map(|(cuts, away, compact, lost)| Death { cuts, away, compact, lost })
}

fn follow(story: &[Happening], deaths: &[(Index, Death)], budget: Budget) -> Result<(), TestCaseError> {
    let (mut world, mut cluster, mut node) = (Objects::default(), Cluster::default(), Node::default());
    let mut generation = 0;
    let start = |node: &Node, cluster: &Cluster, world: &Objects| {
        Policies::resume_within(budget, &node.catalogue, node.maps.pinned(), cluster, &world.locals())
    };
    let Resumed { mut policies, change, .. } = start(&node, &cluster, &world);
    let all = steps(&mut policies, &change, &cluster, &mut generation, true);
    all.iter().for_each(|step| node.take(step));
    for (n, happening) in story.iter().enumerate() {
        let before = rows(&node.maps, &world.locals());
        let touched = world.apply(happening, &mut cluster);
        let change = policies.update(&cluster, touched);
        let all = steps(&mut policies, &change, &cluster, &mut generation, false);
        if let Happening::Deleted(pod) = happening {
            node.maps.remove(pod + 1);
        }
        let Some((_, death)) = deaths.iter().find(|(at, _)| at.index(story.len()) == n) else {
            walk(&mut node, &all, &world, &before)?;
            node.maps.attach(&policies, &world.locals());
            settled(&node, &world, &cluster, &policies)?;
            continue;
        };
        let (first, again) = death.cuts.split_first().expect("one cut at least");
        walk(&mut node, &all[..first.index(all.len() + 1)], &world, &before)?;
        for happening in &death.away {
            world.apply(happening, &mut cluster);
        }
        if death.lost {
            node.catalogue = Catalogue::default();
            node.maps.forget_the_past();
            generation = 0;
        }
        for cut in again.iter().map(Some).chain([None]) {
            if death.compact {
                let mut short = Catalogue::default();
                node.catalogue.lines().for_each(|line| short.take(line));
                node.catalogue = short;
            }
            let before = rows(&node.maps, &world.locals());
            let mut resumed = start(&node, &cluster, &world);
            prop_assert!(death.lost || resumed.unknown.is_none(), "{:?}", resumed.unknown);
            generation = generation.max(node.catalogue.generation);
            let all = steps(&mut resumed.policies, &resumed.change, &cluster, &mut generation, true);
            let taken = cut.map_or(all.len(), |cut| cut.index(all.len() + 1));
            walk(&mut node, &all[..taken], &world, &before)?;
            policies = resumed.policies;
        }
        node.maps.attach(&policies, &world.locals());
        settled(&node, &world, &cluster, &policies)?;

        let mut again = start(&node, &cluster, &world);
        prop_assert_eq!(again.unknown, None);
        prop_assert_eq!(again.change, Change::default(), "a start over what is right writes");
        prop_assert_eq!(again.policies.take_names().next(), None);
        prop_assert_eq!(again.policies.take_gone(), None);
        prop_assert_eq!(again.policies.collect(&cluster), Change::default());
        if policies.over_budget().is_empty() {
            prop_assert_eq!(again.policies.last(), policies.last());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(8))]

    #[test]
    fn killed_anywhere_the_next_start_goes_on_as_if_nothing_had_been(
        story in generate::story(),
        deaths in prop::collection::vec((any::<Index>(), death()), 1..4),
    ) {
        follow(&story, &deaths, Budget::default())?;
    }

    #[test]
    fn killed_over_the_budget_the_same_endpoints_stay_isolated(
        story in generate::story(),
        deaths in prop::collection::vec((any::<Index>(), death()), 1..3),
        verdicts in 12..60_usize,
        ranges in 1..10_usize,
        peers in 1..10_usize,
    ) {
        follow(&story, &deaths, Budget { verdicts, ranges, peers })?;
    }
}

/// Maps and catalogue of a node with one endpoint, whose policy allows one peer.
fn small() -> (Node, Cluster, BTreeMap<u32, Local>) {
    let mut lab = super::sharing::Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    lab.pod("web", "10.0.0.1", json!({"app": "web"}));
    lab.pod("db", "10.0.1.1", json!({"app": "db"}));
    lab.policy("p", json!({"ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]}));
    let address = "10.0.0.1".parse().unwrap();
    let locals =
        BTreeMap::from([(1, Local { pod: Some(Name::new("a", "web")), addresses: vec![address], ..Local::default() })]);
    let mut node = Node::default();
    let mut first = Policies::resume(&node.catalogue, node.maps.pinned(), &lab.cluster, &locals);
    let all = steps(&mut first.policies, &first.change, &lab.cluster, &mut 0, true);
    all.iter().for_each(|step| node.take(step));
    node.maps.attach(&first.policies, &locals);
    (node, lab.cluster, locals)
}

#[test]
fn a_row_that_is_not_what_its_number_stands_for_is_not_gone_on_with() {
    let (node, cluster, locals) = small();
    let mut pinned = node.maps.pinned().clone();
    let before = pinned.rules[&1];
    let allowed = pinned.verdicts.values_mut().find(|row| row.flags & V_ALLOW != 0).unwrap();
    allowed.flags = 0;
    let resumed = Policies::resume(&node.catalogue, &pinned, &cluster, &locals);
    assert_eq!(resumed.unknown, None);
    let change = resumed.change;
    assert!(resumed.policies.rules(1).ingress > before.ingress, "{:?}", resumed.policies.rules(1));
    assert_eq!(change.closing, BTreeSet::from([1]));
    assert_eq!(change.epochs, BTreeSet::from([1]));
    assert_eq!(change.verdicts.len(), 2, "{:?}", change.verdicts);
    assert!(change.old_verdicts.iter().all(|key| key.asked.set == before.ingress));
    assert_eq!((change.old_verdicts.len(), change.peers.len(), change.blocks.len()), (2, 0, 0));
}

#[test]
fn rows_that_the_catalogue_does_not_know_are_all_written_anew() {
    let (node, cluster, locals) = small();
    let (pinned, before) = (node.maps.pinned(), node.maps.pinned().rules[&1]);
    let resumed = Policies::resume(&Catalogue::default(), pinned, &cluster, &locals);
    let why = resumed.unknown.unwrap();
    assert!(why.contains("is not in the catalogue"), "{why}");
    assert!(resumed.policies.rules(1).ingress > before.ingress);
    assert!(resumed.change.peers.values().all(|class| class > &pinned.peers.values().next().copied()));
    assert_eq!((&resumed.change.closing, &resumed.change.epochs), (&BTreeSet::from([1]), &BTreeSet::from([1])));

    // Torn definitions are no better.
    let mut torn = node.catalogue.clone();
    torn.atoms.values_mut().for_each(|atom| atom.1 = json!("?"));
    let resumed = Policies::resume(&torn, pinned, &cluster, &locals);
    assert!(resumed.unknown.unwrap().starts_with("atom 1 of the catalogue: "));
}

/// A pod that was let in by neither the old rules with its old labels nor the new ones with its new ones is so by no mixture of them.
#[test]
fn rules_and_labels_that_changed_while_the_agent_was_away_do_not_meet() {
    let mut lab = super::sharing::Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    let from = |app: &str| json!([{"from": [{"podSelector": {"matchLabels": {"app": app}}}]}]);
    let policy = |of: &str, app: &str| json!({"podSelector": {"matchLabels": {"app": of}}, "ingress": from(app)});
    let mut locals = BTreeMap::new();
    for (slot, app) in [(1, "web"), (2, "api")] {
        let ip = format!("10.0.0.{slot}");
        lab.pod(app, &ip, json!({"app": app}));
        locals.insert(
            slot,
            Local { pod: Some(Name::new("a", app)), addresses: vec![ip.parse().unwrap()], ..Local::default() },
        );
        lab.policy(app, policy(app, "db"));
    }
    lab.pod("x", "10.0.1.1", json!({"app": "x"}));
    // Whose class the old rules of web have a row for.
    lab.pod("db", "10.0.1.2", json!({"app": "db"}));
    let mut node = Node::default();
    let mut first = Policies::resume(&node.catalogue, node.maps.pinned(), &lab.cluster, &locals);
    let all = steps(&mut first.policies, &first.change, &lab.cluster, &mut 0, true);
    all.iter().for_each(|step| node.take(step));
    node.maps.attach(&first.policies, &locals);

    lab.policy("web", policy("web", "other"));
    lab.pod("x", "10.0.1.1", json!({"app": "db"}));
    let resumed = Policies::resume(&node.catalogue, node.maps.pinned(), &lab.cluster, &locals);
    let passes = |maps: &Maps, slot| maps.passes(slot, Direction::Ingress, "10.0.1.1".parse().unwrap(), 6, 80);
    assert!(!passes(&node.maps, 1) && !passes(&node.maps, 2));
    node.maps
        .apply(&resumed.change, |maps, write| {
            prop_assert!(!passes(maps, 1), "after {write:?}");
            Ok(())
        })
        .unwrap();
    assert!(!passes(&node.maps, 1) && passes(&node.maps, 2));
}
