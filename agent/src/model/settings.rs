//! The settings that decide rows. Where paths and endpoints are configured is the agent's command line, not here.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// How packets travel between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encap {
    /// Always as they are.
    Native,
    /// Always inside VXLAN.
    Vxlan,
    /// As they are inside a subnet, inside VXLAN across.
    #[default]
    Auto,
}

/// Settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// This node's name.
    pub node: String,
    /// Between nodes.
    pub encap: Encap,
    /// The cluster's pod ranges; empty: each Node's podCIDRs are routed one by one.
    pub cluster_cidrs: Vec<IpNet>,
    /// Service ranges, sent to the node's stack unjudged.
    pub service_cidrs: Vec<IpNet>,
    /// Pods reach no IPv4 link-local address.
    pub deny_link_local: bool,
    /// The skb mark bit "handled".
    pub mark: u32,
    /// UDP port of the tunnel.
    pub tunnel_port: u16,
    /// VXLAN network identifier.
    pub vni: u32,
    /// First and last port of the masquerade range.
    pub masquerade_ports: (u16, u16),
    /// Uplinks by name; empty: devices that hold a Node address or a default route.
    pub uplinks: Vec<String>,
    /// Bytes of map memory for the flow tables.
    pub flow_memory: u64,
}
