//! The compiled rows against the oracle: random clusters, every event, every order.

mod budget;
mod flows;
mod generate;
mod killed;
mod maps;
mod sharing;

use std::{collections::BTreeMap, net::IpAddr};

use osmia_maps::catalogue::Catalogue;
use osmia_oracle::{Direction as Asked, Protocol as Carried, Traffic, World};
use proptest::prelude::*;

use self::{
    flows::Flows,
    generate::{Happening, World as Objects},
    maps::Maps,
};
use super::{budget::Budget, *};

/// What is answered to all questions, by endpoint and direction.
type Answers = BTreeMap<(u32, Direction), Vec<bool>>;

/// Everything that is asked of every endpoint after every event.
fn questions() -> Vec<(IpAddr, Traffic)> {
    let ports = [
        (Carried::Tcp, [80, 81, 443, 8080]),
        (Carried::Udp, [53, 80, 8080, 65535]),
        (Carried::Sctp, [80, 1, 443, 8080]),
    ];
    let traffic = ports.into_iter().flat_map(|(protocol, ports)| ports.map(|port| Traffic { protocol, port }));
    let traffic: Vec<Traffic> = traffic.chain([Traffic { protocol: Carried::Other, port: 0 }]).collect();
    let addresses = generate::addresses();
    addresses.into_iter().flat_map(|address| traffic.iter().map(move |traffic| (address, *traffic))).collect()
}

fn protocol(carried: Carried) -> u8 {
    match carried {
        Carried::Tcp => 6,
        Carried::Udp => 17,
        Carried::Sctp => 132,
        Carried::Other => 1,
    }
}

/// What the oracle says, by endpoint and direction.
fn truth(world: &World, locals: &BTreeMap<u32, Local>) -> Answers {
    let questions = questions();
    let mut truth = BTreeMap::new();
    for (slot, local) in locals {
        let endpoint = osmia_oracle::Endpoint { pod: local.pod.clone(), addresses: local.addresses.clone() };
        for (direction, asked) in [(Direction::Ingress, Asked::Ingress), (Direction::Egress, Asked::Egress)] {
            let passes = |(peer, traffic): &(IpAddr, Traffic)| world.held(&endpoint, asked, *peer, *traffic).passes();
            let answers = questions.iter().map(passes);
            truth.insert((*slot, direction), answers.collect());
        }
    }
    truth
}

/// What the rows say of the same.
fn rows(maps: &Maps, locals: &BTreeMap<u32, Local>) -> Answers {
    let questions = questions();
    let mut said = BTreeMap::new();
    for slot in locals.keys() {
        for direction in [Direction::Ingress, Direction::Egress] {
            let answers = questions
                .iter()
                .map(|(peer, traffic)| maps.passes(*slot, direction, *peer, protocol(traffic.protocol), traffic.port));
            said.insert((*slot, direction), answers.collect());
        }
    }
    said
}

/// Which packets between two endpoints pass, as egress of the one and ingress of the other see them.
fn pairs(said: &Answers, locals: &BTreeMap<u32, Local>) -> BTreeMap<(u32, u32, usize), bool> {
    let questions = questions();
    let about = |local: &Local| -> Vec<usize> {
        (0..questions.len()).filter(|i| local.addresses.contains(&questions[*i].0)).collect()
    };
    let mut pairs = BTreeMap::new();
    for (from, sender) in locals {
        for (to, receiver) in locals.iter().filter(|(to, _)| *to != from) {
            let (Some(egress), Some(ingress)) =
                (said.get(&(*from, Direction::Egress)), said.get(&(*to, Direction::Ingress)))
            else {
                continue;
            };
            for (i, (out, into)) in about(receiver).into_iter().zip(about(sender)).enumerate() {
                pairs.insert((*from, *to, i), egress[out] && ingress[into]);
            }
        }
    }
    pairs
}

/// What the oracle says, but that endpoints for whose rules there is no room are isolated.
fn held(mut truth: Answers, policies: &Policies) -> Answers {
    for over in policies.over_budget() {
        if let Some(answers) = truth.get_mut(&(over.slot, over.direction)) {
            answers.fill(false);
        }
    }
    truth
}

