//! What a rule set is found by at the agent's next start: like its key, but with a digest in place of each policy's rules, of which there may be
//! thousands.

use std::{collections::BTreeMap, sync::Arc};

use osmia_maps::catalogue::PolicyName;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{budget::Room, sets::Key};
use crate::model::{
    NamedPort,
    policy::{Direction, Rule},
};

/// Of a policy's rules. Whoever writes policies cannot make two whose digests are the same.
pub(super) type Digest = String;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct Definition {
    pub(super) direction: Direction,
    /// Each with the number of its rules.
    pub(super) policies: Vec<(PolicyName, usize, Digest)>,
    pub(super) named: Vec<NamedPort>,
    /// How much of it is in the maps.
    pub(super) room: Room,
}

/// Digests of rules, each made once.
#[derive(Debug, Default)]
pub(super) struct Digests(BTreeMap<usize, (Arc<[Rule]>, Digest)>);

impl Digests {
    pub(super) fn of(&mut self, rules: &Arc<[Rule]>) -> &Digest {
        // Held, so that no other rules come to lie there.
        let place = Arc::as_ptr(rules).cast::<()>().addr();
        &self.0.entry(place).or_insert_with(|| (Arc::clone(rules), digest(rules))).1
    }

    pub(super) fn definition(&mut self, key: &Key, room: Room) -> Definition {
        let policies = key.policies.iter().map(|(policy, rules)| (policy.clone(), rules.len(), self.of(rules).clone()));
        Definition { direction: key.direction, policies: policies.collect(), named: key.named.clone(), room }
    }
}

fn digest(rules: &[Rule]) -> Digest {
    // Rules have nothing that JSON could not say.
    let written = serde_json::to_vec(rules).unwrap_or_default();
    Sha256::digest(&written).iter().map(|byte| format!("{byte:02x}")).collect()
}
