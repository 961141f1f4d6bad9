//! Maps and catalogues that refuse, and who comes meanwhile.

use std::net::IpAddr;

use osmia_maps::catalogue::{Last, Line};

use super::*;

#[tokio::test(start_paused = true)]
async fn full_maps_keep_what_was_in_force_until_there_is_room() {
    let mut world = World::new();
    world.tell(vec![pod("a"), Event::Pod(Name::new("other", "c"), PodObject::default())]);
    world.put(1, "a");
    world.maps.full = true;
    world.tell(vec![deny()]);
    assert_eq!(world.rules(1), OPEN, "the old state stays");
    assert!(world.policing.retry_at().is_some());
    assert!(world.catalogue().policies.is_empty(), "it is not in force");
    world.tell(vec![pod("b")]);
    assert_eq!(world.put(2, "b"), SHUT);
    // Who had its address before has rights that it must not have; whether the maps still say so is not known.
    let address = IpAddr::from([10, 0, 0, 3]);
    world.maps.pinned.peers.insert(address, 77);
    let c = Local { pod: Some(Name::new("other", "c")), ..local(3, "c", "") };
    assert_eq!(world.put_local(3, c.clone()), OPEN, "no policy selects it");
    assert!(!world.maps.pinned.peers.contains_key(&address));
    world.maps.stuck = true;
    assert_eq!(
        world.put_local(4, Local { addresses: vec![[10, 0, 0, 4].into()], ..c }),
        SHUT,
        "its address may be another's"
    );
    world.maps.stuck = false;
    let counts = world.policing.counts();
    assert_eq!((counts.refused, counts.open), (2, 1));
    world.policing.try_again(&mut world.maps);
    assert_eq!((world.rules(1), world.rules(2)), (OPEN, SHUT));
    world.maps.full = false;
    world.policing.try_again(&mut world.maps);
    assert_eq!(world.policing.retry_at(), None);
    assert_eq!((world.rules(3), world.rules(4)), (OPEN, OPEN));
    assert!(world.rules(1) != OPEN && world.rules(2) == world.rules(1), "replicas share their rules");
    assert_eq!(world.policing.counts().isolated, 2);
    assert_eq!(world.catalogue().policies.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_add_is_open_while_the_maps_cannot_even_be_read() {
    let mut world = World::new();
    world.tell(vec![pod("a"), pod("b")]);
    world.put(1, "a");
    world.maps.full = true;
    world.tell(vec![deny()]);
    world.maps.unreadable = true;
    let reads = world.maps.reads.get();
    assert_eq!(world.put(2, "b"), SHUT);
    assert_eq!(world.maps.reads.get(), reads, "an ADD compiles nothing anew");
    assert_eq!(world.policing.counts().refused, 1);
    world.policing.try_again(&mut world.maps);
    assert_eq!(world.rules(2), SHUT);
    (world.maps.full, world.maps.unreadable) = (false, false);
    world.policing.try_again(&mut world.maps);
    assert!(world.rules(2) != SHUT && world.rules(2) != OPEN && world.rules(2) == world.rules(1));
    assert_eq!(world.policing.counts().isolated, 2);
}

#[tokio::test(start_paused = true)]
async fn an_add_after_a_start_that_failed_is_shut_until_it_is_made_up_for() {
    let mut world = World::new();
    world.tell(vec![pod("a")]);
    world.put(1, "a");
    world.maps.unreadable = true;
    world.restart(vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), pod("b")]);
    assert_eq!(world.put(2, "b"), SHUT);
    assert_eq!(world.policing.counts().refused, 1);
    world.maps.unreadable = false;
    world.policing.try_again(&mut world.maps);
    assert_eq!((world.rules(1), world.rules(2)), (OPEN, OPEN));
    assert_eq!(world.catalogue().endpoints[&2].as_ref().unwrap().to_string(), "ns/b");
    world.tell(vec![deny()]);
    assert!(world.rules(2) != OPEN && world.rules(2) == world.rules(1));
}

#[tokio::test(start_paused = true)]
async fn what_stays_refused_is_tried_ever_more_rarely() {
    let mut world = World::new();
    world.tell(vec![pod("a")]);
    world.put(1, "a");
    world.maps.full = true;
    let waits = |world: &mut World| {
        world.tell(vec![deny()]);
        let mut waits = Vec::new();
        for _ in 0..7 {
            let wait = world.policing.retry_at().unwrap() - Instant::now();
            waits.push(wait.as_secs());
            // Neither news nor a DEL bring it forward or put it off.
            world.tell(vec![pod("b"), Event::PodGone(key("b"))]);
            assert_eq!(world.policing.retry_at(), Some(Instant::now() + wait));
            world.policing.try_again(&mut world.maps);
        }
        waits
    };
    assert_eq!(waits(&mut world), [2, 4, 8, 16, 32, 60, 60]);
    world.maps.full = false;
    world.policing.try_again(&mut world.maps);
    world.tell(vec![Event::PolicyGone(key("deny"))]);
    world.bury();
    world.maps.full = true;
    assert_eq!(waits(&mut world)[..2], [2, 4], "what came into force is forgotten");
}

#[tokio::test(start_paused = true)]
async fn no_row_is_written_that_the_catalogue_does_not_name() {
    let mut world = World::new();
    world.tell(vec![pod("a")]);
    world.put(1, "a");
    let before = (world.maps.pinned.clone(), world.maps.generation);
    world.policing.catalogue.refuse(true);
    world.tell(vec![deny()]);
    assert_eq!((world.maps.pinned.clone(), world.maps.generation), before);
    assert_eq!(world.rules(1), OPEN);
    let refused = world.policing.put(&mut world.maps, 2, endpoint(2), local(2, "b", ""));
    assert!(refused.is_err() && !world.maps.rows.contains_key(&2), "an ADD is refused");
    // A DEL is not: the line that is missing is made up for.
    world.policing.remove(&mut world.maps, 1).unwrap();
    world.policing.catalogue.refuse(false);
    world.policing.try_again(&mut world.maps);
    assert_eq!(world.policing.retry_at(), None);
    let catalogue = world.catalogue();
    assert!(catalogue.endpoints.is_empty());
    assert_eq!(catalogue.policies.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn where_the_numbers_are_used_up_what_is_in_force_stays_and_none_is_given_twice() {
    let mut world = World::new();
    world.tell(vec![pod("a"), deny()]);
    world.put(1, "a");
    let rules = world.rules(1);
    let last = Last { set: u32::MAX - 1, ..world.catalogue().last };
    let same = || vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), pod("b")];
    world.policing.catalogue.append(&[Line::Generation { generation: 1000, last }]).unwrap();
    world.restart(same());
    assert_eq!((world.rules(1), world.put(2, "b")), (rules, SHUT));
    assert!(world.policing.retry_at().is_some() && world.policing.counts().waiting);
    world.tell(vec![Event::PolicyGone(key("deny"))]);
    world.policing.try_again(&mut world.maps);
    assert_eq!((world.rules(1), world.rules(2)), (rules, SHUT));
}
