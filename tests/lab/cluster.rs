//! The cluster's objects beside its nodes, told to the nodes' folders as an apiserver tells them: namespaces, pods with labels, policies; and
//! the wait until a policy is in force.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use osmia_maps::catalogue::{self, Catalogue};

use crate::folder::random;
use crate::manifest::{PodManifest, namespace_yaml};
use crate::node::Node;
use crate::world::{Lab, Pod};

/// How long a policy may take to be in force on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl Lab {
    /// Tells of a namespace with these labels.
    ///
    /// # Errors
    /// The file system refused.
    pub fn tell_namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<()> {
        self.write(&format!("namespace-{name}.yaml"), &namespace_yaml(name, labels))
    }

    /// What is known of a pod before it has a network; nobody is told.
    ///
    /// # Errors
    /// There is no such node.
    pub fn object(&self, node: usize, namespace: &str, name: &str, labels: &[(&str, &str)]) -> Result<PodManifest> {
        Ok(PodManifest {
            namespace: namespace.into(),
            name: name.into(),
            uid: format!("{:016x}", random()),
            node: self.node(node)?.name.clone(),
            labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            ..PodManifest::default()
        })
    }

    /// Tells of a pod the folders that may hold its node.
    ///
    /// # Errors
    /// Its node is none of the lab's; the file system refused.
    pub fn tell_pod(&self, object: &PodManifest) -> Result<()> {
        let PodManifest { namespace, name, node, .. } = object;
        let node = self.nodes.iter().position(|of| of.name == *node).with_context(|| format!("no node {node}"))?;
        self.write_manifest(node, &format!("pod-{namespace}-{name}.yaml"), &object.yaml())
    }

    /// A new pod with network, told as an apiserver tells it: before its sandbox, and once more with its addresses.
    ///
    /// # Errors
    /// The plugin failed; the kernel or the file system refused.
    pub fn add_told(&self, node: usize, object: &mut PodManifest) -> Result<Pod> {
        self.tell_pod(object)?;
        let (space, attachment) = self.sandbox_alone(node, &object.namespace, &object.name, &object.uid)?;
        let pod = self.attach(node, &object.name, space, attachment)?;
        object.addresses = pod.v4.map(IpAddr::from).into_iter().chain(pod.v6.map(IpAddr::from)).collect();
        self.tell_pod(object)?;
        Ok(pod)
    }

    /// Writes a policy, `spec` as flow-style YAML; gives its uid.
    ///
    /// # Errors
    /// The file system refused.
    pub fn write_policy(&self, namespace: &str, name: &str, spec: &str) -> Result<String> {
        let uid = format!("{:016x}", random());
        let yaml = format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{namespace: {namespace}, name: {name}, uid: \"{uid}\"}}\nspec: {spec}\n"
        );
        self.write(&policy_file(namespace, name), &yaml)?;
        Ok(uid)
    }

    /// Writes a policy and waits until it is in force on every node; so is all that was written before.
    ///
    /// # Errors
    /// It is not within a minute; the file system refused.
    pub fn enforce(&self, namespace: &str, name: &str, spec: &str) -> Result<()> {
        let uid = self.write_policy(namespace, name, spec)?;
        self.everywhere(&format!("policy {namespace}/{name} is in force"), |catalogue| {
            catalogue.policies.keys().any(|policy| policy.uid == uid)
        })
    }

    /// Removes a policy and waits until it is gone on every node.
    ///
    /// # Errors
    /// It is not within a minute; the file system refused.
    pub fn lift(&self, namespace: &str, name: &str) -> Result<()> {
        self.remove(&policy_file(namespace, name))?;
        self.everywhere(&format!("policy {namespace}/{name} is gone"), |catalogue| {
            !catalogue.policies.keys().any(|policy| policy.namespace == namespace && policy.name == name)
        })
    }

    fn everywhere(&self, what: &str, so: impl Fn(&Catalogue) -> bool) -> Result<()> {
        self.nodes.iter().try_for_each(|node| until(node, what, &so))
    }
}

fn policy_file(namespace: &str, name: &str) -> String {
    format!("policy-{namespace}-{name}.yaml")
}

fn until(node: &Node, what: &str, so: impl Fn(&Catalogue) -> bool) -> Result<()> {
    let path = catalogue::path(&node.paths.run);
    let until = Instant::now() + PATIENCE;
    while !Catalogue::read(&path).is_ok_and(|catalogue| so(&catalogue)) {
        if Instant::now() > until {
            bail!("{PATIENCE:?} and not yet: {what} on {}", node.name);
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
