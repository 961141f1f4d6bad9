//! The lines of the file, and the names in them.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

/// A NetworkPolicy by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PolicyName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, empty where a manifest has none.
    pub uid: String,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod by name; both empty: the name was lost, and the endpoint is isolated.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            return f.write_str("(unknown)");
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A direction of an endpoint's rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// What the endpoint receives.
    Ingress,
    /// What the endpoint sends.
    Egress,
}

/// What a cookie stands for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A rule that allows.
    Rule {
        /// Its policy.
        policy: PolicyName,
        /// Which list of it.
        direction: Direction,
        /// Index in that list.
        rule: usize,
        /// The rule in words.
        text: String,
    },
    /// Isolation by these policies, none of whose rules allows.
    Isolated {
        /// Direction.
        direction: Direction,
        /// The policies.
        policies: Vec<PolicyName>,
    },
    /// Isolation by these policies, whose rules need more rows than there is room for: none of them is in force.
    OverBudget {
        /// Direction.
        direction: Direction,
        /// The policies.
        policies: Vec<PolicyName>,
    },
    /// The endpoint's Pod has not been told yet, and a policy may select it.
    Provisional {
        /// Direction.
        direction: Direction,
    },
    /// The endpoint's rules were being written that moment.
    Changing,
}

/// Ports of a protocol, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Ports {
    /// IANA protocol number.
    pub protocol: u8,
    /// First.
    pub first: u16,
    /// Last.
    pub last: u16,
}

/// A rule of a rule set, as it was compiled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetRule {
    /// Its cookie.
    pub cookie: u32,
    /// The atoms it speaks of; `None`: anybody.
    pub peers: Option<Vec<u32>>,
    /// Its traffic; `None`: all.
    pub ports: Option<Vec<Ports>>,
    /// Atoms with a named port, and the protocol: their traffic is what the class' signature says of the atom.
    pub named: Vec<(u32, u8)>,
}

/// Addresses of pods that rules speak of beyond those that there is room for: to the rules of this node they are no pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CrowdedOut {
    /// How many.
    pub addresses: usize,
    /// The lowest of them; no higher address has room, and IPv6 is above IPv4.
    pub lowest: IpAddr,
}

/// A line of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A peer of rules.
    Atom {
        /// Its number.
        number: u32,
        /// In words.
        text: String,
        /// What the agent finds it by at its next start.
        definition: serde_json::Value,
    },
    /// Addresses that all atoms treat alike.
    Class {
        /// Its number.
        number: u32,
        /// The atoms that speak of it, each with 0 or the port that its pods call by the atom's name; sorted.
        signature: Vec<(u32, u16)>,
    },
    /// What one direction of endpoints is held to.
    Set {
        /// Its number.
        number: u32,
        /// Direction.
        direction: Direction,
        /// The policies that isolate.
        policies: Vec<PolicyName>,
        /// Cookie of what no rule allows.
        isolation: u32,
        /// Its rules.
        rules: Vec<SetRule>,
        /// What the agent finds it by at its next start.
        definition: serde_json::Value,
    },
    /// The name of a cookie.
    Cookie {
        /// The cookie.
        cookie: u32,
        /// What it stands for.
        reason: Reason,
    },
    /// The pod of an endpoint of this node; written before the endpoint's row.
    Endpoint {
        /// Its slot.
        slot: u32,
        /// The pod; `None`: the runtime named none, and no policy is asked.
        pod: Option<PodName>,
    },
    /// A slot has no endpoint any more; written after its row is gone.
    NoEndpoint {
        /// The slot.
        slot: u32,
    },
    /// There is no such policy any more, and no row of it.
    NoPolicy {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// No row has these any more.
    Gone {
        /// Atoms.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        atoms: Vec<u32>,
        /// Classes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        classes: Vec<u32>,
        /// Rule sets.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sets: Vec<u32>,
        /// Cookies.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cookies: Vec<u32>,
    },
    /// The rows that the lines before it name are written after it.
    Generation {
        /// Rises with each.
        generation: u64,
        /// Numbers up to these were given.
        last: Last,
    },
    /// That generation is in the maps.
    InForce {
        /// Which.
        generation: u64,
        /// Since when, milliseconds since 1970.
        at_ms: u64,
        /// From the event to the last write, microseconds.
        took_us: u64,
        /// The policies that came or changed with it; empty where only pods or namespaces did. Of one that went a [`Line::NoPolicy`] follows.
        policies: Vec<PolicyName>,
    },
    /// What the API would refuse of a policy that is in force, which allows nothing; behind the [`Line::InForce`] that named it.
    Refused {
        /// The policy.
        policy: PolicyName,
        /// Each with its place in the object.
        parts: Vec<String>,
    },
    /// Something of what was told is not in force, and is tried again.
    Behind {
        /// Since when, milliseconds since 1970.
        at_ms: u64,
        /// What refused it.
        why: String,
    },
    /// All that was told is in force again.
    CaughtUp,
    /// Addresses without room, or none any more. Replaces what was said before.
    CrowdedOut {
        /// Which.
        now: Option<CrowdedOut>,
    },
    /// What the source cannot ask for or read now: news of it are missing. Replaces what was said before.
    Source {
        /// Each in words; none: it tells all.
        problems: Vec<String>,
    },
}

/// The highest numbers that were given: none is given twice within a boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Last {
    /// Of atoms.
    pub atom: u32,
    /// Of classes.
    pub class: u32,
    /// Of rule sets.
    pub set: u32,
    /// Of cookies.
    pub cookie: u32,
}
