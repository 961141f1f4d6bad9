//! Kubernetes manifests as people write them, for the agents' source folder.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use anyhow::{Context, Result};

/// What a Node object says.
#[derive(Clone, Debug)]
pub struct NodeManifest {
    /// `metadata.name`.
    pub name: String,
    /// InternalIPs, in this order.
    pub addresses: Vec<std::net::IpAddr>,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<String>,
}

impl NodeManifest {
    /// The YAML text.
    #[must_use]
    pub fn yaml(&self) -> String {
        let name = &self.name;
        let mut text = format!("apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\nspec:\n");
        if let Some(first) = self.pod_cidrs.first() {
            text += &format!("  podCIDR: {first}\n  podCIDRs:\n");
            for cidr in &self.pod_cidrs {
                text += &format!("  - {cidr}\n");
            }
        } else {
            text += "  podCIDRs: []\n";
        }
        text += "status:\n  addresses:\n";
        for address in &self.addresses {
            text += &format!("  - type: InternalIP\n    address: \"{address}\"\n");
        }
        text + &format!("  - type: Hostname\n    address: {name}\n")
    }
}

/// Pod range of the node with this number, IPv4.
pub(crate) const fn pod_range_v4(number: u8) -> (Ipv4Addr, u8) {
    (Ipv4Addr::new(10, 244, number, 0), 24)
}

/// Pod range of the node with this number, IPv6.
pub(crate) const fn pod_range_v6(number: u8) -> (Ipv6Addr, u8) {
    (Ipv6Addr::new(0xfd00, 0x10, 0x244, number as u16, 0, 0, 0, 0), 64)
}

/// The cluster's ranges, which cover the nodes' ones.
pub const CLUSTER_CIDRS: [&str; 2] = ["10.244.0.0/16", "fd00:10:244::/48"];

/// What a Pod object says.
#[derive(Clone, Debug, Default)]
pub struct PodManifest {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.nodeName`.
    pub node: String,
    /// `metadata.labels`.
    pub labels: Vec<(String, String)>,
    /// Named TCP ports of its container.
    pub ports: Vec<(String, u16)>,
    /// `status.podIPs`; empty before its sandbox has a network.
    pub addresses: Vec<std::net::IpAddr>,
}

impl PodManifest {
    /// The YAML text.
    #[must_use]
    pub fn yaml(&self) -> String {
        let Self { namespace, name, uid, node, labels, ports, addresses } = self;
        let mut text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  namespace: {namespace}\n  name: {name}\n  uid: {uid}\n  labels:{}\n",
            if labels.is_empty() { " {}" } else { "" }
        );
        for (key, value) in labels {
            text += &format!("    {key}: \"{value}\"\n");
        }
        text += &format!(
            "spec:\n  nodeName: {node}\n  containers:\n  - name: main\n    image: registry.k8s.io/pause:3.10\n"
        );
        if !ports.is_empty() {
            text += "    ports:\n";
        }
        for (name, port) in ports {
            text += &format!("    - name: {name}\n      containerPort: {port}\n");
        }
        if !addresses.is_empty() {
            text += "status:\n  phase: Running\n  podIPs:\n";
        }
        for address in addresses {
            text += &format!("  - ip: \"{address}\"\n");
        }
        text
    }
}

/// A Namespace with these labels; the one with its name needs no writing.
#[must_use]
pub fn namespace_yaml(name: &str, labels: &[(&str, &str)]) -> String {
    let mut text = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n");
    if !labels.is_empty() {
        text += "  labels:\n";
    }
    for (key, value) in labels {
        text += &format!("    {key}: \"{value}\"\n");
    }
    text
}

/// Writes a file as an editor that knows what it does: beside its name, then renamed.
///
/// # Errors
/// The file system refused.
pub fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let (path, beside) = (folder.join(name), folder.join(format!(".{name}.new")));
    fs::write(&beside, text).with_context(|| format!("write {}", beside.display()))?;
    fs::rename(&beside, &path).with_context(|| format!("write {}", path.display()))
}
