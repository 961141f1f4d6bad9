//! NetworkPolicy v1 (networking.k8s.io/v1), evaluated word for word on Kubernetes' own types: slow, without an index or a cache, each rule
//! of the API's text one function here.
//!
//! Invariant: shares no code with the compiler or the programs, and no decision of theirs but those that the API leaves open, each named
//! where it is made.

mod labels;
mod peers;
mod ports;
pub mod stories;
mod world;

use std::net::IpAddr;

use k8s_openapi::api::{
    core::v1::Pod,
    networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort},
};

pub use ports::{Protocol, Traffic};
pub use world::{Endpoint, World};

/// A direction of the rules of one pod.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// What the pod receives.
    Ingress,
    /// What the pod sends.
    Egress,
}

/// A rule of a policy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleName {
    /// The policy's namespace.
    pub namespace: String,
    /// The policy's name.
    pub policy: String,
    /// Index in `spec.ingress` or `spec.egress`.
    pub rule: usize,
}

/// What the policies of one direction say of one packet of one pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No policy selects the pod in this direction.
    NotIsolated,
    /// Isolated, and these rules allow it.
    Allowed(Vec<RuleName>),
    /// Isolated by these policies (namespace, name), and no rule allows it.
    Denied(Vec<(String, String)>),
}

impl Verdict {
    /// Whether the packet passes.
    #[must_use]
    pub fn passes(&self) -> bool {
        !matches!(self, Self::Denied(_))
    }
}

/// Peers and ports of a rule of either direction.
type Rule<'a> = (Option<&'a [NetworkPolicyPeer]>, Option<&'a [NetworkPolicyPort]>);

impl World {
    /// What the policies say of `traffic` between an endpoint of this node and the address `peer`, as [`Self::verdict`] does of a pod.
    #[must_use]
    pub fn held(&self, endpoint: &Endpoint, direction: Direction, peer: IpAddr, traffic: Traffic) -> Verdict {
        match (self.own(endpoint), self.may_isolate(endpoint)) {
            (Some(pod), _) => self.verdict(pod, direction, peer, traffic),
            (None, Some(policies)) => Verdict::Denied(policies.into_iter().map(name).collect()),
            (None, None) => Verdict::NotIsolated,
        }
    }

    /// What the policies say of `traffic` between `pod` (the one whose rules are asked) and the address `peer`.
    ///
    /// `traffic.port` is the destination's in both directions. What comes from a socket of the pod's own node is allowed whatever this says,
    /// and so is a pod's traffic to itself: the caller knows where a packet came from, addresses do not tell.
    #[must_use]
    pub fn verdict(&self, pod: &Pod, direction: Direction, peer: IpAddr, traffic: Traffic) -> Verdict {
        let isolating = self.isolating(pod, direction);
        if isolating.is_empty() {
            return Verdict::NotIsolated;
        }
        let mut allowing = Vec::new();
        for policy in &isolating {
            let Some(spec) = &policy.spec else { continue };
            let (namespace, name) = name(policy);
            // "This rule is matched if it matches on peers AND ports."
            let rules: Vec<Rule<'_>> = match direction {
                Direction::Ingress => {
                    spec.ingress.iter().flatten().map(|r| (r.from.as_deref(), r.ports.as_deref())).collect()
                }
                Direction::Egress => {
                    spec.egress.iter().flatten().map(|r| (r.to.as_deref(), r.ports.as_deref())).collect()
                }
            };
            for (rule, (peers, ports)) in rules.into_iter().enumerate() {
                let matched = self.matched_peers(&namespace, peers, peer);
                let covered = matched.iter().any(|kind| {
                    // "Each container port's name": of the pod that is the destination. A block is no pod, also where a pod's address is in it
                    // (left open by the API; decided so).
                    let destination = match (direction, kind) {
                        (Direction::Ingress, _) => Some(pod),
                        (Direction::Egress, peers::Kind::Block) => None,
                        (Direction::Egress, _) => self.owner(peer),
                    };
                    ports::is_covered(ports, destination, traffic)
                });
                if covered {
                    allowing.push(RuleName { namespace: namespace.clone(), policy: name.clone(), rule });
                }
            }
        }
        if allowing.is_empty() {
            return Verdict::Denied(isolating.into_iter().map(name).collect());
        }
        Verdict::Allowed(allowing)
    }
}

fn name(policy: &NetworkPolicy) -> (String, String) {
    (policy.metadata.namespace.clone().unwrap_or_default(), policy.metadata.name.clone().unwrap_or_default())
}
