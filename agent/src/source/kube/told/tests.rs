//! What is told and what a copy knows, over lists and starts.

use tempfile::TempDir;

use super::*;
use crate::model::{Cluster, Name, NodeObject, PodObject, PolicyObject, Requirement, Selector};

struct World {
    dir: TempDir,
    told: Told,
    /// All that was told.
    cluster: Cluster,
}

impl World {
    fn open(dir: TempDir) -> (Self, Vec<Event>) {
        let (told, events) = Told::open(&dir.path().join("kube")).unwrap();
        let mut world = Self { dir, told, cluster: Cluster::default() };
        world.apply(&events);
        (world, events)
    }

    fn apply(&mut self, events: &[Event]) {
        for event in events {
            self.cluster.apply(event.clone());
        }
    }

    fn take(&mut self, kind: Kind, news: impl IntoIterator<Item = News>) -> Vec<Event> {
        let mut events = Vec::new();
        for news in news {
            self.told.take(kind, news, &mut events);
        }
        self.told.save();
        self.apply(&events);
        events.retain(|event| !matches!(event, Event::Told(_)));
        events
    }

    fn restart(self) -> (Self, Vec<Event>) {
        drop(self.told);
        Self::open(self.dir)
    }
}

fn node(name: &str, uid: &str) -> News {
    let object = NodeObject { uid: uid.into(), ..NodeObject::default() };
    News::Is(Key::Node(name.into()), Ok(Object::Node(name.into(), object)))
}

fn gone(name: &str) -> Event {
    Event::NodeGone(name.into())
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|e| if let Event::Node(name, _) = e { name.as_str() } else { "?" }).collect()
}

#[test]
fn what_is_told_twice_is_told_once() {
    let (mut world, _) = World::open(TempDir::new().unwrap());
    assert_eq!(world.take(Kind::Node, [News::Begin, node("a", "1"), node("a", "1"), News::End]).len(), 1);
    assert_eq!(world.take(Kind::Node, [node("a", "1")]), []);
    assert_eq!(names(&world.take(Kind::Node, [node("a", "2")])), ["a"]);
}

#[test]
fn a_list_tells_what_went_while_nobody_watched() {
    let (mut world, _) = World::open(TempDir::new().unwrap());
    world.take(Kind::Node, [News::Begin, node("a", "1"), node("b", "1"), News::End, node("c", "1")]);
    assert_eq!(world.take(Kind::Node, [News::Begin, node("b", "1")]), [], "an unfinished list takes nothing away");
    let events = world.take(Kind::Node, [News::Begin, node("b", "1"), News::End]);
    assert_eq!(events, [gone("a"), gone("c")]);
    assert_eq!(world.take(Kind::Node, [News::Gone(Key::Node("b".into()))]), [gone("b")]);
    assert_eq!(world.take(Kind::Node, [News::Gone(Key::Node("b".into()))]), []);
}

#[test]
fn what_cannot_be_read_stays_as_it_was_and_is_said() {
    let (mut world, _) = World::open(TempDir::new().unwrap());
    let bad = || News::Is(Key::Node("a".into()), Err("no address".into()));
    world.take(Kind::Node, [News::Begin, node("a", "1"), News::End]);
    assert_eq!(world.take(Kind::Node, [bad(), News::Begin, bad(), News::End]), []);
    assert_eq!(world.told.problems().collect::<Vec<_>>(), ["Node(\"a\"): no address"]);
    assert_eq!(world.take(Kind::Node, [node("a", "1")]), []);
    assert_eq!(world.told.problems().count(), 0);
}

