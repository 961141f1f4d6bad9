//! The builder: nodes on a LAN, agents, pods.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::mount::{UnmountFlags, unmount};
use serde_json::{Map, Value};

use crate::cni_runner::{Attachment, Misbehave};
use crate::folder::{Folder, random};
use crate::lan::{Lan, Subnet};
use crate::manifest::{self, PodManifest};
use crate::node::Node;
use crate::options::Options;
use crate::space::Space;

/// Kubernetes namespace of the lab's pods.
pub const POD_NAMESPACE: &str = "default";

/// Nodes on a LAN. Dropped, everything it made is gone.
#[derive(Debug)]
pub struct Lab {
    /// The nodes. Before the folder: agents end before their folders go.
    pub nodes: Vec<Node>,
    /// What lies between and beyond them.
    pub lan: Lan,
    options: Options,
    folder: Folder,
}

/// A pod: its namespace, and what the runtime was told.
#[derive(Debug)]
pub struct Pod {
    /// Name in the cluster.
    pub name: String,
    /// Index of its node.
    pub node: usize,
    /// Its network namespace.
    pub space: Space,
    /// Its attachment.
    pub attachment: Attachment,
    /// The plugin's result.
    pub result: Value,
    /// IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address.
    pub v6: Option<Ipv6Addr>,
}

impl Pod {
    /// Its address of the family.
    ///
    /// # Errors
    /// It has none.
    pub fn address(&self, v6: bool) -> Result<IpAddr> {
        let address = if v6 { self.v6.map(IpAddr::from) } else { self.v4.map(IpAddr::from) };
        address.with_context(|| format!("pod {} has no IPv{} address", self.name, if v6 { 6 } else { 4 }))
    }
}

impl Lab {
    /// Builds LAN and nodes and tells every node's folder of the others. No agent runs yet.
    ///
    /// # Errors
    /// The kernel refused something (no root), a tool is missing, or nobody said where the binaries are.
    pub fn build(options: Options) -> Result<Self> {
        let folder = Folder::create()?;
        let lan = Lan::build(options.mtu)?;
        let places = options.nodes.iter().enumerate();
        let nodes = places.map(|(index, &subnet)| Node::build(&options, &lan, folder.path(), index, subnet));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let lab = Self { nodes, lan, options, folder };
        for index in 0..lab.nodes.len() {
            lab.announce(index)?;
        }
        lab.write(&format!("namespace-{POD_NAMESPACE}.yaml"), &manifest::namespace_yaml(POD_NAMESPACE, &[]))?;
        Ok(lab)
    }

    /// Two nodes in one subnet, whatever `options` says of nodes, with agents that serve.
    ///
    /// # Errors
    /// As [`Self::build`] and [`Self::start_agents`].
    pub fn two_nodes(options: Options) -> Result<Self> {
        let lab = Self::build(Options { nodes: vec![Subnet::Near, Subnet::Near], ..options })?;
        lab.start_agents()?;
        Ok(lab)
    }

    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it was built from.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Starts the agents that do not run and waits until all serve.
    ///
    /// # Errors
    /// One ended or does not serve.
    pub fn start_agents(&self) -> Result<()> {
        for node in &self.nodes {
            if node.agent().is_none() {
                node.start_agent()?;
            }
        }
        self.nodes.iter().try_for_each(|node| node.wait_ready().map(|_| ()))
    }

    /// The node with this index.
    ///
    /// # Errors
    /// There is none.
    pub fn node(&self, index: usize) -> Result<&Node> {
        self.nodes.get(index).with_context(|| format!("the lab has no node n{}", index + 1))
    }

    /// Writes the Node object to every folder that may hold it, as it is in [`Node::manifest`].
    ///
    /// # Errors
    /// There is no such node; the file system refused.
    pub fn announce(&self, index: usize) -> Result<()> {
        let node = self.node(index)?;
        self.write_manifest(index, &format!("node-{}.yaml", node.name), &node.manifest.yaml())
    }

    /// Removes the Node object from every folder.
    ///
    /// # Errors
    /// There is no such node; the file system refused.
    pub fn withdraw(&self, index: usize) -> Result<()> {
        self.remove_manifest(&format!("node-{}.yaml", self.node(index)?.name))
    }

    /// Writes objects to every node's folder.
    ///
    /// # Errors
    /// The file system refused.
    pub fn write(&self, file: &str, yaml: &str) -> Result<()> {
        self.nodes.iter().try_for_each(|node| manifest::write(&node.paths.manifests, file, yaml))
    }

    /// Removes a file of objects from every node's folder; one that is not there is fine.
    ///
    /// # Errors
    /// The file system refused.
    pub fn remove(&self, file: &str) -> Result<()> {
        self.remove_manifest(file)
    }

