//! Apiservers that end, come back, and come back with an older state; and one that has no streaming lists.

use osmia_agent::model::Event;
use osmia_lab::apiserver::{Apiserver, Proxy, SERVER, Traffic};
use serde_json::json;
use tempfile::TempDir;

use crate::follower::Follower;
use crate::objects::Place;

/// More than a page of a list.
const MANY: usize = 620;

#[test]
fn killed_compacted_and_replaced_by_one_with_older_state() {
    let server = Apiserver::start(&["--feature-gates=WatchList=false"]).unwrap();
    let place = Place::new(&server, "restarts");
    let policies = |letter: char, count: usize| -> Vec<_> {
        (0..count).map(|i| json!({"metadata": {"name": format!("{letter}{i:03}")}, "spec": {}})).collect()
    };
    server.create_all(&place.policies(), &policies('p', MANY)).unwrap();
    let (near, far) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let direct = server.kubeconfig("direct", SERVER, &server.admin()).unwrap();
    let proxy = Proxy::start(&server.space).unwrap();
    let through = server.kubeconfig("through", &proxy.server(), &server.admin()).unwrap();
    let direct = Follower::start(&server, &direct, &[], near.path());
    let through = Follower::start(&server, &through, &[], far.path());
    for follower in [&direct, &through] {
        follower.wait_started();
        assert_eq!(follower.seen().cluster.policies.len(), MANY, "all pages");
    }

    // One of them loses sight; what it could go on from is forgotten.
    proxy.set(Traffic::Cut);
    server.delete(&format!("{}/p007", place.policies())).unwrap();
    place.policy("new", "web");
    server.back_up().unwrap();
    direct.wait("the change", |seen| place.find_policy(&seen.cluster, "new").is_some());
    server.compact().unwrap();
    server.kill_server().unwrap();
    direct.wait_problem(SERVER);
    server.start_server().unwrap();
    proxy.set(Traffic::Passes);
    through.wait("what went while nobody watched", |seen| {
        place.find_policy(&seen.cluster, "p007").is_none() && place.find_policy(&seen.cluster, "new").is_some()
    });
    assert!(through.seen().events.iter().any(|event| matches!(event, Event::PolicyGone(key) if key.name() == "p007")));
    // More than the apiserver itself writes when it starts: its versions are to be seen going back.
    server.create_all(&place.policies(), &policies('x', 200)).unwrap();
    place.policy("newer", "web");
    direct.wait("a change after the restart", |seen| place.find_policy(&seen.cluster, "newer").is_some());
    through.wait("a change after the list", |seen| place.find_policy(&seen.cluster, "newer").is_some());
    assert_eq!(direct.seen().cluster.policies, through.seen().cluster.policies);

    // A backup does not know of it any more.
    server.restore().unwrap();
    for follower in [&direct, &through] {
        follower.wait("the older state", |seen| place.find_policy(&seen.cluster, "newer").is_none());
        assert!(place.find_policy(&follower.seen().cluster, "new").is_some());
    }
    place.policy("newest", "web");
    for follower in [&direct, &through] {
        follower.wait("a change of it", |seen| place.find_policy(&seen.cluster, "newest").is_some());
        follower.wait("no problem", |seen| seen.problems.is_empty());
        assert_eq!(follower.seen().cluster.policies.len(), MANY + 1);
    }
}