#[test]
fn a_restart_knows_it_all_once_every_kind_was_listed() {
    let (mut world, _) = World::open(TempDir::new().unwrap());
    let pod = Object::Pod("n".into(), "p".into(), PodObject { uid: "1".into(), ..PodObject::default() });
    world.take(Kind::Node, [News::Begin, node("a", "1"), node("b", "1"), News::End]);
    world.take(Kind::Pod, [News::Begin, News::Is(Key::of(&pod), Ok(pod.clone())), News::End]);
    let (mut world, events) = world.restart();
    assert_eq!(events.len(), 3, "nothing says that it is all: {events:?}");
    assert!(!world.told.has_copy(), "no policy was asked for yet");
    for of in Kind::ALL {
        let own = [node("a", "1"), News::Is(Key::of(&pod), Ok(pod.clone()))].into_iter();
        let own = own.filter(|news| matches!(news, News::Is(key, _) if kind(key) == of));
        world.take(of, [News::Begin].into_iter().chain(own).chain([News::End]));
    }
    let (world, events) = world.restart();
    assert!(world.told.has_copy() && !world.told.is_complete());
    assert!(Kind::ALL.iter().all(|kind| events.contains(&Event::Remembered(*kind))));
    assert_eq!(events.len(), 2 + KINDS, "and what went stays gone: {events:?}");
}

/// Each kind listed, with a node and a policy.
fn all() -> Vec<(Kind, Vec<News>)> {
    let policy = Object::Policy("n".into(), "p".into(), PolicyObject::default());
    let of = |kind| match kind {
        Kind::Node => vec![node("a", "1")],
        Kind::Policy => vec![News::Is(Key::of(&policy), Ok(policy.clone()))],
        Kind::Namespace | Kind::Pod => vec![],
    };
    Kind::ALL.map(|kind| (kind, [vec![News::Begin], of(kind), vec![News::End]].into_iter().flatten().collect())).into()
}

