//! A node whose agent gets the cluster from a real apiserver. What the watch itself does is in the agent's own tests.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking, wherever it does")]

use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::apiserver::{Apiserver, SERVER};
use osmia_lab::{Lab, Node, Options, POD_NAMESPACE, Pod, Probe, Proto, Subnet};
use serde_json::json;

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

#[test]
fn a_node_lives_by_the_apiserver_and_by_what_it_said_last() {
    let mut lab = Lab::build(Options { nodes: vec![Subnet::Near], ..Options::default() }).unwrap();
    let server = Apiserver::inside(lab.nodes[0].space.try_clone().unwrap(), &[]).unwrap();
    let config = server.kubeconfig("config", SERVER, &server.admin()).unwrap();
    lab.nodes[0].set_source(&["--source", "kube", "--kubeconfig", config.to_str().unwrap()]);
    let manifest = lab.nodes[0].manifest.clone();
    let addresses: Vec<_> = manifest.addresses.iter().map(ToString::to_string).collect();
    announce(&server, "n1", &addresses, &manifest.pod_cidrs);
    lab.start_agents().unwrap();
    let node = &lab.nodes[0];

    let (a, b) = (pod(&lab, &server, "a"), pod(&lab, &server, "b"));
    reaches(&a, &b).unwrap();
    let other = Subnet::Near.v4(77).to_string();
    announce(&server, "n77", std::slice::from_ref(&other), &["10.244.77.0/24".to_owned()]);
    wait_for("a node that came", node, || knows(node, &other));
    let deny = json!({"metadata": {"name": "deny"}, "spec": {"podSelector": {"matchLabels": {"app": "b"}}}});
    server.create("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", &deny).unwrap();
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
    server.delete("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/deny").unwrap();
    wait_for("a node that went", node, || !knows(node, &other));
    wait_for("a policy that went", node, || reaches(&a, &b).is_ok());
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
