//! The apiserver out of reach, and back.

use std::{collections::BTreeSet, time::Duration};

use osmia_agent::model::{Cluster, Kind};
use osmia_lab::apiserver::{Proxy, Traffic};
use tempfile::TempDir;

use crate::follower::Follower;
use crate::objects::Place;
use crate::shared;

#[test]
fn what_happened_meanwhile_is_found_and_a_restart_meanwhile_knows_what_was_known() {
    let (server, state) = (shared(), TempDir::new().unwrap());
    let proxy = Proxy::start(&server.space).unwrap();
    let config = server.kubeconfig("away", &proxy.server(), &server.admin()).unwrap();
    let place = Place::new(&server, "away");
    for (name, last) in [("stays", 21), ("changes", 22), ("goes", 23)] {
        place.pod(name, last);
    }
    place.policy("goes-too", "web");
    let follower = Follower::start(&server, &config, &[], state.path());
    follower.wait_started();

    proxy.set(Traffic::Cut);
    follower.wait_problem(&proxy.server());
    server.delete(&format!("{}/goes", place.pods())).unwrap();
    server.delete(&format!("{}/goes-too", place.policies())).unwrap();
    let labels = serde_json::json!({"metadata": {"labels": {"app": "new"}}});
    server.patch(&format!("{}/changes", place.pods()), &labels).unwrap();
    place.pod("comes", 24);
    let before = follower.seen().cluster.clone();
    assert!(place.find_pod(&before, "goes").is_some() && place.find_policy(&before, "goes-too").is_some());
    drop(follower);

    let follower = Follower::start(&server, &config, &[], state.path());
    let took = follower.wait("a start without apiserver", |seen| seen.started);
    assert!(took < Duration::from_secs(7), "{took:?}");
    let remembered = BTreeSet::from(Kind::ALL);
    assert_eq!(follower.seen().cluster, Cluster { remembered, ..before }, "all as last known, and nothing told anew");
    follower.wait_problem(&proxy.server());

    proxy.set(Traffic::Passes);
    follower.wait("what happened meanwhile", |seen| {
        let (pod, app) = (place.find_pod(&seen.cluster, "changes"), "new");
        pod.is_some_and(|pod| pod.labels.get("app") == Some(app))
            && place.find_pod(&seen.cluster, "comes").is_some()
            && place.find_pod(&seen.cluster, "goes").is_none()
            && place.find_policy(&seen.cluster, "goes-too").is_none()
            && place.find_pod(&seen.cluster, "stays").is_some()
    });
    follower.wait("no problem", |seen| seen.problems.is_empty());
    assert!(follower.seen().cluster.remembered.is_empty());

    // A watch that goes on where it stopped misses nothing either.
    proxy.set(Traffic::Cut);
    follower.wait_problem(&proxy.server());
    server.delete(&format!("{}/stays", place.pods())).unwrap();
    let said = follower.seen().events.len();
    proxy.set(Traffic::Passes);
    follower.wait("what went meanwhile", |seen| place.find_pod(&seen.cluster, "stays").is_none());
    follower.wait("no problem", |seen| seen.problems.is_empty());
    let seen = follower.seen();
    let of_ours = |text: String| text.contains("away/") || text.contains("\"away\"");
    let again = seen.events[said..].iter().filter(|event| of_ours(format!("{event:?}"))).count();
    assert_eq!(again, 1, "and says nothing twice");
    drop(seen);

    // After a while nobody knows any more what else there is.
    proxy.set(Traffic::Cut);
    follower.wait("policies and namespaces are only remembered", |seen| {
        seen.cluster.remembered == BTreeSet::from(Kind::JUDGES)
    });
    follower.wait_problem("new pods are isolated");
    place.policy("meanwhile", "web");
    proxy.set(Traffic::Passes);
    follower.wait("they are listed again", |seen| seen.cluster.remembered.is_empty() && seen.problems.is_empty());
    assert!(place.find_policy(&follower.seen().cluster, "meanwhile").is_some());
}

#[test]
fn without_a_copy_it_waits_for_the_apiserver() {
    let (server, state) = (shared(), TempDir::new().unwrap());
    let proxy = Proxy::start(&server.space).unwrap();
    proxy.set(Traffic::Cut);
    let config = server.kubeconfig("waits", &proxy.server(), &server.admin()).unwrap();
    let follower = Follower::start(&server, &config, &[], state.path());
    follower.wait_problem("pods: ");
    std::thread::sleep(Duration::from_secs(1));
    assert!(!follower.seen().started, "an empty cluster would be wrong");
    proxy.set(Traffic::Passes);
    follower.wait_started();
    assert!(follower.seen().cluster.namespaces.contains_key("default"));
}

#[test]
fn a_slow_apiserver_is_waited_for() {
    let (server, state) = (shared(), TempDir::new().unwrap());
    let proxy = Proxy::start(&server.space).unwrap();
    proxy.set(Traffic::Late(Duration::from_millis(300)));
    let config = server.kubeconfig("slow", &proxy.server(), &server.admin()).unwrap();
    let place = Place::new(&server, "slow");
    place.pod("before", 31);
    let follower = Follower::start(&server, &config, &[], state.path());
    follower.wait_started();
    assert!(place.find_pod(&follower.seen().cluster, "before").is_some());
    place.pod("after", 32);
    follower.wait("a change", |seen| place.find_pod(&seen.cluster, "after").is_some());
    assert_eq!(follower.seen().problems, Vec::<String>::new());
}