#[test]
fn a_copy_of_which_something_cannot_be_read_is_not_lived_by_and_is_mended() {
    for damage in [r#"[{"Object":{"Policy":["n","p"]}},{"subject":7}]"#, "nonsense"] {
        let (mut world, _) = World::open(TempDir::new().unwrap());
        for (kind, news) in all() {
            world.take(kind, news);
        }
        let path = world.dir.path().join("kube");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{damage}\n")).unwrap();
        let (world, events) = world.restart();
        assert!(
            !world.told.has_copy() && !events.iter().any(|event| matches!(event, Event::Remembered(_))),
            "{damage}"
        );
        let mended = std::fs::read_to_string(&path).unwrap();
        let (mut world, _) = world.restart();
        assert!(!world.told.has_copy(), "nor by the next start: {damage}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), mended, "which has nothing to say");
        for (kind, news) in all() {
            world.take(kind, news);
        }
        let (world, events) = world.restart();
        assert!(world.told.has_copy() && events.len() == 2 + KINDS, "{damage}: {events:?}");
    }
}

#[test]
fn a_kind_of_which_an_object_cannot_be_read_is_not_told_to_be_all_there() {
    let key = || Key::Policy(Name::new("n", "p"));
    let bad = || News::Is(key(), Err("no selector".into()));
    let good = || News::Is(key(), Ok(Object::Policy("n".into(), "p".into(), PolicyObject::default())));
    let whole = [Event::Told(Kind::Policy)];
    for way_out in [vec![good()], vec![News::Gone(key())], vec![News::Begin, News::End]] {
        let (mut world, _) = World::open(TempDir::new().unwrap());
        let mut events = Vec::new();
        for (kind, news) in all() {
            let news = if kind == Kind::Policy { vec![News::Begin, bad(), News::End] } else { news };
            news.into_iter().for_each(|news| world.told.take(kind, news, &mut events));
        }
        assert!(world.told.is_complete() && !events.contains(&whole[0]) && !world.told.has_copy(), "{events:?}");
        events.clear();
        for news in way_out {
            world.told.take(Kind::Policy, news, &mut events);
        }
        assert!(events.ends_with(&whole) && world.told.problems().count() == 0, "{events:?}");
        // What was good once holds, over a restart too; what never was does not.
        let other = News::Is(Key::Policy(Name::new("n", "q")), Err("no selector".into()));
        for (bad, is_told) in [(bad(), true), (other, false)] {
            world.take(Kind::Policy, [News::Begin, good(), News::End]);
            let (mut again, _) = world.restart();
            assert!(again.told.has_copy());
            events.clear();
            for news in [News::Begin, bad, News::End] {
                again.told.take(Kind::Policy, news, &mut events);
            }
            assert_eq!(events.contains(&whole[0]), is_told, "{events:?}");
            world = again;
        }
    }
}

#[test]
fn a_policy_or_namespace_that_comes_and_cannot_be_read_isolates_pods_that_come_then() {
    let mut world = listed(vec![pod("p", "web")], vec![policy("known", "1")]);
    let bad = |key: &Key| News::Is(key.clone(), Err("no selector".into()));
    for (key, known) in [
        (Key::Policy(Name::new("n", "known")), true),
        (Key::Node("a".into()), true),
        (Key::Pod(Name::new("n", "bad")), true),
        (Key::Policy(Name::new("n", "new")), false),
        (Key::Namespace("new".into()), false),
    ] {
        let kind = kind(&key);
        world.take(kind, [bad(&key)]);
        world.take(Kind::Pod, [pod("p", "web"), pod("new", "web")]);
        let early = if known { vec![] } else { vec!["new"] };
        assert_eq!((world.cluster.is_old(), world.early()), (!known, early), "{key:?}");
        assert!(world.told.problems().any(|problem| problem.contains("no selector")), "{key:?}");
        world.take(kind, [News::Gone(key)]);
        world.take(Kind::Pod, [News::Gone(Key::Pod(Name::new("n", "new")))]);
        assert!(!world.cluster.is_old());
        assert_eq!(world.told.problems().count(), 0);
    }
}

fn pod(name: &str, app: &str) -> News {
    let labels = [("app".into(), app.into())].into_iter().collect();
    let object = PodObject { labels: std::sync::Arc::new(labels), ..PodObject::default() };
    let object = Object::Pod("n".into(), name.into(), object);
    News::Is(Key::of(&object), Ok(object))
}

/// One that isolates pods with a label of its uid.
fn policy(name: &str, uid: &str) -> News {
    let subject = Selector([Requirement::Exists(uid.into())].into_iter().collect());
    rules(name, PolicyObject { uid: uid.into(), subject, ..PolicyObject::default() })
}

fn rules(name: &str, object: PolicyObject) -> News {
    let object = Object::Policy("n".into(), name.into(), object);
    News::Is(Key::of(&object), Ok(object))
}

fn no_policy(name: &str) -> News {
    News::Gone(Key::Policy(Name::new("n", name)))
}

fn list(news: impl IntoIterator<Item = News>) -> Vec<News> {
    [News::Begin].into_iter().chain(news).chain([News::End]).collect()
}

/// A world of which all was listed, these pods and policies among it.
fn listed(pods: Vec<News>, policies: Vec<News>) -> World {
    let (mut world, _) = World::open(TempDir::new().unwrap());
    for kind in [Kind::Node, Kind::Namespace] {
        world.take(kind, list([]));
    }
    world.take(Kind::Pod, list(pods));
    world.take(Kind::Policy, list(policies));
    assert_eq!((world.cluster.untold(), world.cluster.is_old()), (vec![], false));
    world
}

/// Of a policy, one of these four.
fn uid(policy: &PolicyObject) -> &'static str {
    ["1", "2", "3", "4"].into_iter().find(|uid| policy.uid == **uid).unwrap()
}

impl World {
    fn early(&self) -> Vec<&str> {
        self.cluster.early.iter().map(Name::name).collect()
    }

    /// The policies, and the uid of each.
    fn policies(&self) -> Vec<(&str, &str)> {
        self.cluster.policies.iter().map(|(name, policy)| (name.name(), uid(policy))).collect()
    }

    /// Those that wait, and the uids of what each said meanwhile.
    fn waiting(&self) -> Vec<(&str, Vec<&str>)> {
        let waiting = self.cluster.waiting.iter();
        waiting.map(|(name, said)| (name.name(), said.iter().map(uid).collect())).collect()
    }
}

