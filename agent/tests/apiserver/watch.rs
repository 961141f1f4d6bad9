//! What the apiserver says, as the model has it.

use std::fs;

use osmia_agent::model::{Cluster, Event, Name};
use osmia_agent::source::folder::FolderSource;
use serde_json::json;
use tempfile::TempDir;

use crate::follower::Follower;
use crate::objects::{Place, node};
use crate::shared;

#[test]
fn objects_appear_change_and_go() {
    let (server, state) = (shared(), TempDir::new().unwrap());
    let config = server.kubeconfig("appear", osmia_lab::apiserver::SERVER, &server.admin()).unwrap();
    let place = Place::new(&server, "appear");
    place.pod("before", 1);
    let follower = Follower::start(&server, &config, &[], state.path());
    follower.wait_started();
    assert!(place.find_pod(&follower.seen().cluster, "before").is_some(), "the first events have what was there");

    node(&server, "appear-1", 101);
    place.pod("web", 2);
    place.policy("let-in", "web");
    follower.wait("node, pod and policy", |seen| {
        let node = seen.cluster.nodes.get("appear-1");
        let pod = place.find_pod(&seen.cluster, "web");
        node.is_some_and(|node| node.internal_ips.len() == 2 && node.pod_cidrs.len() == 2)
            && pod.is_some_and(|pod| pod.ips.len() == 2 && pod.ports.len() == 1 && &*pod.node == "nowhere")
            && place.find_policy(&seen.cluster, "let-in").is_some_and(|policy| policy.ingress.is_some())
    });

    server.patch("/api/v1/namespaces/appear", &json!({"metadata": {"labels": {"team": "other"}}})).unwrap();
    server.patch(&format!("{}/web", place.pods()), &json!({"metadata": {"labels": {"app": "db"}}})).unwrap();
    server.patch(&format!("{}/let-in", place.policies()), &json!({"spec": {"policyTypes": ["Egress"]}})).unwrap();
    follower.wait("the changes", |seen| {
        let team = place.find_self(&seen.cluster).and_then(|namespace| namespace.labels.get("team").map(str::to_owned));
        let app = place.find_pod(&seen.cluster, "web").and_then(|pod| pod.labels.get("app").map(str::to_owned));
        team.as_deref() == Some("other")
            && app.as_deref() == Some("db")
            && place.find_policy(&seen.cluster, "let-in").is_some_and(|policy| policy.ingress.is_none())
    });

    let said = follower.seen().events.len();
    server.patch(&format!("{}/web", place.pods()), &json!({"metadata": {"annotations": {"note": "y"}}})).unwrap();
    server.patch(&format!("{}/web/status", place.pods()), &json!({"status": {"phase": "Succeeded"}})).unwrap();
    follower.wait("the pod's end", |seen| place.find_pod(&seen.cluster, "web").is_some_and(|pod| pod.completed));
    let web = |event: &&Event| matches!(event, Event::Pod(key, _) if *key == Name::new("appear", "web"));
    assert_eq!(follower.seen().events[said..].iter().filter(web).count(), 1, "an annotation is nobody's business here");

    server.delete(&format!("{}/web", place.pods())).unwrap();
    server.delete(&format!("{}/let-in", place.policies())).unwrap();
    server.delete("/api/v1/nodes/appear-1").unwrap();
    follower.wait("their end", |seen| {
        place.find_pod(&seen.cluster, "web").is_none()
            && place.find_policy(&seen.cluster, "let-in").is_none()
            && !seen.cluster.nodes.contains_key("appear-1")
    });
    assert_eq!(follower.seen().problems, Vec::<String>::new());
}

#[test]
fn a_folder_with_the_same_objects_makes_the_same_model() {
    let (server, state) = (shared(), TempDir::new().unwrap());
    let config = server.kubeconfig("same", osmia_lab::apiserver::SERVER, &server.admin()).unwrap();
    let place = Place::new(&server, "same");
    let odd = json!({
        "metadata": {"name": "odd"},
        "spec": {
            "podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a", "b"]}]},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{}],
            "egress": [{"to": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "x"}}},
                               {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
                        "ports": [{"port": "web"}, {"protocol": "SCTP"}, {"port": 1, "endPort": 65535, "protocol": "UDP"}]}],
        },
    });
    server.create(&place.policies(), &odd).unwrap();
    place.policy("plain", "web");
    place.pod("a", 11);
    place.pod("b", 12);
    node(&server, "same-1", 102);
    let follower = Follower::start(&server, &config, &[], state.path());
    follower.wait_started();

    let folder = TempDir::new().unwrap();
    let paths = ["/api/v1/namespaces/same", "/api/v1/nodes/same-1", &place.pods(), &place.policies()];
    for (number, path) in paths.iter().enumerate() {
        let mut object = server.get(path).unwrap();
        let kind = object["kind"].as_str().unwrap().strip_suffix("List").map(str::to_owned);
        for item in object.get_mut("items").and_then(|items| items.as_array_mut()).into_iter().flatten() {
            // As kubectl prints a list, and not as the API does.
            item["kind"] = kind.clone().into();
        }
        fs::write(folder.path().join(format!("{number}.yaml")), object.to_string()).unwrap();
    }
    let state = TempDir::new().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let (_, events) = FolderSource::start(folder.path(), state.path()).unwrap();
    let mut other = Cluster::default();
    for event in events {
        other.apply(event);
    }
    assert_eq!((other.nodes.len(), other.pods.len(), other.namespaces.len(), other.policies.len()), (1, 2, 1, 2));

    let mut cluster = follower.seen().cluster.clone();
    cluster.nodes.retain(|name, _| name == "same-1");
    cluster.namespaces.retain(|name, _| name == "same");
    cluster.pods.retain(|key, _| key.is_in("same"));
    cluster.policies.retain(|key, _| key.is_in("same"));
    assert_eq!(cluster, other);
}
