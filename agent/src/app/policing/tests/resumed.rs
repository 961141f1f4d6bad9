//! Starts over what is there.

use super::*;
use crate::model::policy::Direction;

#[tokio::test(start_paused = true)]
async fn a_start_over_the_same_changes_nothing_and_over_others_what_differs() {
    let mut world = World::new();
    let same = || vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), deny()];
    world.tell(same());
    world.put(1, "a");
    world.bury();
    let (before, generation) = (world.maps.pinned_policy().unwrap(), world.maps.generation);
    world.maps.epochs.clear();
    world.restart(same());
    assert_eq!((world.maps.pinned_policy().unwrap(), world.maps.generation), (before, generation));
    assert!(world.maps.epochs.is_empty(), "no flow is judged again for a start");
    // The policy went while no agent was there.
    world.restart(vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a")]);
    world.bury();
    assert_eq!(world.rules(1), OPEN);
    let catalogue = world.catalogue();
    assert!(catalogue.policies.is_empty() && catalogue.sets.is_empty());
}

#[tokio::test(start_paused = true)]
async fn rows_that_are_in_use_again_are_not_buried() {
    let mut world = World::new();
    world.tell(vec![pod("a"), deny()]);
    world.put(1, "a");
    world.bury();
    let (rows, rules) = (world.maps.pinned.verdicts.clone(), world.rules(1));
    world.tell(vec![Event::PolicyGone(key("deny"))]);
    let graves = world.policing.graves();
    assert!(!graves.is_empty());
    // While the barrier is waited for the policy comes back, and everything is compiled anew over the old rows.
    world.policing.catalogue.refuse(true);
    world.tell(vec![deny()]);
    world.policing.catalogue.refuse(false);
    world.policing.try_again(&mut world.maps);
    world.policing.bury(&mut world.maps, graves);
    world.bury();
    assert_eq!(world.rules(1), rules, "what the catalogue still names keeps its numbers");
    assert_eq!(world.maps.pinned.verdicts, rows);
}

#[tokio::test(start_paused = true)]
async fn rows_that_nothing_leads_to_make_room_before_the_next_try() {
    let mut world = World::new();
    world.tell(vec![pod("a"), deny()]);
    world.put(1, "a");
    world.bury();
    let used: Vec<_> = world.maps.pinned.verdicts.clone().into_iter().collect();
    // What a killed agent wrote and led nobody to: rule sets, and classes of the sets that are there.
    for number in 1000..1010 {
        for (key, row) in &used {
            let (mut set, mut class) = (*key, *key);
            (set.asked.set, class.asked.class) = (number, number);
            world.maps.pinned.verdicts.extend([(set, *row), (class, *row)]);
        }
    }
    world.maps.room = Some(world.maps.pinned.verdicts.len());
    world.restart(vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), deny()]);
    assert!(world.policing.retry_at().is_some());
    let before = world.rules(1);
    world.bury();
    let left: Vec<_> = world.maps.pinned.verdicts.clone().into_iter().collect();
    assert_eq!(left, used, "what is asked stays");
    assert_eq!(world.rules(1), before);
    world.policing.try_again(&mut world.maps);
    assert_eq!(world.policing.retry_at(), None);
    assert!(world.rules(1) != OPEN && world.rules(1) != SHUT);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_writes_nothing_says_what_is_over_the_budget() {
    let mut world = World::new();
    let over = OverBudget {
        slot: 1,
        pod: None,
        direction: Direction::Ingress,
        policies: Vec::new(),
        map: "verdicts",
        rows: 2,
        limit: 1,
    };
    world.policing.over_budget = vec![over];
    let generation = world.maps.generation;
    world.policing.try_again(&mut world.maps);
    assert_eq!(world.maps.generation, generation, "there was nothing to write");
    assert!(world.policing.over_budget.is_empty(), "what was said is compared with what is");
}