#[test]
fn a_pod_that_is_newer_than_the_policies_is_known_to_be_over_any_number_of_starts() {
    let mut world = listed(vec![pod("same", "web"), pod("other", "web"), pod("gone", "web")], vec![]);
    for start in 1..4 {
        (world, _) = world.restart();
        assert!(world.cluster.is_old());
        let early = if start == 1 { vec![] } else { vec!["new", "other"] };
        assert_eq!(world.early(), early, "start {start}");
        // Policies cannot be listed.
        let pods = [pod("same", "web"), pod("other", "db"), pod("new", "db"), pod("gone", "db")];
        world.take(Kind::Pod, list(pods));
        world.take(Kind::Pod, [News::Gone(Key::Pod(Name::new("n", "gone")))]);
        world.take(Kind::Namespace, list([]));
        assert_eq!(world.early(), ["new", "other"], "start {start}");
    }
    world.take(Kind::Policy, list([]));
    assert!(!world.cluster.is_old() && world.early().is_empty());
    let (world, _) = world.restart();
    assert!(world.cluster.is_old() && world.early().is_empty(), "the copy has policies as new as these");
}

#[test]
fn a_policy_changes_or_goes_only_once_pods_are_listed() {
    let before = [("changed", "1"), ("gone", "1"), ("same", "1")];
    let policies = || before.map(|(name, uid)| policy(name, uid)).into();
    let (mut world, _) = listed(vec![pod("p", "web")], policies()).restart();
    world.take(Kind::Namespace, list([]));
    world.take(Kind::Policy, list([policy("changed", "2"), policy("new", "1"), policy("same", "1")]));
    let mixed = [("changed", "1"), ("gone", "1"), ("new", "1"), ("same", "1")];
    assert_eq!(world.policies(), mixed, "a pod may have other labels by now");
    assert!(world.cluster.is_old(), "so a pod that is newer is not judged");
    assert!(world.told.problems().any(|problem| problem.contains("2 isolate others or went")));
    // Nor does the copy know more.
    let (mut world, _) = world.restart();
    assert_eq!(world.policies(), mixed);
    world.take(Kind::Namespace, list([]));
    world.take(Kind::Policy, list([policy("changed", "2"), policy("new", "1"), policy("same", "1")]));
    // It comes and goes, and comes again, meanwhile.
    world.take(Kind::Policy, [policy("changed", "3"), no_policy("changed"), policy("changed", "4"), no_policy("new")]);
    assert_eq!(world.policies(), mixed);
    world.take(Kind::Pod, [News::Begin, pod("p", "db")]);
    assert_eq!((world.policies(), world.early()), (mixed.into(), vec!["p"]));
    world.take(Kind::Pod, [News::End]);
    let after = [("changed", "4"), ("same", "1")];
    assert_eq!((world.policies(), world.cluster.is_old(), world.early()), (after.into(), false, vec![]));
    assert_eq!(world.told.problems().count(), 0);
    let (world, _) = world.restart();
    assert_eq!((world.policies(), world.early()), (after.into(), vec![]));
}

/// A world in which a policy says something else by now, in this order, while pods cannot be listed.
fn waiting(policies: Vec<News>) -> World {
    let (mut world, _) = listed(vec![], vec![policy("p", "1")]).restart();
    world.take(Kind::Namespace, list([]));
    world.take(Kind::Policy, list([policy("p", "1")]));
    world.take(Kind::Policy, policies);
    assert_eq!(world.policies(), [("p", "1")]);
    world
}

