//! The source over an apiserver that follows a script: what a real one says only now and then.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
};

use http::{Request, Response};
use kube::client::Body;
use tempfile::TempDir;

use super::*;
use crate::model::{Cluster, Kind, Name};

/// One answer.
enum Reply {
    /// Its body; a watch ends behind it.
    Text(String),
    /// The same, after a while.
    Later(Duration, String),
    /// A refusal.
    Status(u16),
}

/// What is answered to each kind, in order; then nothing any more.
#[derive(Default)]
struct Script {
    replies: BTreeMap<&'static str, VecDeque<Reply>>,
    /// The version of its state.
    newest: u64,
    /// The requests it got.
    asked: Vec<String>,
}

type Shared = Arc<Mutex<Script>>;

/// And how long it takes.
fn answer(script: &Shared, request: &Request<Body>) -> Option<(Duration, Response<Body>)> {
    let mut script = script.lock().unwrap();
    script.asked.push(request.uri().to_string());
    let kind = request.uri().path().rsplit('/').next().unwrap();
    let body = |text: &str| Body::from(text.as_bytes().to_vec());
    if request.uri().query() == Some("limit=1") {
        return Some((Duration::ZERO, Response::new(body(&list(&[], script.newest, "")))));
    }
    let mut after = Duration::ZERO;
    let response = match script.replies.get_mut(kind)?.pop_front()? {
        Reply::Text(text) => Response::new(body(&text)),
        Reply::Later(duration, text) => {
            after = duration;
            Response::new(body(&text))
        }
        Reply::Status(code) => {
            let status =
                format!(r#"{{"kind":"Status","status":"Failure","message":"no","reason":"no","code":{code}}}"#);
            Response::builder().status(code).body(body(&status)).unwrap()
        }
    };
    Some((after, response))
}

fn list(items: &[&str], version: u64, go_on: &str) -> String {
    format!(r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{go_on}"}},"items":[{}]}}"#, items.join(","))
}

fn node(name: &str, version: u64, address: &str) -> String {
    let addresses = format!(r#"[{{"type":"InternalIP","address":"{address}"}}]"#);
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}},"status":{{"addresses":{addresses}}}}}"#)
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// The end of a streaming list.
fn end(version: u64) -> String {
    let metadata = format!(r#"{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}"#);
    event("BOOKMARK", &format!(r#"{{"kind":"X","apiVersion":"v1","metadata":{metadata}}}"#))
}

struct World {
    script: Shared,
    source: KubeSource,
    cluster: Cluster,
    state: TempDir,
}

impl World {
    /// With these answers about nodes; of the other kinds there is nothing.
    fn new(newest: u64, nodes: impl IntoIterator<Item = Reply>) -> Self {
        Self::over(TempDir::new().unwrap(), newest, [("nodes", nodes.into_iter().collect())])
    }

    /// With these answers, and what a state folder holds; of the other kinds there is nothing.
    fn over(state: TempDir, newest: u64, answers: impl IntoIterator<Item = (&'static str, VecDeque<Reply>)>) -> Self {
        let mut script = Script { newest, ..Script::default() };
        for kind in ["nodes", "namespaces", "pods", "networkpolicies"] {
            script.replies.insert(kind, [Reply::Text(end(1))].into());
        }
        script.replies.extend(answers);
        let script = Arc::new(Mutex::new(script));
        let shared = Arc::clone(&script);
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = answer(&shared, &request);
            async move {
                match answer {
                    Some((after, answer)) => {
                        time::sleep(after).await;
                        Ok::<_, std::convert::Infallible>(answer)
                    }
                    None => future::pending().await,
                }
            }
        });
        let connection =
            Connection::over(Access::default(), vec![("fake".to_owned(), Client::new(service, "default"))]);
        let source = KubeSource::over(connection, Told::open(&state.path().join("kube")).unwrap());
        Self { script, source, cluster: Cluster::default(), state }
    }

    /// Follows it until the nodes are these; gives the events that it took.
    async fn until(&mut self, nodes: &[&str]) -> Vec<Event> {
        let mut all = self.source.first().await;
        loop {
            self.apply(&all);
            if self.cluster.nodes.keys().eq(nodes) {
                return all;
            }
            let next = time::timeout(Duration::from_secs(10), self.source.next()).await;
            let (events, _) = next.unwrap_or_else(|_| panic!("{:?} instead of {nodes:?}", self.cluster.nodes));
            all.extend(events);
        }
    }

    fn apply(&mut self, events: &[Event]) {
        for event in events {
            self.cluster.apply(event.clone());
        }
    }

    fn asked(&self, kind: &str) -> Vec<String> {
        self.script.lock().unwrap().asked.iter().filter(|uri| uri.contains(kind)).cloned().collect()
    }
}

#[tokio::test]
async fn a_streaming_list_then_a_watch_from_its_end() {
    let [a, b] = [("a", 5), ("b", 6)].map(|(name, version)| event("ADDED", &node(name, version, "192.0.2.1")));
    let mut world =
        World::new(9, [Reply::Text(format!("{a}{b}{}", end(7))), Reply::Text(event("DELETED", &node("a", 8, "")))]);
    world.until(&["b"]).await;
    let asked = world.asked("/nodes");
    assert!(asked[0].contains("sendInitialEvents=true") && !asked[0].contains("resourceVersion=0"), "{asked:?}");
    assert!(asked[2].contains("resourceVersion=7"), "{asked:?}");
    assert_eq!(world.source.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn a_version_that_is_forgotten_lists_anew_and_tells_what_went() {
    let first = [event("ADDED", &node("a", 5, "192.0.2.1")), event("ADDED", &node("b", 6, "192.0.2.2")), end(7)];
    let gone =
        r#"{"kind":"Status","status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#;
    let again = [event("ADDED", &node("b", 6, "192.0.2.2")), event("ADDED", &node("c", 20, "192.0.2.3")), end(21)];
    let replies = [first.concat(), event("ERROR", gone), again.concat()].map(Reply::Text);
    let events = World::new(21, replies).until(&["b", "c"]).await;
    let b = events.iter().filter(|event| matches!(event, Event::Node(name, _) if name == "b")).count();
    assert!(b == 1 && events.contains(&Event::NodeGone("a".into())), "{events:?}");
}

#[tokio::test]
async fn a_state_older_than_the_one_before_lists_anew() {
    let first = [event("ADDED", &node("a", 50, "192.0.2.1")), end(70)].concat();
    let again = [event("ADDED", &node("b", 20, "192.0.2.1")), end(30)].concat();
    // The second answer goes to a watch from 70, which this apiserver would leave without an answer for long.
    let mut world = World::new(30, [first, again].map(Reply::Text));
    world.until(&["b"]).await;
    let asked = world.asked("/nodes");
    assert!(asked.iter().filter(|uri| uri.contains("sendInitialEvents")).count() == 2, "{asked:?}");
}

#[tokio::test]
async fn without_streaming_lists_it_asks_for_pages() {
    let (a, b) = (node("a", 5, "192.0.2.1"), node("b", 6, "192.0.2.2"));
    let pages = [list(&[&a], 7, "more"), list(&[&b], 7, "")].map(Reply::Text);
    let mut world = World::new(7, [Reply::Status(422)].into_iter().chain(pages));
    world.until(&["a", "b"]).await;
    assert!(world.asked("/nodes").iter().any(|uri| uri.contains("continue=more")));
    assert_eq!(world.source.problems(), Vec::<String>::new(), "that is no problem");
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_a_problem_and_the_rest_goes_on() {
    let first =
        [event("ADDED", &node("a", 5, "nonsense")), event("ADDED", &node("b", 6, "192.0.2.2")), end(7)].concat();
    let mut world = World::new(8, [first, event("MODIFIED", &node("a", 8, "192.0.2.1"))].map(Reply::Text));
    world.until(&["b"]).await;
    let problems = world.source.problems();
    assert!(problems.len() == 1 && problems[0].contains("nonsense"), "{problems:?}");
    world.until(&["a", "b"]).await;
    assert_eq!(world.source.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_refused_is_a_problem_and_nothing_is_told_to_be_complete() {
    let mut world = World::new(7, [Reply::Status(403)]);
    let first = time::timeout(Duration::from_millis(100), world.source.first()).await;
    assert!(first.is_err(), "a cluster without nodes would be wrong");
    let problems = world.source.problems();
    assert!(problems.len() == 1 && problems[0].starts_with("nodes: fake: 403"), "{problems:?}");
}

/// A start over a copy of a cluster without pods and policies, at an apiserver that gives this answer about policies after a refusal.
async fn restarted(policies: Option<String>) -> World {
    let mut world = World::new(1, [Reply::Text(end(1))]);
    let first = world.source.first().await;
    assert!(Kind::ALL.iter().all(|kind| first.contains(&Event::Told(*kind))), "{first:?}");
    let pod = event("ADDED", r#"{"metadata":{"name":"p","namespace":"n","resourceVersion":"5"}}"#);
    let policies = [Reply::Status(403)].into_iter().chain(policies.map(Reply::Text)).collect();
    let answers = [("pods", [Reply::Text(pod + &end(9))].into()), ("networkpolicies", policies)];
    let mut world = World::over(world.state, 9, answers);
    let first = world.source.first().await;
    assert!(Kind::ALL.iter().all(|kind| first.contains(&Event::Remembered(*kind))), "{first:?}");
    assert!(!first.iter().any(|event| matches!(event, Event::Pod(..))), "it is of a list that is not whole: {first:?}");
    world.apply(&first);
    assert!(world.cluster.is_old());
    world
}

/// What is told next.
async fn next(world: &mut World) -> Vec<Event> {
    loop {
        let next = time::timeout(2 * TOGETHER, world.source.next()).await;
        let (events, _) = next.expect("nothing is told any more");
        if !events.is_empty() {
            return events;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_start_from_the_copy_a_pod_is_told_with_its_policies() {
    let policy = event("ADDED", r#"{"metadata":{"name":"deny","namespace":"n","resourceVersion":"6"}}"#);
    let mut world = restarted(Some(policy + &end(9))).await;
    let events = next(&mut world).await;
    let has = |is: fn(&Event) -> bool| events.iter().any(is);
    assert!(
        has(|event| matches!(event, Event::Pod(..))) && has(|event| matches!(event, Event::Policy(..))),
        "{events:?}"
    );
    world.apply(&events);
    assert!(!world.cluster.is_old() && world.cluster.early.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_listed_does_not_hold_the_others_up_for_good() {
    let mut world = restarted(None).await;
    let start = time::Instant::now();
    let events = next(&mut world).await;
    let told = |kind| events.contains(&Event::Told(kind));
    assert!(events.iter().any(|event| matches!(event, Event::Pod(..))) && told(Kind::Pod), "{events:?}");
    assert!(!told(Kind::Policy), "{events:?}");
    world.apply(&events);
    let pod = Name::new("n", "p");
    assert!(world.cluster.is_old() && world.cluster.early.contains(&pod), "no policy is told that may select it");
    assert_eq!(start.elapsed().as_secs(), TOGETHER.as_secs());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_for_any_more_is_only_remembered_until_it_is_listed_again() {
    let later = |seconds, name: &str| {
        let pod = format!(r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"5"}}}}"#);
        Reply::Later(Duration::from_secs(seconds), event("ADDED", &pod))
    };
    // The second pod comes when the right has been gone for long.
    let pods = [Reply::Text(end(1)), later(5, "before"), later(30, "after")].into();
    let refused = || (0..1000).map(|_| Reply::Status(403));
    let policies = [Reply::Text(end(1))].into_iter().chain(refused()).collect();
    let mut world = World::over(TempDir::new().unwrap(), 9, [("pods", pods), ("networkpolicies", policies)]);
    let first = world.source.first().await;
    world.apply(&first);
    assert!(world.cluster.untold().is_empty() && !world.cluster.is_old());
    let start = time::Instant::now();
    while !world.cluster.is_old() {
        let events = next(&mut world).await;
        world.apply(&events);
    }
    assert_eq!(start.elapsed().as_secs(), LAPSE.as_secs(), "not at once");
    assert_eq!(world.cluster.early.len(), 0, "what was told before is judged");
    let problems = world.source.problems();
    assert!(problems.iter().any(|problem| problem.contains("new pods are isolated")), "{problems:?}");
    let pod = |name: &str| Name::new("n", name);
    while !world.cluster.pods.contains_key(&pod("after")) {
        let events = next(&mut world).await;
        world.apply(&events);
    }
    assert_eq!(world.cluster.early.iter().map(Name::name).collect::<Vec<_>>(), ["after"]);
    let policy = event("ADDED", r#"{"metadata":{"name":"deny","namespace":"n","resourceVersion":"6"}}"#);
    world.script.lock().unwrap().replies.insert("networkpolicies", [Reply::Text(policy + &end(9))].into());
    while world.cluster.is_old() {
        let events = next(&mut world).await;
        world.apply(&events);
    }
    assert!(world.cluster.early.is_empty() && world.cluster.policies.contains_key(&pod("deny")));
    assert_eq!(world.source.problems(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_policy_goes_only_with_the_pods_that_changed_with_it() {
    // Pods may not be asked for, and what is answered cannot be read.
    for broken in [|| Reply::Status(403), || Reply::Text("nonsense\n".into())] {
        a_policy_goes_only_with_the_pods_whose_watch_is(broken).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_listed_anew_after_an_answer_that_cannot_be_read_and_none_since() {
    let policy = |kind| event(kind, r#"{"metadata":{"name":"deny","namespace":"n","resourceVersion":"6"}}"#);
    let silent = || Reply::Later(Duration::from_secs(3600), String::new());
    // The first list after it cannot be read either.
    let nonsense = || Reply::Text("nonsense\n".into());
    let pods = [Reply::Text(end(1)), nonsense(), silent(), nonsense(), silent(), Reply::Text(end(7)), silent()].into();
    let gone = Reply::Later(Duration::from_secs(1), policy("DELETED"));
    let policies = [Reply::Text(policy("ADDED") + &end(1)), gone, silent()].into();
    let mut world = World::over(TempDir::new().unwrap(), 9, [("pods", pods), ("networkpolicies", policies)]);
    let first = world.source.first().await;
    world.apply(&first);
    let start = time::Instant::now();
    while !world.cluster.policies.is_empty() {
        let events =
            time::timeout(5 * LAPSE, next(&mut world)).await.expect("the policy waits for the next news of pods");
        world.apply(&events);
    }
    assert!(start.elapsed() >= LAPSE, "nobody knew that no pod had changed");
    assert!(!world.cluster.is_old());
    assert_eq!(world.source.problems(), Vec::<String>::new());
    let lists = world.asked("/pods").iter().filter(|uri| uri.contains("sendInitialEvents")).count();
    assert!(lists <= 4, "{:?}", world.asked("/pods"));
}

async fn a_policy_goes_only_with_the_pods_whose_watch_is(broken: fn() -> Reply) {
    let labelled = |kind, app: &str| {
        let metadata = format!(r#"{{"name":"p","namespace":"n","resourceVersion":"5","labels":{{"app":"{app}"}}}}"#);
        event(kind, &format!(r#"{{"metadata":{metadata}}}"#))
    };
    let policy = |kind| event(kind, r#"{"metadata":{"name":"deny","namespace":"n","resourceVersion":"6"}}"#);
    let pods = [Reply::Text(labelled("ADDED", "web") + &end(1))].into_iter();
    let pods = pods.chain((0..1000).map(|_| broken())).collect();
    let gone = Reply::Later(Duration::from_secs(5), policy("DELETED"));
    let policies = [Reply::Text(policy("ADDED") + &end(1)), gone].into();
    let mut world = World::over(TempDir::new().unwrap(), 9, [("pods", pods), ("networkpolicies", policies)]);
    let first = world.source.first().await;
    world.apply(&first);
    assert!(world.cluster.untold().is_empty() && !world.cluster.is_old());
    while !world.cluster.is_old() && !world.cluster.policies.is_empty() {
        let events = next(&mut world).await;
        world.apply(&events);
    }
    assert_eq!(world.cluster.policies.len(), 1, "the pod may have other labels, which another policy selects");
    let problems = world.source.problems();
    assert!(problems.iter().any(|problem| problem.contains("1 isolate others or went")), "{problems:?}");
    // Whether a list is asked for, since an answer could not be read for long, or the watch goes on.
    let again = [Reply::Later(Duration::from_millis(200), labelled("ADDED", "db") + &end(8))].into();
    world.script.lock().unwrap().replies.insert("pods", again);
    while world.cluster.is_old() {
        let events = next(&mut world).await;
        world.apply(&events);
        let pod = &world.cluster.pods[&Name::new("n", "p")];
        assert!(!world.cluster.policies.is_empty() || pod.labels.get("app") == Some("db"));
    }
    assert!(world.cluster.policies.is_empty() && world.cluster.early.is_empty());
    assert_eq!(world.source.problems(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_apiserver_that_is_away_for_a_moment_takes_nothing_back() {
    let again = r#"{"metadata":{"name":"deny","namespace":"n","resourceVersion":"6"}}"#;
    let policies = [Reply::Text(end(1)), Reply::Status(403), Reply::Status(403), Reply::Text(event("ADDED", again))];
    let mut world = World::over(TempDir::new().unwrap(), 9, [("networkpolicies", policies.into())]);
    let first = world.source.first().await;
    world.apply(&first);
    let events = next(&mut world).await;
    assert!(matches!(&events[..], [Event::Policy(..)]), "{events:?}");
    let more = time::timeout(3 * LAPSE, world.source.next()).await;
    assert!(more.is_err() || more.is_ok_and(|(events, _)| events.is_empty()), "its watch goes on");
    assert_eq!(world.source.problems(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn without_a_copy_a_start_waits_for_nodes_and_tells_which_kinds_it_has() {
    let answers = [("networkpolicies", VecDeque::new())];
    let mut world = World::over(TempDir::new().unwrap(), 1, answers);
    let start = time::Instant::now();
    let events = world.source.first().await;
    assert_eq!(start.elapsed().as_secs(), PATIENCE.as_secs());
    let told = |kind| events.contains(&Event::Told(kind));
    assert!(told(Kind::Node) && told(Kind::Namespace) && told(Kind::Pod) && !told(Kind::Policy), "{events:?}");
    assert_eq!(world.source.problems(), ["networkpolicies: not listed to the end since this start"]);
}

#[tokio::test]
async fn an_object_that_is_refused_since_we_are_not_accepted_is_made_by_files_that_are_read_anew() {
    let events = |code| ("events", [Reply::Status(code), Reply::Status(code)].into());
    for (code, is_read_anew) in [(401, true), (403, false)] {
        let world = World::over(TempDir::new().unwrap(), 1, [events(code)]);
        for _ in 0..2 {
            let refused = world.source.connection.create("/events", &serde_json::Value::Null).await.unwrap_err();
            assert_eq!(refused.again, is_read_anew, "{}", refused.why);
        }
        assert_eq!(world.asked("/events").len(), if is_read_anew { 1 } else { 2 }, "{code}");
    }
}
