//! Objects as a cluster's other parts write them, with names that no other test uses.

use osmia_agent::model::{Cluster, Name, NamespaceObject, PodObject, PolicyObject};
use osmia_lab::apiserver::Apiserver;
use serde_json::{Value, json};

/// A namespace of a test's own.
pub(crate) struct Place<'a> {
    pub(crate) server: &'a Apiserver,
    pub(crate) namespace: &'static str,
}

impl<'a> Place<'a> {
    pub(crate) fn new(server: &'a Apiserver, namespace: &'static str) -> Self {
        let object = json!({"metadata": {"name": namespace, "labels": {"team": namespace}}});
        server.create("/api/v1/namespaces", &object).unwrap();
        Self { server, namespace }
    }

    pub(crate) fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    pub(crate) fn policies(&self) -> String {
        format!("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies", self.namespace)
    }

    /// A pod that its kubelet has given addresses.
    pub(crate) fn pod(&self, name: &str, last: u8) -> Value {
        let object = json!({
            "metadata": {"name": name, "labels": {"app": name}, "annotations": {"note": "x".repeat(2000)}},
            "spec": {
                "nodeName": "nowhere",
                "containers": [{"name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 8080}]}],
            },
        });
        self.server.create(&self.pods(), &object).unwrap();
        let addresses = [json!({"ip": format!("10.1.0.{last}")}), json!({"ip": format!("fd00:1::{last:x}")})];
        let status = json!({"status": {"phase": "Running", "podIP": format!("10.1.0.{last}"), "podIPs": addresses}});
        self.server.patch(&format!("{}/{name}/status", self.pods()), &status).unwrap()
    }

    /// A policy that lets pods with a label in.
    pub(crate) fn policy(&self, name: &str, app: &str) -> Value {
        let from = json!([{"podSelector": {"matchLabels": {"app": app}}}, {"ipBlock": {"cidr": "192.0.2.0/24"}}]);
        let spec = json!({"podSelector": {}, "ingress": [{"from": from, "ports": [{"port": 80, "endPort": 90}]}]});
        self.server.create(&self.policies(), &json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    pub(crate) fn find_pod<'c>(&self, cluster: &'c Cluster, name: &str) -> Option<&'c PodObject> {
        cluster.pods.get(&Name::new(self.namespace, name)).map(Box::as_ref)
    }

    pub(crate) fn find_policy<'c>(&self, cluster: &'c Cluster, name: &str) -> Option<&'c PolicyObject> {
        cluster.policies.get(&Name::new(self.namespace, name))
    }

    pub(crate) fn find_self<'c>(&self, cluster: &'c Cluster) -> Option<&'c NamespaceObject> {
        cluster.namespaces.get(self.namespace)
    }
}

/// Makes a Node with two addresses and two pod ranges.
pub(crate) fn node(server: &Apiserver, name: &str, number: u8) -> Value {
    let ranges = json!([format!("10.{number}.0.0/24"), format!("fd00:{number}::/64")]);
    let object = json!({"metadata": {"name": name}, "spec": {"podCIDR": ranges[0], "podCIDRs": ranges}});
    server.create("/api/v1/nodes", &object).unwrap();
    let address = |kind: &str, address: String| json!({"type": kind, "address": address});
    let addresses = [
        address("Hostname", name.to_owned()),
        address("InternalIP", format!("192.0.2.{number}")),
        address("InternalIP", format!("2001:db8::{number:x}")),
    ];
    server.patch(&format!("/api/v1/nodes/{name}/status"), &json!({"status": {"addresses": addresses}})).unwrap()
}
