//! What a source says. Blind to whether a watch or a folder said it.

use super::{Name, NamespaceObject, NodeObject, PodObject, PolicyObject};

/// What objects there are.
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
    /// Each of them.
    pub const ALL: [Self; 4] = [Self::Node, Self::Namespace, Self::Policy, Self::Pod];
    /// Those by which a pod is judged.
    pub const JUDGES: [Self; 2] = [Self::Namespace, Self::Policy];
}

/// One change of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A Node is there and looks like this.
    Node(String, NodeObject),
    /// A Node is gone.
    NodeGone(String),
    /// A Namespace is there and looks like this.
    Namespace(String, NamespaceObject),
    /// A Namespace is gone.
    NamespaceGone(String),
    /// A Pod is there and looks like this.
    Pod(Name, PodObject),
    /// A Pod is gone.
    PodGone(Name),
    /// A NetworkPolicy is there and looks like this.
    Policy(Name, PolicyObject),
    /// A NetworkPolicy is gone.
    PolicyGone(Name),
    /// The NetworkPolicy of this name says something else by now, or is gone, which is told as soon as all pods that may have changed with it
    /// are: until then whom it isolated it isolates. It said these since, the last one last.
    Waits(Name, Vec<PolicyObject>),
    /// What is told of the pod of this name, next or already, is newer than the policies or namespaces that are only remembered.
    Early(Name),
    /// All that a source knows of a kind has been told before this: it was all there was, some time, and may not be any more.
    Remembered(Kind),
    /// All that there is of a kind has been told before this.
    Told(Kind),
}
