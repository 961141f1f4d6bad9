//! The cluster: whose an address is, and which policies isolate a pod.
//!
//! The API knows pods by their objects alone, and says nothing of a node's endpoint whose object is not its own. Decided so: an endpoint's
//! object is the Pod of the name that the runtime gave, if that has a network of its own, and the uid that the runtime gave, where both are said.
//! Another one (it completed, or is on its node's network, or has another uid) speaks of another pod of this name, of before or to come. An endpoint without object of its own is nobody's peer, and isolated in
//! both directions where a policy may select it: where its namespace has any, or is not known. An endpoint for which the runtime named no pod
//! is no pod: nobody's peer by selectors, and held to nothing.

use std::net::IpAddr;

use k8s_openapi::api::{
    core::v1::{Namespace, Pod},
    networking::v1::{NetworkPolicy, NetworkPolicySpec},
};

use crate::{Direction, labels};

/// Every object that a verdict may depend on.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Namespaces.
    pub namespaces: Vec<Namespace>,
    /// Pods.
    pub pods: Vec<Pod>,
    /// Policies.
    pub policies: Vec<NetworkPolicy>,
    /// The endpoints of the node that is asked.
    pub endpoints: Vec<Endpoint>,
}

/// An endpoint of the node that is asked.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Namespace and name of the pod, where the runtime named one.
    pub pod: Option<(String, String)>,
    /// The pod's uid, where the runtime said it.
    pub uid: Option<String>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// Whether a pod has a network of its own: "Completed pods no longer have an IP", and one on its node's network is a part of the node
/// (left open by the API; decided so, as most do).
fn has_network(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    let host = pod.spec.as_ref().and_then(|s| s.host_network).unwrap_or_default();
    !host && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The addresses of a pod: `status.podIPs`, or the older `status.podIP` where that list is missing.
fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    let list: Vec<IpAddr> = status.pod_ips.iter().flatten().filter_map(|ip| ip.ip.parse().ok()).collect();
    if list.is_empty() { status.pod_ip.iter().filter_map(|ip| ip.parse().ok()).collect() } else { list }
}

impl World {
    /// The object that is an endpoint's own.
    #[must_use]
    pub fn own(&self, endpoint: &Endpoint) -> Option<&Pod> {
        let (namespace, name) = endpoint.pod.as_ref()?;
        self.pods.iter().find(|pod| {
            let is = |said: &Option<String>, wanted: &String| said.as_ref() == Some(wanted);
            let is_other = endpoint.uid.is_some() && pod.metadata.uid.is_some() && endpoint.uid != pod.metadata.uid;
            is(&pod.metadata.namespace, namespace) && is(&pod.metadata.name, name) && has_network(pod) && !is_other
        })
    }

    /// The policies that may select an endpoint without object of its own; `None`: none may.
    pub(crate) fn may_isolate(&self, endpoint: &Endpoint) -> Option<Vec<&NetworkPolicy>> {
        let (namespace, _) = endpoint.pod.as_ref()?;
        let known = self.namespaces.iter().any(|n| n.metadata.name.as_ref() == Some(namespace));
        let policies = self.policies.iter().filter(|policy| policy.metadata.namespace.as_ref() == Some(namespace));
        let policies: Vec<&NetworkPolicy> = policies.collect();
        (!known || !policies.is_empty()).then_some(policies)
    }

    /// Whose an address is. An endpoint of this node is here now, whatever others claim. With several owners for a moment the newest has it
    /// (left open by the API): by creation time, then by name.
    #[must_use]
    pub fn owner(&self, address: IpAddr) -> Option<&Pod> {
        if let Some(endpoint) = self.endpoints.iter().find(|endpoint| endpoint.addresses.contains(&address)) {
            return self.own(endpoint);
        }
        let owners = self.pods.iter().filter(|pod| has_network(pod) && addresses(pod).contains(&address));
        owners.max_by_key(|pod| {
            let meta = &pod.metadata;
            (meta.creation_timestamp.as_ref().map(|t| t.0), meta.namespace.clone(), meta.name.clone())
        })
    }

    /// The labels of a namespace; one that is not there has none.
    pub(crate) fn namespace_labels(&self, name: &str) -> Option<&labels::Labels> {
        let namespace = self.namespaces.iter().find(|n| n.metadata.name.as_deref() == Some(name))?;
        Some(namespace.metadata.labels.as_ref().unwrap_or(&labels::NONE))
    }

    /// The policies that isolate a pod in a direction: in its namespace, selecting it, and of that type.
    pub(crate) fn isolating(&self, pod: &Pod, direction: Direction) -> Vec<&NetworkPolicy> {
        if !has_network(pod) {
            return Vec::new();
        }
        let own = pod.metadata.labels.as_ref().unwrap_or(&labels::NONE);
        let nothing = NetworkPolicySpec::default();
        let selects = |policy: &&NetworkPolicy| {
            let spec = policy.spec.as_ref().unwrap_or(&nothing);
            policy.metadata.namespace == pod.metadata.namespace
                // "An empty selector matches all pods in the policy's namespace"; an absent one is empty.
                && spec.pod_selector.as_ref().is_none_or(|selector| labels::matches(selector, own))
                && is_of_type(spec, direction)
        };
        self.policies.iter().filter(selects).collect()
    }
}

/// `policyTypes`: "If this field is not specified, it will default based on the existence of ingress or egress rules; policies that
/// contain an egress section are assumed to affect egress, and all policies (whether or not they contain an ingress section) are assumed
/// to affect ingress."
fn is_of_type(spec: &NetworkPolicySpec, direction: Direction) -> bool {
    match (&spec.policy_types, direction) {
        (Some(types), Direction::Ingress) if !types.is_empty() => types.iter().any(|t| t == "Ingress"),
        (Some(types), Direction::Egress) if !types.is_empty() => types.iter().any(|t| t == "Egress"),
        (_, Direction::Ingress) => true,
        (_, Direction::Egress) => spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
    }
}