#[test]
fn what_a_policy_says_while_it_waits_is_known_to_the_model_over_any_number_of_starts() {
    for gone in [false, true] {
        let last = if gone { no_policy("p") } else { policy("p", "3") };
        let mut world = waiting(vec![policy("p", "2"), last]);
        let said: &[&str] = if gone { &["2"] } else { &["2", "3"] };
        for start in 0..3 {
            assert_eq!((world.policies(), world.waiting()), (vec![("p", "1")], vec![("p", said.to_vec())]), "{start}");
            assert!(world.cluster.is_old());
            (world, _) = world.restart();
        }
        // Pods are listed before policies are, of which another one may isolate them.
        world.take(Kind::Namespace, list([]));
        world.take(Kind::Pod, list([]));
        assert_eq!((world.policies(), world.waiting()), (vec![("p", "1")], vec![("p", said.to_vec())]));
        // What is listed is what waits: nothing is news, and yet it counts now.
        world.take(Kind::Policy, list((!gone).then(|| policy("p", "3"))));
        let now = if gone { vec![] } else { vec![("p", "3")] };
        for _ in 0..2 {
            assert_eq!((world.policies(), world.waiting()), (now.clone(), vec![]), "{gone}");
            (world, _) = world.restart();
        }
    }
}

#[test]
fn what_waits_and_is_as_it_was_before_waits_no_more() {
    let world = waiting(vec![policy("p", "2")]);
    let (mut world, _) = world.restart();
    world.take(Kind::Policy, list([policy("p", "1")]));
    assert_eq!(world.waiting(), [("p", vec!["2", "1"])], "whom it isolated meanwhile nobody else may");
    world.take(Kind::Namespace, list([]));
    world.take(Kind::Pod, list([]));
    assert_eq!((world.policies(), world.waiting(), world.cluster.is_old()), (vec![("p", "1")], vec![], false));
    let (world, _) = world.restart();
    assert_eq!((world.policies(), world.waiting()), (vec![("p", "1")], vec![]));
}

#[test]
fn other_rules_for_the_same_pods_wait_for_nobody() {
    let of = |uid: &str, egress: bool| {
        let egress = egress.then(|| [].into());
        rules("p", PolicyObject { uid: uid.into(), ingress: Some([].into()), egress, ..PolicyObject::default() })
    };
    let (mut world, _) = listed(vec![], vec![of("1", true)]).restart();
    world.take(Kind::Namespace, list([]));
    world.take(Kind::Policy, list([of("2", true)]));
    assert_eq!((world.policies(), world.cluster.is_old()), (vec![("p", "2")], false));
    // A direction less ends an isolation.
    world.take(Kind::Policy, [of("3", false)]);
    assert_eq!((world.policies(), world.cluster.is_old()), (vec![("p", "2")], true));
    world.take(Kind::Policy, [of("4", true)]);
    assert_eq!(world.policies(), [("p", "2")], "what came before waits");
    world.take(Kind::Pod, list([]));
    assert_eq!((world.policies(), world.cluster.is_old()), (vec![("p", "4")], false));
}

#[test]
fn who_isolates_more_waits_for_nobody() {
    let of = |uid: &str, app: Option<&str>, egress: bool| {
        let subject = Selector(
            app.into_iter().map(|app| Requirement::In("app".into(), [app.into()].into_iter().collect())).collect(),
        );
        let egress = egress.then(|| [].into());
        rules(
            "p",
            PolicyObject { uid: uid.into(), subject, ingress: Some([].into()), egress, ..PolicyObject::default() },
        )
    };
    for (before, after, waits) in [
        ((Some("web"), false), (None, false), false),
        ((Some("web"), false), (Some("web"), true), false),
        ((Some("web"), false), (None, true), false),
        ((Some("web"), true), (None, false), true),
        ((None, false), (Some("web"), false), true),
        ((Some("web"), false), (Some("db"), true), true),
    ] {
        let (mut world, _) = listed(vec![], vec![of("1", before.0, before.1)]).restart();
        world.take(Kind::Namespace, list([]));
        world.take(Kind::Policy, list([of("2", after.0, after.1)]));
        let uid = if waits { "1" } else { "2" };
        assert_eq!((world.policies(), world.cluster.is_old()), (vec![("p", uid)], waits), "{before:?} {after:?}");
    }
}

