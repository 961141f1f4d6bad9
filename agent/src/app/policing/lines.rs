//! What the catalogue is told of policies and endpoints.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::{SystemTime, UNIX_EPOCH},
};

use osmia_maps::catalogue::{Catalogue, Line, PodName, PolicyName};
use tokio::time::Instant;

use crate::{
    compile::policy::Local,
    model::{Cluster, Name, PolicyObject},
};

/// An endpoint.
pub(super) fn endpoint(slot: u32, local: &Local) -> Line {
    Line::Endpoint { slot, pod: pod(local) }
}

/// What the catalogue does not know of the endpoints.
pub(super) fn endpoints(locals: &BTreeMap<u32, Local>, catalogue: &Catalogue) -> Vec<Line> {
    let named = locals.iter().filter(|(slot, local)| catalogue.endpoints.get(*slot) != Some(&pod(local)));
    let named = named.map(|(slot, local)| endpoint(*slot, local));
    let gone = catalogue.endpoints.keys().filter(|slot| !locals.contains_key(*slot));
    named.chain(gone.map(|slot| Line::NoEndpoint { slot: *slot })).collect()
}

/// Policies of which the catalogue does not know that they are in force as they are now; `names` are the numbers that are new.
pub(super) fn unknown_policies(cluster: &Cluster, catalogue: &Catalogue, names: &[Line]) -> BTreeSet<Name> {
    let other = cluster.policies.iter().filter(|(key, policy)| {
        let name = self::policy(key, policy);
        let refused = catalogue.refused.get(&name).map(Vec::as_slice).unwrap_or_default();
        !catalogue.policies.contains_key(&name) || refused != policy.refused
    });
    let other = other.map(|(key, _)| Name::clone(key));
    let key = |policy: &PolicyName| Name::new(&policy.namespace, &policy.name);
    let gone = catalogue.policies.keys().map(key).filter(|key| !cluster.policies.contains_key(key));
    let anew = names.iter().flat_map(|line| match line {
        Line::Set { policies, .. } => policies.as_slice(),
        _ => &[],
    });
    other.chain(gone).chain(anew.map(key)).collect()
}

/// A generation is in force whose first change came at `first`, and with it these policies, or without those that are gone.
pub(super) fn in_force(
    cluster: &Cluster,
    policies: &BTreeMap<Name, Instant>,
    generation: u64,
    at: SystemTime,
    first: Instant,
) -> Vec<Line> {
    let there = || policies.iter().filter_map(|(key, came)| Some((key, cluster.policies.get(key)?, came)));
    // By when they came, the first last, since the last line speaks of the generation as a whole.
    let mut named: BTreeMap<Reverse<Instant>, Vec<PolicyName>> = BTreeMap::from([(Reverse(first), Vec::new())]);
    for (key, policy, came) in there() {
        named.entry(Reverse(first.max(*came))).or_default().push(self::policy(key, policy));
    }
    let in_force = named.into_iter().map(|(Reverse(came), policies)| Line::InForce {
        generation,
        at_ms: milliseconds(at),
        took_us: u64::try_from(came.elapsed().as_micros()).unwrap_or(u64::MAX),
        policies,
    });
    let refused = there().filter(|(_, policy, _)| !policy.refused.is_empty());
    let refused = refused
        .map(|(key, policy, _)| Line::Refused { policy: self::policy(key, policy), parts: policy.refused.clone() });
    let gone = policies.keys().filter(|key| !cluster.policies.contains_key(*key));
    let gone = gone.map(|key| Line::NoPolicy { namespace: key.namespace().into(), name: key.name().into() });
    in_force.chain(refused).chain(gone).collect()
}

/// As the catalogue writes a time.
pub(super) fn milliseconds(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// The name of a policy.
pub(super) fn policy(key: &Name, policy: &PolicyObject) -> PolicyName {
    PolicyName { namespace: key.namespace().into(), name: key.name().into(), uid: policy.uid.to_string() }
}

fn pod(local: &Local) -> Option<PodName> {
    local.pod.as_ref().map(|pod| PodName { namespace: pod.namespace().into(), name: pod.name().into() })
}
