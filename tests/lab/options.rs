//! What a lab looks like.

use crate::lan::Subnet;

/// How agents are told to carry packets between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encap {
    /// As they are.
    Native,
    /// In VXLAN.
    Vxlan,
    /// As they are inside a subnet, in VXLAN across.
    Auto,
}

impl Encap {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Native, Self::Vxlan, Self::Auto];

    /// The value of `--encap`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Vxlan => "vxlan",
            Self::Auto => "auto",
        }
    }
}

/// What the wire between nodes does with packets larger than its MTU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Underlay {
    /// Hands them on whole, as veths do: cheap, and hides every mistake in segmentation.
    Passing,
    /// Segments when sending and merges when receiving, as network cards do.
    Segmenting,
}

/// Address families of nodes and pods. A node has no address of a family that is not its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Families {
    /// IPv4 alone: the kernel of the nodes has IPv6 switched off.
    V4,
    /// IPv6 alone.
    V6,
    /// IPv4 first, both everywhere.
    Dual,
    /// Pods of IPv4 on nodes of IPv6.
    V4OverV6,
}

impl Families {
    /// Whether nodes have IPv4 addresses.
    #[must_use]
    pub const fn nodes_v4(self) -> bool {
        matches!(self, Self::V4 | Self::Dual)
    }

    /// Whether nodes have IPv6 addresses.
    #[must_use]
    pub const fn nodes_v6(self) -> bool {
        matches!(self, Self::V6 | Self::Dual | Self::V4OverV6)
    }

    /// Whether nodes have IPv4 ranges for pods.
    #[must_use]
    pub const fn pods_v4(self) -> bool {
        matches!(self, Self::V4 | Self::Dual | Self::V4OverV6)
    }

    /// Whether nodes have IPv6 ranges for pods.
    #[must_use]
    pub const fn pods_v6(self) -> bool {
        matches!(self, Self::V6 | Self::Dual)
    }
}

/// Options of a lab. Nodes are called `n1`, `n2`, … in the order of `nodes`.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--encap`.
    pub encap: Encap,
    /// Where each node stands.
    pub nodes: Vec<Subnet>,
    /// The wire.
    pub underlay: Underlay,
    /// Families.
    pub families: Families,
    /// MTU of the wire, bytes.
    pub mtu: u16,
    /// (a, b): node a's folder never holds node b and its pods; both are indices into `nodes`.
    pub strangers: Vec<(usize, usize)>,
    /// `--cluster-cidr`; empty leaves the flag away.
    pub cluster_cidrs: Vec<String>,
    /// More flags for every agent.
    pub agent_flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            encap: Encap::Auto,
            nodes: vec![Subnet::Near, Subnet::Near],
            underlay: Underlay::Passing,
            families: Families::Dual,
            mtu: 1500,
            strangers: Vec::new(),
            cluster_cidrs: crate::manifest::CLUSTER_CIDRS.map(str::to_owned).to_vec(),
            agent_flags: Vec::new(),
        }
    }
}