    /// Writes objects about a node to the folders that may hold it.
    pub(crate) fn write_manifest(&self, about: usize, name: &str, text: &str) -> Result<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            if !self.options.strangers.contains(&(index, about)) {
                manifest::write(&node.paths.manifests, name, text)?;
            }
        }
        Ok(())
    }

    fn remove_manifest(&self, name: &str) -> Result<()> {
        for node in &self.nodes {
            let path = node.paths.manifests.join(name);
            match fs::remove_file(&path) {
                Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
                    return Err(err).with_context(|| format!("remove {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a sandbox for a new pod, without network: object in the folders, namespace, attachment. What a runtime does before ADD.
    ///
    /// # Errors
    /// The kernel or the file system refused.
    pub fn sandbox(&self, node: usize, name: &str) -> Result<(Space, Attachment)> {
        let host = self.node(node)?;
        let uid = format!("{:016x}-{:016x}", random(), random());
        let object = PodManifest {
            namespace: POD_NAMESPACE.into(),
            name: name.into(),
            uid: uid.clone(),
            node: host.name.clone(),
            labels: vec![("app".into(), name.into())],
            ..PodManifest::default()
        };
        self.write_manifest(node, &format!("pod-{name}.yaml"), &object.yaml())?;
        self.sandbox_alone(node, POD_NAMESPACE, name, &uid)
    }

    /// As [`Self::sandbox`], of a pod of which no folder is told.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn sandbox_alone(&self, node: usize, namespace: &str, name: &str, uid: &str) -> Result<(Space, Attachment)> {
        let host = self.node(node)?;
        let word = || format!("{:016x}", random());
        let path = host.paths.netns.join(format!("cni-{}", word()));
        let space = Space::pod(name, &host.space, &path)?;
        let container_id = (0..4).map(|_| word()).collect::<String>();
        let arg = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let args = vec![
            arg("IgnoreUnknown", "1"),
            arg("K8S_POD_NAMESPACE", namespace),
            arg("K8S_POD_NAME", name),
            arg("K8S_POD_INFRA_CONTAINER_ID", &container_id),
            arg("K8S_POD_UID", uid),
        ];
        let ifname = "eth0".to_owned();
        Ok((space, Attachment { container_id, netns: Some(path), ifname, args, capabilities: Map::new() }))
    }

    /// A new pod with network: sandbox, then ADD.
    ///
    /// # Errors
    /// As [`Self::sandbox`]; the plugin failed; its result has no address.
    pub fn add_pod(&self, node: usize, name: &str) -> Result<Pod> {
        let (space, attachment) = self.sandbox(node, name)?;
        self.attach(node, name, space, attachment)
    }

    /// Gives a sandbox its network.
    ///
    /// # Errors
    /// The plugin failed; its result has no address.
    pub fn attach(&self, node: usize, name: &str, space: Space, attachment: Attachment) -> Result<Pod> {
        let result = self.node(node)?.runtime.add(&attachment, Misbehave::default());
        let result = result.with_context(|| format!("add pod {name} on {}", self.nodes[node].name))?;
        let (v4, v6) = addresses(&result)?;
        Ok(Pod { name: name.to_owned(), node, space, attachment, result, v4, v6 })
    }

    /// Removes a pod as containerd does: DEL, namespace gone, two more DELs, object gone.
    ///
    /// # Errors
    /// The plugin failed; the kernel or the file system refused.
    pub fn delete_pod(&self, pod: Pod) -> Result<()> {
        let host = self.node(pod.node)?;
        host.runtime.del(&pod.attachment, Misbehave::default())?;
        if let Some(path) = &pod.attachment.netns {
            self.remove_netns(pod.node, path)?;
        }
        drop(pod.space);
        for _ in 0..2 {
            host.runtime.del(&pod.attachment, Misbehave { empty_netns: true, ..Misbehave::default() })?;
        }
        self.remove_manifest(&format!("pod-{}.yaml", pod.name))
    }

    /// Unbinds a pod's namespace from its path, as a runtime does when the sandbox goes.
    ///
    /// # Errors
    /// Nothing is bound there.
    pub fn remove_netns(&self, node: usize, path: &Path) -> Result<()> {
        self.node(node)?.space.run(|| {
            unmount(path, UnmountFlags::DETACH).with_context(|| format!("unbind {}", path.display()))?;
            fs::remove_file(path).with_context(|| format!("remove {}", path.display()))
        })?
    }

    /// Paths of the agents' logs.
    #[must_use]
    pub fn logs(&self) -> Vec<PathBuf> {
        self.nodes.iter().map(|node| node.paths.log.clone()).collect()
    }
}

/// The pod's addresses in a result, any layout from 0.3.0 on.
fn addresses(result: &Value) -> Result<(Option<Ipv4Addr>, Option<Ipv6Addr>)> {
    let (mut v4, mut v6) = (None, None);
    for entry in result.get("ips").and_then(Value::as_array).into_iter().flatten() {
        let text = entry.get("address").and_then(Value::as_str).context("an address of the result is no string")?;
        let address = text.split('/').next().unwrap_or_default();
        match address.parse().with_context(|| format!("the result's address {text}"))? {
            IpAddr::V4(a) => v4 = v4.or(Some(a)),
            IpAddr::V6(a) => v6 = v6.or(Some(a)),
        }
    }
    if v4.is_none() && v6.is_none() {
        bail!("the result has no address: {result}");
    }
    Ok((v4, v6))
}
