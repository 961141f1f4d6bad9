//! What is said of policies at their objects.

use super::{super::enforce::SLOW, *};
use crate::model::policy::{Peers, Ports, Rule};

#[tokio::test(start_paused = true)]
async fn a_policy_that_cannot_be_brought_into_force_is_told_of_once_and_another_never() {
    let mut world = World::new();
    world.tell(vec![pod("a"), deny()]);
    world.put(1, "a");
    assert_eq!(world.notices(), []);
    world.maps.full = true;
    let allow = |uid: &str| {
        let (uid, subject) = (uid.into(), Selector::default());
        let rule = Rule { peers: Peers::Anyone, ports: Ports::All };
        Event::Policy(
            key("allow"),
            PolicyObject { uid, subject, ingress: Some([rule].into()), ..PolicyObject::default() },
        )
    };
    world.tell(vec![allow("u")]);
    for _ in 0..20 {
        world.policing.try_again(&mut world.maps);
        world.tell(vec![Event::PolicyGone(key("allow")), allow("u"), pod("b"), Event::PodGone(key("b"))]);
    }
    assert_eq!(world.notices(), [(Reason::ChangeFailed, "allow".to_owned())]);
    world.maps.full = false;
    world.policing.try_again(&mut world.maps);
    assert_eq!(world.policing.retry_at(), None);
    assert_eq!(world.notices(), []);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_took_long_and_parts_that_are_refused_are_told_of_at_their_policy() {
    let mut world = World::new();
    world.tell(vec![pod("a"), deny()]);
    world.put(1, "a");
    let refused = |name: &str, parts: &[&str]| {
        let refused = parts.iter().map(|part| (*part).to_owned()).collect();
        Event::Policy(key(name), PolicyObject { refused, uid: name.into(), ..PolicyObject::default() })
    };
    world.tell(vec![refused("odd", &["spec"]), refused("good", &[])]);
    assert_eq!(world.notices(), [(Reason::PartRefused, "odd".to_owned())]);
    let since = Instant::now();
    tokio::time::advance(SLOW).await;
    world.policing.take(&mut world.maps, vec![refused("odd", &["spec", "more"])], since);
    assert_eq!(world.notices(), []);
    tokio::time::advance(Duration::from_secs(1)).await;
    world.policing.take(&mut world.maps, vec![refused("good", &["spec"])], since);
    assert_eq!(world.notices(), [(Reason::PartRefused, "good".to_owned()), (Reason::ChangeSlow, "good".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_waited_came_when_it_came_to_wait() {
    let mut world = World::new();
    world.tell(vec![pod("a"), deny()]);
    world.put(1, "a");
    let of = |name: &str| {
        let Event::Policy(_, policy) = deny() else { unreachable!() };
        PolicyObject { uid: name.into(), ..policy }
    };
    world.tell(vec![Event::Waits(key("deny"), vec![of("deny")])]);
    let took = |world: &World, name: &str| {
        let catalogue = world.catalogue();
        let (_, at) = catalogue.policies.iter().find(|(policy, _)| policy.name == name).unwrap();
        (at.generation, Duration::from_micros(at.took_us).as_secs(), catalogue.in_force.unwrap().took_us / 1_000_000)
    };
    let (before, ..) = took(&world, "deny");
    tokio::time::advance(SLOW).await;
    world.tell(vec![Event::Waits(key("deny"), vec![of("deny"), of("more")])]);
    assert_eq!(took(&world, "deny").0, before, "what waits is not in force");
    tokio::time::advance(SLOW).await;
    assert_eq!(world.notices(), []);
    world.tell(vec![Event::Policy(key("deny"), of("more")), Event::Policy(key("new"), of("new"))]);
    assert_eq!(world.notices(), [(Reason::ChangeSlow, "deny".to_owned())], "and not another that came just now");
    assert_eq!((took(&world, "deny").1, took(&world, "new").1, took(&world, "new").2), (20, 0, 20));
    world.tell(vec![Event::Policy(key("deny"), of("again"))]);
    assert_eq!((took(&world, "deny").1, world.notices()), (0, vec![]), "it does not wait any more");
}

#[tokio::test(start_paused = true)]
async fn of_names_that_come_and_go_while_a_change_is_refused_none_is_kept_and_none_stays() {
    let mut world = World::new();
    world.tell(vec![pod("a"), deny()]);
    world.put(1, "a");
    world.maps.stuck = true;
    let named = |name: &str| {
        let Event::Policy(_, policy) = deny() else { unreachable!() };
        Event::Policy(key(name), policy)
    };
    world.tell(vec![Event::PolicyGone(key("deny"))]);
    for n in 0..50 {
        let name = format!("p{n}");
        world.tell(vec![named(&name)]);
        world.tell(vec![Event::PolicyGone(key(&name))]);
    }
    world.tell(vec![named("last")]);
    let of = |names: &[&str]| names.iter().map(|name| key(name)).collect::<BTreeSet<_>>();
    assert_eq!(world.policing.news.policies.keys().cloned().collect::<BTreeSet<_>>(), of(&["deny", "last"]));
    world.maps.stuck = false;
    world.policing.try_again(&mut world.maps);
    let known: Vec<_> = world.catalogue().policies.into_keys().map(|policy| policy.name).collect();
    assert_eq!(known, ["last"]);
}
