//! An endpoint of this node, and its pod in the cluster.
//!
//! Invariant: an object that is another pod's, or newer than what is known of policies, is never judged as its own.

use std::net::IpAddr;

use super::sets;
use crate::model::{Cluster, Name, PodObject};

/// An endpoint of this node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Local {
    /// The pod; `None`: the runtime named none, and no policy is asked.
    pub pod: Option<Name>,
    /// The pod's uid as the runtime says it; empty: it says none.
    pub uid: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl Local {
    /// Its pod's object. One without a network, which this endpoint has, or with another uid is of another pod of the name, mostly of the one
    /// before: then nobody has told of this one yet.
    #[must_use]
    pub fn object<'a>(&self, cluster: &'a Cluster) -> Option<&'a PodObject> {
        let pod: &PodObject = cluster.pods.get(self.pod.as_ref()?)?;
        let is_other = !self.uid.is_empty() && !pod.uid.is_empty() && pod.uid != self.uid;
        (pod.has_network() && !is_other).then_some(pod)
    }

    /// Its pod's object where the policies that are told may be asked about it: they are not older than the pod or its labels.
    #[must_use]
    pub fn judged<'a>(&self, cluster: &'a Cluster) -> Option<&'a PodObject> {
        self.object(cluster).filter(|_| self.pod.as_ref().is_some_and(|key| !cluster.early.contains(key)))
    }

    /// Whether a policy may isolate it although nothing is known of its pod: any that is told in its namespace, or one that is not told.
    #[must_use]
    pub fn may_be_isolated(&self, cluster: &Cluster) -> bool {
        let Some(namespace) = self.pod.as_ref().map(Name::namespace) else { return false };
        let has_policy = cluster.policies_in(namespace).next().is_some();
        has_policy || cluster.is_old() || !cluster.namespaces.contains_key(namespace)
    }

    /// Whether no policy isolates it, in either direction, and nothing says that one might.
    #[must_use]
    pub fn is_open(&self, cluster: &Cluster) -> bool {
        sets::is_open(cluster, self)
    }
}
