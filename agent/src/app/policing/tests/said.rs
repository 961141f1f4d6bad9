//! What the catalogue says is wrong.

use std::net::IpAddr;

use super::*;
use crate::{
    model::policy::{Namespaces, Peer, Peers, Ports, Rule},
    source::logged::logged,
};

/// A policy with a rule that the API would refuse.
fn with_refused(parts: &[&str]) -> Event {
    let Event::Policy(key, policy) = deny() else { unreachable!() };
    let refused = parts.iter().map(ToString::to_string).collect();
    Event::Policy(key, PolicyObject { refused, ..policy })
}

fn refused(world: &World) -> Vec<String> {
    world.catalogue().refused.into_values().flatten().collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_of_a_policy_is_in_the_catalogue_as_long_as_it_is() {
    let mut world = World::new();
    world.tell(vec![pod("a")]);
    world.put(1, "a");
    world.tell(vec![with_refused(&["spec.ingress[0].from[0]: no CIDR", "spec.policyTypes[1]: what?"])]);
    assert_eq!(refused(&world), ["spec.ingress[0].from[0]: no CIDR", "spec.policyTypes[1]: what?"]);
    // Nothing but that changed: no row does, and it is in force all the same.
    let generation = world.maps.generation;
    world.tell(vec![with_refused(&["spec.policyTypes[1]: what?"])]);
    assert_eq!(refused(&world), ["spec.policyTypes[1]: what?"]);
    assert!(world.maps.generation > generation);
    // Mended while no agent was there.
    let namespace = || Event::Namespace("ns".into(), NamespaceObject::default());
    world.restart(vec![namespace(), pod("a"), deny()]);
    assert_eq!(refused(&world), [""; 0]);
    world.restart(vec![namespace(), pod("a"), with_refused(&["again"])]);
    assert_eq!(refused(&world), ["again"]);
    world.tell(vec![Event::PolicyGone(key("deny"))]);
    assert_eq!(refused(&world), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_in_the_catalogue_until_all_is_in_force() {
    let mut world = World::new();
    world.tell(vec![pod("a")]);
    world.put(1, "a");
    assert_eq!(world.catalogue().behind, None);
    let clock = TestClock::default();
    clock.advance(Duration::from_secs(5));
    world.policing.clock = Arc::new(clock);
    world.maps.full = true;
    world.tell(vec![deny()]);
    let behind = world.catalogue().behind.unwrap();
    assert!(behind.at_ms == 5000 && behind.why.contains("the map is full"), "{behind:?}");
    // Another agent that is refused as well: since when it is behind stays.
    world.restart(vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), deny()]);
    assert_eq!(world.catalogue().behind.unwrap().at_ms, behind.at_ms);
    world.maps.full = false;
    // The next one writes what was refused.
    world.restart(vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), deny()]);
    assert_eq!(world.catalogue().behind, None);
    assert!(world.rules(1) != OPEN);
}

#[tokio::test(start_paused = true)]
async fn what_the_source_cannot_tell_is_in_the_catalogue_once() {
    let mut world = World::new();
    let lines = |world: &World| {
        let text = std::fs::read_to_string(osmia_maps::catalogue::path(world.run.path())).unwrap();
        text.lines().filter(|line| line.contains("\"source\"")).count()
    };
    world.policing.source(Vec::new());
    let problems: Vec<String> = (0..30).map(|n| format!("pod {n}: unreadable")).collect();
    world.policing.source(problems.clone());
    world.policing.source(problems);
    assert_eq!(lines(&world), 2);
    let said = world.catalogue().source;
    assert_eq!((said.len(), said[20].as_str()), (21, "10 more, which the log names"));
    // A new agent does not believe the one before.
    world.restart(Vec::new());
    world.policing.source(Vec::new());
    assert!(world.catalogue().source.is_empty());
}

/// A pod whose rules allow all pods of its namespace, and room for two of these.
fn with_little_room() -> World {
    let mut world = World::new();
    let rule = Rule {
        peers: Peers::Of([Peer::Pods { namespaces: Namespaces::Own, pods: Selector::default() }].into()),
        ports: Ports::All,
    };
    let policy = PolicyObject { uid: "u".into(), ingress: Some([rule].into()), ..PolicyObject::default() };
    world.tell(vec![pod("a"), Event::Policy(key("some"), policy)]);
    world.put(1, "a");
    world.policing.policies.as_mut().unwrap().limit_peers(2);
    world
}

fn at(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

/// A pod of the namespace comes.
fn comes(world: &mut World, host: u8) -> Option<CrowdedOut> {
    let pod = PodObject { ips: [at(host)].into(), ..PodObject::default() };
    world.tell(vec![Event::Pod(key(&format!("p{host}")), pod)]);
    world.catalogue().crowded_out
}

#[tokio::test(start_paused = true)]
async fn a_catalogue_that_takes_no_line_of_addresses_without_room_is_said_once() {
    let mut world = with_little_room();
    assert_eq!(comes(&mut world, 5), None);
    world.policing.catalogue.refuse(true);
    let said = logged(|| (10..30).for_each(|host| _ = comes(&mut world, host)));
    assert_eq!(said.matches("does not say which addresses have no room").count(), 1, "{said}");
    world.policing.catalogue.refuse(false);
    assert_eq!(comes(&mut world, 30), Some(CrowdedOut { addresses: 21, lowest: at(10) }));
    world.policing.catalogue.refuse(true);
    let said = logged(|| _ = comes(&mut world, 31));
    assert_eq!(said.matches("does not say which addresses have no room").count(), 1, "{said}");
}

#[tokio::test(start_paused = true)]
async fn addresses_without_room_are_in_the_catalogue_while_they_have_none() {
    let mut world = with_little_room();
    assert_eq!(comes(&mut world, 7), None);
    let out = |addresses, host| Some(CrowdedOut { addresses, lowest: at(host) });
    assert_eq!(comes(&mut world, 9), out(1, 9), "nothing is written for it");
    assert_eq!(comes(&mut world, 5), out(2, 7));
    // Another agent, which has room.
    world.restart(vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a")]);
    assert_eq!(world.catalogue().crowded_out, None);
}
