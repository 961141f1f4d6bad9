//! Who we are at the apiserver, and where it is.

use std::fs;

use osmia_lab::apiserver::{Apiserver, Proxy, SERVER, Traffic};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::follower::Follower;
use crate::objects::Place;
use crate::shared;

/// The rights that docs/configuration.md tells to give.
fn role(name: &str) -> Value {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let watched = &["list", "watch"];
    let rules = [
        rule("", &["nodes", "namespaces", "pods"], watched),
        rule("networking.k8s.io", &["networkpolicies"], watched),
        rule("events.k8s.io", &["events"], &["create"]),
    ];
    json!({"metadata": {"name": name}, "rules": rules})
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn bind(server: &Apiserver, name: &str, subject: &Value) {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]});
    server.create(&format!("{RBAC}/clusterrolebindings"), &binding).unwrap();
}

#[test]
fn a_token_file_is_read_again_when_its_token_is_refused() {
    let (server, state) = (shared(), TempDir::new().unwrap());
    let place = Place::new(&server, "token");
    let accounts = "/api/v1/namespaces/token/serviceaccounts";
    server.create(accounts, &json!({"metadata": {"name": "agent"}})).unwrap();
    server.create(&format!("{RBAC}/clusterroles"), &role("osmia-token")).unwrap();
    bind(&server, "osmia-token", &json!({"kind": "ServiceAccount", "name": "agent", "namespace": "token"}));
    let token = server.create(&format!("{accounts}/agent/token"), &json!({"spec": {}})).unwrap();
    let token = token.pointer("/status/token").and_then(Value::as_str).unwrap();

    let file = server.file("rotated.token");
    fs::write(&file, "expired").unwrap();
    let config = server.kubeconfig("token", SERVER, &json!({"tokenFile": file})).unwrap();
    let follower = Follower::start(&server, &config, &[], state.path());
    follower.wait_problem("401 Unauthorized: it does not accept our client certificate or token");
    fs::write(&file, token).unwrap();
    follower.wait_started();
    place.pod("web", 41);
    follower.wait("a pod", |seen| place.find_pod(&seen.cluster, "web").is_some());
    follower.wait("no problem", |seen| seen.problems.is_empty());
}

#[test]
fn a_client_certificate_says_who_we_are_and_what_it_may_not_is_said() {
    let (server, state) = (shared(), TempDir::new().unwrap());
    let identity = server.user("osmia-node", "osmia-nodes").unwrap();
    fs::write(server.file("node.crt"), identity.certificate).unwrap();
    fs::write(server.file("node.key"), identity.key).unwrap();
    let user = json!({"client-certificate": "node.crt", "client-key": "node.key"});
    let config = server.kubeconfig("certificate", SERVER, &user).unwrap();
    let follower = Follower::start(&server, &config, &[], state.path());
    follower
        .wait_problem("networkpolicies: https://127.0.0.1:6443: 403 Forbidden: our user may not list and watch this");
    assert!(!follower.seen().started);
    server.create(&format!("{RBAC}/clusterroles"), &role("osmia-certificate")).unwrap();
    bind(
        &server,
        "osmia-certificate",
        &json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "osmia-node"}),
    );
    follower.wait_started();
}

#[test]
fn an_apiserver_of_another_authority_is_refused_in_words() {
    let (server, state) = (shared(), TempDir::new().unwrap());
    // A certificate that vouches for nobody here.
    fs::write(server.file("other.crt"), server.user("other", "other").unwrap().certificate).unwrap();
    let config = server.kubeconfig("authority", SERVER, &server.admin()).unwrap();
    let text = fs::read_to_string(&config).unwrap().replace("ca.crt", "other.crt");
    fs::write(&config, &text).unwrap();
    let follower = Follower::start(&server, &config, &[], state.path());
    follower.wait_problem("invalid peer certificate: UnknownIssuer");
    follower.wait_problem(SERVER);
    fs::write(&config, text.replace("other.crt", "ca.crt")).unwrap();
    follower.wait_started();
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_refused_at_once() {
    let (server, state) = (shared(), TempDir::new().unwrap());
    let follower = Follower::start(&server, &server.file("nothing"), &[], state.path());
    follower.wait("a refusal", |seen| seen.refused.as_ref().is_some_and(|why| why.contains("nothing")));
}

#[test]
fn the_next_address_is_tried_when_one_does_not_answer() {
    let (server, state) = (shared(), TempDir::new().unwrap());
    let place = Place::new(&server, "turn");
    let config = server.kubeconfig("turn", "https://192.0.2.7:6443", &server.admin()).unwrap();
    let (first, second) = (Proxy::start(&server.space).unwrap(), Proxy::start(&server.space).unwrap());
    first.set(Traffic::Cut);
    let follower = Follower::start(&server, &config, &[first.server(), second.server()], state.path());
    follower.wait_started();
    first.set(Traffic::Passes);
    second.set(Traffic::Cut);
    place.pod("web", 51);
    follower.wait("a pod by the other way", |seen| place.find_pod(&seen.cluster, "web").is_some());
    assert_eq!(follower.seen().problems, Vec::<String>::new(), "one address that answers is enough");
}
