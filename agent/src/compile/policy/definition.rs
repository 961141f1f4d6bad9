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

/// Digests of rules, each made once as long as somebody else has the rules.
#[derive(Debug, Default)]
pub(super) struct Digests {
    /// By where the rules lie: they are held, so that no others come to lie there.
    known: BTreeMap<usize, (Arc<[Rule]>, Digest)>,
    /// With as many it is looked for those that nobody else has.
    full: usize,
}

/// Fewer are not worth that.
const FEW: usize = 256;

impl Digests {
    pub(super) fn of(&mut self, rules: &Arc<[Rule]>) -> &Digest {
        let place = Arc::as_ptr(rules).cast::<()>().addr();
        if self.known.len() >= self.full && !self.known.contains_key(&place) {
            self.known.retain(|_, (rules, _)| Arc::strong_count(rules) > 1);
            self.full = FEW.max(2 * self.known.len());
        }
        &self.known.entry(place).or_insert_with(|| (Arc::clone(rules), digest(rules))).1
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::policy::{Peers, Port, PortItem, Ports, Protocol};

    #[test]
    fn digests_are_kept_while_somebody_has_the_rules() {
        let rules = |port: u16| -> Arc<[Rule]> {
            let item = PortItem { protocol: Protocol::Tcp, port: Port::Range(port, port) };
            [Rule { peers: Peers::Anyone, ports: Ports::Of([item].into()) }].into()
        };
        let (mut digests, kept) = (Digests::default(), rules(0));
        let digest = digests.of(&kept).clone();
        let others: BTreeSet<Digest> = (1..2000).map(|port| digests.of(&rules(port)).clone()).collect();
        assert!(others.len() == 1999 && !others.contains(&digest));
        assert!(digests.known.len() <= FEW, "{}", digests.known.len());
        assert!(digests.known.values().any(|(rules, _)| Arc::ptr_eq(rules, &kept)));
        assert_eq!(*digests.of(&rules(0)), digest);
    }
}
