//! What the catalogue is told of policies and endpoints.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use osmia_maps::catalogue::{Catalogue, Line, PodName, PolicyName};

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

/// A generation is in force that was `took` on its way, and with it these policies, or without those that are gone.
pub(super) fn in_force(
    cluster: &Cluster,
    policies: &BTreeSet<Name>,
    generation: u64,
    at: SystemTime,
    took: Duration,
) -> Vec<Line> {
    let there = || {
        policies.iter().filter_map(|key| {
            let policy = cluster.policies.get(key)?;
            Some((self::policy(key, policy), &policy.refused))
        })
    };
    let in_force = Line::InForce {
        generation,
        at_ms: milliseconds(at),
        took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        policies: there().map(|(name, _)| name).collect(),
    };
    let refused = there().filter(|(_, parts)| !parts.is_empty());
    let refused = refused.map(|(policy, parts)| Line::Refused { policy, parts: parts.clone() });
    let gone = policies.iter().filter(|key| !cluster.policies.contains_key(*key));
    let gone = gone.map(|key| Line::NoPolicy { namespace: key.namespace().into(), name: key.name().into() });
    std::iter::once(in_force).chain(refused).chain(gone).collect()
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
