//! Changes that nothing refuses.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_policy_is_in_force_with_its_name_and_goes_without_a_trace() {
    let mut world = World::new();
    world.tell(vec![pod("a")]);
    assert_eq!(world.put(1, "a"), OPEN);
    let empty = world.maps.pinned.verdicts.clone();
    world.tell(vec![deny()]);
    let rules = world.rules(1);
    assert!(rules.egress > CLOSED && rules.ingress > CLOSED && world.maps.epochs.contains(&1));
    let catalogue = world.catalogue();
    assert_eq!(catalogue.generation, world.maps.generation);
    assert_eq!(catalogue.in_force.unwrap().generation, catalogue.generation);
    let names: Vec<String> = catalogue.policies.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["ns/deny"]);
    assert_eq!(catalogue.endpoints[&1].as_ref().unwrap().to_string(), "ns/a");
    assert!(catalogue.sets.contains_key(&rules.egress) && catalogue.sets.contains_key(&rules.ingress));

    world.tell(vec![Event::PolicyGone(key("deny"))]);
    assert_eq!(world.rules(1), OPEN);
    assert!(world.maps.pinned.verdicts.len() > empty.len(), "packets under way may still ask the old rows");
    world.bury();
    assert_eq!(world.maps.pinned.verdicts, empty);
    let catalogue = world.catalogue();
    assert!(catalogue.sets.is_empty() && catalogue.policies.is_empty());
    world.policing.remove(&mut world.maps, 1).unwrap();
    assert!(world.catalogue().endpoints.is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_and_go_leave_no_history_behind() {
    let mut world = World::new();
    let length = |world: &World| std::fs::metadata(osmia_maps::catalogue::path(world.run.path())).unwrap().len();
    let mut longest = 0;
    for _ in 0..250 {
        for _ in 0..100 {
            world.put(1, "a");
            world.policing.remove(&mut world.maps, 1).unwrap();
        }
        world.policing.housekeep();
        longest = length(&world).max(longest);
    }
    assert!(longest > 1 << 20, "{longest}");
    // A thread makes it shorter.
    for _ in 0..60_000 {
        if length(&world) < 1 << 20 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        world.policing.housekeep();
    }
    let length = length(&world);
    assert!(world.policing.graves().is_empty(), "nothing here leads to a burial");
    assert!(length < 1 << 20 && world.catalogue().endpoints.is_empty(), "{length}");
}
