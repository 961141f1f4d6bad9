//! A node whose agent gets the cluster from a real apiserver. What the watch itself does is in the agent's own tests.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking, wherever it does")]

use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use osmia_lab::apiserver::{Apiserver, SERVER};
use osmia_lab::{Lab, Node, Options, POD_NAMESPACE, Pod, Probe, Proto, Subnet};
use serde_json::{Value, json};

/// Makes a Node object.
fn announce(server: &Apiserver, name: &str, addresses: &[String], ranges: &[String]) {
    let spec = json!({"podCIDR": ranges[0], "podCIDRs": ranges});
    server.create("/api/v1/nodes", &json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    let addresses: Vec<_> = addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
    let status = json!({"status": {"addresses": addresses}});
    server.patch(&format!("/api/v1/nodes/{name}/status"), &status).unwrap();
}

fn knows(node: &Node, address: &str) -> bool {
    node.osmia(&["map", "dump", "nodes"]).unwrap().stdout.contains(address)
}

#[track_caller]
fn wait_for(what: &str, node: &Node, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        let log = node.agent().as_ref().map(osmia_lab::Agent::last_words).unwrap_or_default();
        assert!(since.elapsed() < Duration::from_secs(20), "not seen: {what}{log}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A node whose agent watches an apiserver that is in the node's namespace, as a kubeconfig's user.
fn start(user: impl FnOnce(&Apiserver) -> Value) -> (Lab, Apiserver) {
    let (mut lab, server) = before_the_start();
    let config = server.kubeconfig("config", SERVER, &user(&server)).unwrap();
    lab.nodes[0].set_source(&["--source", "kube", "--kubeconfig", config.to_str().unwrap()]);
    lab.start_agents().unwrap();
    (lab, server)
}

/// A node without agent, and an apiserver that knows it.
fn before_the_start() -> (Lab, Apiserver) {
    let lab = Lab::build(Options { nodes: vec![Subnet::Near], ..Options::default() }).unwrap();
    let server = Apiserver::inside(lab.nodes[0].space.try_clone().unwrap(), &[]).unwrap();
    let manifest = &lab.nodes[0].manifest;
    let addresses: Vec<_> = manifest.addresses.iter().map(ToString::to_string).collect();
    announce(&server, "n1", &addresses, &manifest.pod_cidrs);
    (lab, server)
}

const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";

#[test]
fn a_node_lives_by_the_apiserver_and_by_what_it_said_last() {
    let (lab, server) = start(Apiserver::admin);
    let node = &lab.nodes[0];

    let (a, b) = (pod(&lab, &server, "a"), pod(&lab, &server, "b"));
    reaches(&a, &b).unwrap();
    let other = Subnet::Near.v4(77).to_string();
    announce(&server, "n77", std::slice::from_ref(&other), &["10.244.77.0/24".to_owned()]);
    wait_for("a node that came", node, || knows(node, &other));
    let deny = json!({"metadata": {"name": "deny"}, "spec": {"podSelector": {"matchLabels": {"app": "b"}}}});
    server.create(POLICIES, &deny).unwrap();
    wait_for("a policy in force", node, || reaches(&a, &b).is_err());

    server.kill_server().unwrap();
    assert!(node.kill_agent().unwrap());
    node.start_agent().unwrap();
    node.wait_ready().unwrap();
    assert!(knows(node, &other), "started by what the apiserver said last");
    reaches(&a, &b).unwrap_err();
    reaches(&b, &a).unwrap();

    server.start_server().unwrap();
    server.delete("/api/v1/nodes/n77").unwrap();
    server.delete(&format!("{POLICIES}/deny")).unwrap();
    wait_for("a node that went", node, || !knows(node, &other));
    wait_for("a policy that went", node, || reaches(&a, &b).is_ok());
}

#[test]
fn a_policy_that_does_not_fit_has_one_event_and_a_good_one_none() {
    let (lab, server) = start(Apiserver::admin);
    let node = &lab.nodes[0];
    let (a, b) = (pod(&lab, &server, "a"), pod(&lab, &server, "b"));
    let late = json!({"metadata": {"name": "late"}, "spec": {"podSelector": {"matchLabels": {"app": "late"}}}});
    server.create(POLICIES, &late).unwrap();
    // More rows than rules may have: some 11 for each of the ranges of ports, with each of the addresses.
    let from: Vec<_> =
        (0..3000).map(|n| json!({"ipBlock": {"cidr": format!("198.18.{}.{}/32", n / 250, n % 250)}})).collect();
    let ports: Vec<_> = (1..=40).map(|n| json!({"port": 1500 * n + 1, "endPort": 1500 * n + 1497})).collect();
    let spec = json!({"podSelector": {"matchLabels": {"app": "a"}}, "ingress": [{"from": from, "ports": ports}]});
    server.create(POLICIES, &json!({"metadata": {"name": "big"}, "spec": spec})).unwrap();
    let events = || {
        let all = server.get("/apis/events.k8s.io/v1/namespaces/default/events").unwrap();
        let of_policies = |event: &&Value| event["regarding"]["kind"] == "NetworkPolicy";
        all["items"].as_array().unwrap().iter().filter(of_policies).cloned().collect::<Vec<_>>()
    };
    wait_for("an Event", node, || !events().is_empty());
    reaches(&b, &a).unwrap_err();

    for n in 0..20 {
        let labels = json!({"metadata": {"labels": {"turn": n.to_string()}}});
        server.patch("/api/v1/namespaces/default/pods/a", &labels).unwrap();
        server.patch(&format!("{POLICIES}/big"), &labels).unwrap();
    }
    // What is said of pods comes in order.
    server.patch("/api/v1/namespaces/default/pods/b", &json!({"metadata": {"labels": {"app": "late"}}})).unwrap();
    wait_for("the last change", node, || reaches(&a, &b).is_err());
    let events = events();
    let [event] = events.as_slice() else { panic!("{events:#?}") };
    assert_eq!((&event["regarding"]["name"], &event["reason"]), (&json!("big"), &json!("PolicyOverBudget")));
    let note = event["note"].as_str().unwrap();
    assert!(note.starts_with("node n1: ") && note.contains("default/a"), "{note}");
}

/// What a role gives: everything that the agent asks for but for this kind.
fn rules(but: &str) -> Value {
    let rule = |group: &str, kind: &str| json!({"apiGroups": [group], "resources": [kind], "verbs": ["list", "watch"]});
    let kinds = ["nodes", "namespaces", "pods", "networkpolicies"].into_iter().filter(|kind| *kind != but);
    kinds.map(|kind| rule(if kind == "networkpolicies" { "networking.k8s.io" } else { "" }, kind)).collect()
}

const GROUP: &str = "rbac.authorization.k8s.io";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Gives somebody a role with these rules.
fn give(server: &Apiserver, rules: &Value, to: &Value) {
    let role = json!({"metadata": {"name": "osmia"}, "rules": rules});
    server.create(&format!("{RBAC}/clusterroles"), &role).unwrap();
    let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "osmia"});
    let binding = json!({"metadata": {"name": "osmia"}, "roleRef": role, "subjects": [to]});
    server.create(&format!("{RBAC}/clusterrolebindings"), &binding).unwrap();
}

#[test]
fn a_first_start_that_may_not_list_policies_isolates_new_pods_until_it_may() {
    let (lab, server) = start(|server| {
        let identity = server.user("osmia-n1", "osmia").unwrap();
        fs::write(server.file("n1.crt"), identity.certificate).unwrap();
        fs::write(server.file("n1.key"), identity.key).unwrap();
        give(server, &rules("networkpolicies"), &json!({"apiGroup": GROUP, "kind": "User", "name": "osmia-n1"}));
        json!({"client-certificate": "n1.crt", "client-key": "n1.key"})
    });
    let deny = json!({"metadata": {"name": "deny"}, "spec": {"podSelector": {"matchLabels": {"app": "b"}}}});
    server.create(POLICIES, &deny).unwrap();
    let pods = ["a", "b"];
    let (lab, server) = (&lab, &server);
    let [a, b] = thread::scope(|scope| {
        pods.map(|name| scope.spawn(move || pod(lab, server, name))).map(|adding| adding.join().unwrap())
    });
    for (from, to) in [(&a, &b), (&b, &a)] {
        reaches(from, to).unwrap_err();
    }
    server.patch(&format!("{RBAC}/clusterroles/osmia"), &json!({"rules": rules("")})).unwrap();
    wait_for("that policy begins", &lab.nodes[0], || reaches(&b, &a).is_ok());
    reaches(&a, &b).unwrap_err();
}

/// What a kubelet gives to a pod: two variables and three files.
#[test]
fn an_agent_in_a_pod_needs_no_more_than_its_service_account() {
    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
    const FILES: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let (mut lab, server) = before_the_start();
    server.create(ACCOUNTS, &json!({"metadata": {"name": "osmia"}})).unwrap();
    give(&server, &rules(""), &json!({"kind": "ServiceAccount", "name": "osmia", "namespace": "default"}));
    let token = server.create(&format!("{ACCOUNTS}/osmia/token"), &json!({"spec": {}})).unwrap();
    let token = token["status"]["token"].as_str().unwrap();
    let authority = fs::read(server.file("ca.crt")).unwrap();
    let node = &mut lab.nodes[0];
    // In the mounts of this node alone.
    node.space.output(Command::new("mount").args(["-t", "tmpfs", "osm-pod", "/var"])).unwrap();
    let files = || {
        fs::create_dir_all(FILES).unwrap();
        fs::write(format!("{FILES}/ca.crt"), authority).unwrap();
        fs::write(format!("{FILES}/token"), token).unwrap();
        fs::write(format!("{FILES}/namespace"), "default").unwrap();
    };
    node.space.run(files).unwrap();
    node.set_source(&["--source", "kube"]);
    let variables = [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", "6443")];
    node.start_agent_named("osmia-agent", &variables).unwrap();
    node.wait_ready().unwrap();

    let (a, b) = (pod(&lab, &server, "a"), pod(&lab, &server, "b"));
    reaches(&a, &b).unwrap();
    let deny = json!({"metadata": {"name": "deny"}, "spec": {"podSelector": {"matchLabels": {"app": "b"}}}});
    server.create(POLICIES, &deny).unwrap();
    wait_for("a policy in force", &lab.nodes[0], || reaches(&a, &b).is_err());
}

/// A pod that the apiserver knows, and its kubelet has a runtime attach.
fn pod(lab: &Lab, server: &Apiserver, name: &str) -> Pod {
    let spec = json!({"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]});
    let object = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
    let made = server.create("/api/v1/namespaces/default/pods", &object).unwrap();
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let (space, attachment) = lab.sandbox_alone(0, POD_NAMESPACE, name, uid).unwrap();
    lab.attach(0, name, space, attachment).unwrap()
}

/// Whether a datagram comes there, and its answer back.
fn reaches(from: &Pod, to: &Pod) -> Result<(), String> {
    let destination = to.address(false).unwrap();
    let patience = Duration::from_millis(500);
    let probe = Probe { proto: Proto::Udp, from: &from.space, to: &to.space, destination, patience };
    probe.run().unwrap().complete(from.address(false).unwrap())
}
