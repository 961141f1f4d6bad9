//! A recorded feed: what an apiserver says of a large cluster, and of what happens in it then.
//!
//! ```no_run
//! use osmia_lab::feed::{CLUSTER_CIDRS, Feed, FeedServer, Sizes};
//! use osmia_lab::{Lab, Options, Subnet};
//!
//! let cluster_cidrs = CLUSTER_CIDRS.map(str::to_owned).to_vec();
//! let mut lab = Lab::build(Options { nodes: vec![Subnet::Near], cluster_cidrs, ..Options::default() })?;
//! let sizes = Sizes { nodes: 1_000, pods: 30_000, policies: 30_000, here: 30 };
//! let mut feed = Feed::new(sizes, 1, &lab.nodes[0].manifest);
//! let server = FeedServer::start(&lab.nodes[0].space, feed.events())?;
//! let config = server.kubeconfig(lab.folder())?;
//! lab.nodes[0].set_source(&["--source", "kube", "--kubeconfig", &config.display().to_string()]);
//! lab.start_agents()?;
//! for event in feed.churn() {
//!     server.tell(&event);
//! }
//! # Ok::<_, anyhow::Error>(())
//! ```
//!
//! Who is where is in `feed/cluster.rs`, how that reads as JSON in `feed/objects.rs`, what happens then in `feed/churn.rs`, and the API server
//! that says it in `feed/server.rs`.
//!
//! Invariant: the same sizes and the same seed say the same, byte for byte.

mod churn;
mod cluster;
mod objects;
mod server;

use std::net::IpAddr;

use serde_json::Value;

pub use cluster::{CLUSTER_CIDRS, Feed, Probe, Sizes};
pub use server::FeedServer;

/// The kinds that are watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Node.
    Node,
    /// Namespace.
    Namespace,
    /// NetworkPolicy.
    Policy,
    /// Pod.
    Pod,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Node, Self::Namespace, Self::Policy, Self::Pod];

    /// `kind` of an object.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Namespace => "Namespace",
            Self::Policy => "NetworkPolicy",
            Self::Pod => "Pod",
        }
    }

    /// `apiVersion` of an object.
    #[must_use]
    pub const fn version(self) -> &'static str {
        match self {
            Self::Policy => "networking.k8s.io/v1",
            Self::Node | Self::Namespace | Self::Pod => "v1",
        }
    }

    /// Where all of them are listed and watched.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Node => "/api/v1/nodes",
            Self::Namespace => "/api/v1/namespaces",
            Self::Policy => "/apis/networking.k8s.io/v1/networkpolicies",
            Self::Pod => "/api/v1/pods",
        }
    }
}

/// What became of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// It came.
    Added,
    /// It changed.
    Modified,
    /// It went.
    Deleted,
}

/// An event of a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Of what.
    pub kind: Kind,
    /// What happened.
    pub what: What,
    /// The object as it is, or was last; its `resourceVersion` is the server's to give.
    pub object: Value,
}

impl Event {
    /// As the watch writes it, the type first, without the end of the line.
    #[must_use]
    pub fn line(&self) -> String {
        let what = match self.what {
            What::Added => "ADDED",
            What::Modified => "MODIFIED",
            What::Deleted => "DELETED",
        };
        format!(r#"{{"type":"{what}","object":{}}}"#, self.object)
    }
}

/// A pod as a runtime is told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodRef {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `status.podIPs`.
    pub addresses: Vec<IpAddr>,
}

#[cfg(test)]
mod tests;