/// The maps after a start over nothing.
fn fresh(budget: Budget, cluster: &Cluster, locals: &BTreeMap<u32, Local>) -> Result<Maps, TestCaseError> {
    let anew = Policies::resume_within(budget, &Catalogue::default(), &Pinned::default(), cluster, locals);
    let mut fresh = Maps::default();
    fresh.apply(&anew.change, |_, _| Ok(()))?;
    fresh.attach(&anew.policies, locals);
    Ok(fresh)
}

/// Follows a story event by event and holds the rows against the oracle after each.
fn follow(story: &[Happening], budget: Budget) -> Result<(), TestCaseError> {
    let mut objects = Objects::default();
    let mut cluster = Cluster::default();
    let (nothing, nobody) = (Catalogue::default(), BTreeMap::new());
    let first = Policies::resume_within(budget, &nothing, &Pinned::default(), &cluster, &nobody);
    let (mut policies, mut maps) = (first.policies, Maps::default());
    maps.apply(&first.change, |_, _| Ok(()))?;
    let mut flows = Flows::default();
    for happening in story {
        let before = (truth(&objects.world(), &objects.locals()), objects.locals());
        let touched = objects.apply(happening, &mut cluster);
        let change = policies.update(&cluster, touched);
        let (world, locals) = (objects.world(), objects.locals());
        let wanted = truth(&world, &locals);
        if let Happening::Deleted(pod) = happening {
            maps.remove(pod + 1);
        }
        maps.apply(&change, |maps, write| {
            let said = rows(maps, &locals);
            flows.open(maps, &said);
            let (old, new) = (pairs(&before.0, &before.1), pairs(&wanted, &locals));
            for (pair, passes) in pairs(&said, &locals) {
                let (Some(old), Some(new)) = (old.get(&pair), new.get(&pair)) else { continue };
                prop_assert!(!passes || *old || *new, "{write:?}: pair {pair:?} after {happening:?}");
            }
            // Whoever is asked in the middle is told what was or what will be, or to stay out.
            for (key, answers) in said {
                let (Some(old), Some(new)) = (before.0.get(&key), wanted.get(&key)) else { continue };
                for (i, passes) in answers.iter().enumerate() {
                    prop_assert!(
                        !passes || old[i] || new[i],
                        "{write:?}: {key:?} {:?} after {happening:?}",
                        questions()[i]
                    );
                }
            }
            Ok(())
        })?;
        maps.attach(&policies, &locals);
        let said = rows(&maps, &locals);
        for (key, answers) in &held(wanted, &policies) {
            for (i, passes) in answers.iter().enumerate() {
                let asked = questions()[i];
                let may_be_less = policies.classes.crowded_out().contains(&asked.0) && !said[key][i];
                prop_assert!(said[key][i] == *passes || may_be_less, "{:?} {:?} after {:?}", key, asked, happening);
            }
        }
        let over = policies.over_budget();
        maps.apply(&policies.collect(&cluster), |_, _| Ok(()))?;
        let collected = rows(&maps, &locals);
        prop_assert!(
            collected == said || over != policies.over_budget(),
            "collecting changed a meaning after {happening:?}"
        );
        prop_assert_eq!(flows.outlived(&maps, &collected), None, "a flow passes by what was, after {:?}", happening);

        let fresh = fresh(budget, &cluster, &locals)?;
        prop_assert_eq!(&rows(&fresh, &locals), &collected, "another start says something else after {:?}", happening);
        prop_assert_eq!(fresh.sizes(), maps.sizes(), "rows left or missing after {:?}", happening);
        // Those of an endpoint that is shut, and of all of IPv4, are none that a rule asked for.
        let [verdicts, peers, ranges, _] = maps.sizes();
        let fits = verdicts <= budget.verdicts + 1 && ranges <= budget.ranges + 1 && peers <= budget.peers;
        prop_assert!(fits, "{:?} with a budget of {budget:?}", maps.sizes());
    }
    Ok(())
}

fn cases(default: u32) -> u32 {
    std::env::var("OSMIA_POLICY_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(48), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_event_leaves_what_the_oracle_says(story in generate::story()) {
        follow(&story, Budget::default())?;
    }

    #[test]
    fn over_the_budget_an_endpoint_is_isolated_whatever_the_order_of_events(
        story in generate::story(),
        verdicts in 12..60_usize,
        ranges in 1..10_usize,
        peers in 1..10_usize,
    ) {
        follow(&story, Budget { verdicts, ranges, peers })?;
    }
}