#[test]
fn what_waits_and_is_not_in_the_next_list_is_gone() {
    let (mut world, _) = listed(vec![], vec![policy("a", "1"), policy("b", "1")]).restart();
    for kind in [Kind::Namespace, Kind::Pod] {
        world.take(kind, list([]));
    }
    // A list that ends before its end.
    world.take(Kind::Policy, [News::Begin, policy("a", "2")]);
    world.take(Kind::Policy, list([policy("b", "1")]));
    assert_eq!((world.policies(), world.cluster.is_old()), (vec![("b", "1")], false));
    let (world, _) = world.restart();
    assert_eq!(world.policies(), [("b", "1")]);
}

#[test]
fn what_is_listed_anew_is_only_remembered_until_the_list_is_complete() {
    let mut world = listed(vec![pod("p", "web")], vec![policy("a", "1"), policy("b", "1")]);
    world.take(Kind::Policy, [News::Begin, policy("a", "2")]);
    assert!(world.cluster.is_old(), "some policy may be missing");
    assert_eq!(world.policies(), [("a", "1"), ("b", "1")], "whom it isolated another one may, which comes later");
    world.take(Kind::Pod, [pod("new", "web"), pod("p", "web")]);
    assert_eq!(world.early(), ["new"]);
    world.take(Kind::Policy, [policy("c", "1"), News::End]);
    assert_eq!((world.cluster.is_old(), world.early()), (false, vec![]));
    assert_eq!(world.policies(), [("a", "2"), ("c", "1")]);
    // Of pods as well: a policy that changed with them waits for them.
    world.take(Kind::Pod, [News::Begin]);
    assert!(!world.cluster.is_old());
    world.take(Kind::Policy, [policy("a", "3")]);
    assert_eq!((world.policies(), world.cluster.is_old()), (vec![("a", "2"), ("c", "1")], true));
    world.take(Kind::Pod, [pod("new", "web"), pod("p", "db"), News::End]);
    assert_eq!((world.policies(), world.cluster.is_old()), (vec![("a", "3"), ("c", "1")], false));
    assert!(world.told.has_copy());
}

#[tokio::test(start_paused = true)]
async fn a_start_does_not_live_by_a_copy_that_is_older_than_the_policies_that_were_in_force() {
    let ns = || {
        let object = Object::Namespace("n".into(), crate::model::NamespaceObject::default());
        News::Is(Key::of(&object), Ok(object))
    };
    let News::Is(key, Ok(Object::Pod(of, name, completed))) = pod("p", "web") else { unreachable!() };
    let completed = News::Is(key, Ok(Object::Pod(of, name, PodObject { completed: true, ..completed })));
    // What the disk refuses, and whether policy depends on it.
    let cases = [
        (Kind::Node, node("a", "2"), false),
        (Kind::Pod, pod("new", "web"), false),
        (Kind::Pod, pod("p", "db"), true),
        (Kind::Pod, News::Gone(Key::Pod(Name::new("n", "p"))), true),
        (Kind::Pod, completed, true),
        (Kind::Policy, policy("new", "1"), true),
        (Kind::Policy, no_policy("deny"), true),
        (Kind::Namespace, ns(), true),
        // Which waits.
        (Kind::Policy, policy("deny", "2"), true),
    ];
    for (kind, news, depends) in cases {
        let case = format!("{news:?}");
        let mut world = listed(vec![pod("p", "web")], vec![policy("deny", "1")]);
        let waits = case.contains("\"deny\"") && case.starts_with("Is(");
        world.told.miss_pods(waits, &mut Vec::new());
        world.told.copy.refuse(true);
        world.take(kind, [news]);
        let (world, events) = world.restart();
        let is_lived_by = events.contains(&Event::Remembered(Kind::Policy));
        assert_eq!(is_lived_by, !depends, "{case}");
        assert_eq!(world.told.has_copy(), !depends, "{case}");
    }
}
