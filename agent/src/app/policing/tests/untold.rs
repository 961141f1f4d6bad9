//! While the source has not told all.

use super::*;

#[tokio::test(start_paused = true)]
async fn before_the_source_has_told_all_rows_stay_as_they_are() {
    let mut world = World::new();
    world.tell(vec![pod("a"), deny()]);
    world.put(1, "a");
    let rules = world.rules(1);
    world.kill();
    world.tell(vec![pod("a")]);
    assert_eq!(world.rules(1), rules);
    // Put again, as a start does whose programs are not on the link; and another endpoint.
    assert_eq!(world.put(1, "a"), rules);
    assert_eq!(world.put(2, "b"), SHUT);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_open_until_each_kind_was_told() {
    let mut world = World::new();
    let namespace = || Event::Namespace("ns".into(), NamespaceObject::default());
    world.tell(vec![pod("a")]);
    assert_eq!(world.put(1, "a"), OPEN);
    let locals = world.policing.locals.clone();
    world.kill();
    // All but the policies, so that none seems to be there.
    let told = [Kind::Node, Kind::Namespace, Kind::Pod].map(Event::Told);
    world.tell([namespace(), pod("a"), pod("b")].into_iter().chain(told).collect());
    world.policing.begin(&mut world.maps, locals);
    assert!(world.policing.awaits(&local(2, "b", "")), "an ADD waits for them");
    assert_eq!((world.rules(1), world.put(2, "b")), (OPEN, SHUT), "rules stay, and who comes is isolated");
    assert_eq!((world.policing.counts().provisional, world.policing.counts().refused), (2, 0));
    assert!(!world.is_in_force());
    let catalogue = world.catalogue();
    let behind = catalogue.behind.expect("policy that has not begun is not in force");
    assert!(behind.why.contains("waits for the source to tell all") && behind.why.contains("Policy"), "{behind:?}");
    assert_eq!(catalogue.endpoints[&2].as_ref().unwrap().to_string(), "ns/b", "who is shut has a name");
    let told = world.policing.told();
    world.tell(vec![deny(), Event::Told(Kind::Policy)]);
    assert!(told.has_changed().unwrap() && world.is_in_force() && !world.policing.awaits(&local(2, "b", "")));
    assert!(world.rules(1) > SHUT && world.rules(1) == world.rules(2), "{:?}", world.rules(1));
    assert_eq!(world.catalogue().behind, None);
}

#[tokio::test(start_paused = true)]
async fn what_policy_waits_for_is_said_as_it_becomes_less() {
    let mut world = World::new();
    world.kill();
    world.policing.begin(&mut world.maps, BTreeMap::new());
    let why = |world: &World| world.catalogue().behind.map(|behind| behind.why).unwrap_or_default();
    assert!(why(&world).contains("Namespace") && why(&world).contains("Policy"), "{}", why(&world));
    world.tell([Kind::Node, Kind::Namespace].map(Event::Remembered).into());
    assert!(!why(&world).contains("Namespace") && why(&world).contains("Policy"), "{}", why(&world));
    world.tell(vec![Event::Told(Kind::Pod)]);
    assert!(why(&world).ends_with("[Policy]"), "{}", why(&world));
    world.tell(vec![Event::Told(Kind::Policy)]);
    assert_eq!(why(&world), "");
}

#[test]
fn an_add_waits_only_where_policy_depends_on_what_is_not_told() {
    let run = TempDir::new().unwrap();
    let ((mut policing, _), mut maps) = (agent(&run), Maps::default());
    policing.take(&mut maps, all(), Instant::now());
    assert!(policing.awaits(&local(1, "a", "")), "the namespace is not known");
    let mut tell = |events| _ = policing.take(&mut maps, events, Instant::now());
    tell(vec![Event::Namespace("ns".into(), NamespaceObject::default())]);
    assert!(!policing.awaits(&local(1, "a", "")), "no policy is known at all");
    let mut tell = |events| _ = policing.take(&mut maps, events, Instant::now());
    tell(vec![Event::Policy(Name::new("other", "p"), PolicyObject::default())]);
    assert!(policing.awaits(&local(1, "a", "")));
    let mut tell = |events| _ = policing.take(&mut maps, events, Instant::now());
    let named = PodObject { uid: "now".into(), ..PodObject::default() };
    tell(vec![Event::Pod(key("a"), named)]);
    assert!(policing.awaits(&local(1, "a", "next")), "what is told is another pod's of the name");
    assert!(!policing.awaits(&local(1, "a", "now")) && !policing.awaits(&local(1, "a", "")));
    assert!(!policing.awaits(&Local { pod: None, ..local(1, "a", "") }), "no policy is asked");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_newer_than_the_policies_that_are_remembered_is_isolated_until_they_are_listed() {
    let remembered = || Kind::ALL.map(Event::Remembered);
    let labeled = |name: &str| {
        let labels = [("app".into(), "other".into())].into_iter().collect();
        Event::Pod(key(name), PodObject { labels: Arc::new(labels), ..PodObject::default() })
    };
    let mut world = World::new();
    world.tell(vec![pod("a"), pod("b")]);
    assert_eq!((world.put(1, "a"), world.put(2, "b")), (OPEN, OPEN));
    let locals = world.policing.locals.clone();
    world.kill();
    let copy = [Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), pod("b"), pod("again")];
    world.tell(copy.into_iter().chain(remembered()).collect());
    world.policing.begin(&mut world.maps, locals);
    assert_eq!((world.rules(1), world.put(3, "again")), (OPEN, OPEN), "what is remembered is gone by");
    assert!(!world.policing.awaits(&local(3, "again", "")));
    // A policy of its namespace may be there that nobody told.
    let isolated = |rules: Rules| rules.egress > CLOSED && rules.ingress > CLOSED;
    assert!(world.policing.awaits(&local(4, "new", "")), "an ADD waits for its object");
    assert!(isolated(world.put(4, "new")), "which does not come in time");
    // Pods are listed, policies cannot be.
    let listed = [Kind::Node, Kind::Namespace, Kind::Pod].map(Event::Told);
    let early = ["b", "new"].map(|name| Event::Early(key(name)));
    world.tell(early.into_iter().chain([pod("new"), labeled("b")]).chain(listed).collect());
    assert!(isolated(world.rules(4)) && world.policing.awaits(&local(4, "new", "")));
    assert!(isolated(world.rules(2)), "by other labels another policy may select it");
    assert_eq!((world.rules(1), world.rules(3)), (OPEN, OPEN));
    assert_eq!((world.policing.counts().provisional, world.policing.counts().open), (2, 2));
    // So it is after one more start, which finds them in the copy.
    let locals = world.policing.locals.clone();
    world.kill();
    let early = ["b", "new"].map(|name| Event::Early(key(name)));
    let namespace = [Event::Namespace("ns".into(), NamespaceObject::default())];
    let copy = namespace.into_iter().chain([pod("a"), labeled("b"), pod("again"), pod("new")]);
    world.tell(copy.chain(remembered()).chain(early).collect());
    world.policing.begin(&mut world.maps, locals);
    assert!(isolated(world.rules(4)) && isolated(world.rules(2)) && world.policing.awaits(&local(4, "new", "")));
    assert_eq!((world.rules(1), world.rules(3)), (OPEN, OPEN));
    world.tell([Kind::Node, Kind::Namespace, Kind::Pod].map(Event::Told).into());
    world.tell(vec![Event::Told(Kind::Policy)]);
    assert!(!world.policing.awaits(&local(4, "new", "")));
    assert_eq!((world.rules(2), world.rules(4)), (OPEN, OPEN), "none was there");
    world.tell(vec![Event::PodGone(key("new"))]);
    assert_eq!(world.rules(4), OPEN, "its namespace is known, and that it has none");
    // Policies cannot be asked for any more.
    world.tell(vec![Event::Remembered(Kind::Policy)]);
    assert!(isolated(world.rules(4)) && isolated(world.put(5, "newer")), "nobody tells of a policy now");
    assert_eq!((world.rules(1), world.rules(2)), (OPEN, OPEN), "they were judged");
    world.tell(vec![Event::Told(Kind::Policy)]);
    assert_eq!((world.rules(4), world.rules(5)), (OPEN, OPEN));
}

#[tokio::test(start_paused = true)]
async fn it_is_in_force_when_all_of_it_was_once() {
    let mut world = World::new();
    assert!(world.is_in_force());
    world.tell(vec![pod("a")]);
    world.put(1, "a");
    let start = || vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), deny()];
    world.maps.unreadable = true;
    world.restart(start());
    assert!(!world.is_in_force(), "nothing could be read");
    (world.maps.unreadable, world.maps.full) = (false, true);
    world.policing.try_again(&mut world.maps);
    assert!(!world.is_in_force(), "nothing could be written");
    world.maps.full = false;
    world.policing.try_again(&mut world.maps);
    assert!(world.is_in_force());
    world.maps.full = true;
    world.tell(vec![Event::PolicyGone(key("deny"))]);
    assert!(world.is_in_force(), "what is refused later is told otherwise");
}
