//! Names of the numbers in the policy maps, from the agent's catalogue.
//!
//! Invariant: what the catalogue does not know is said ([`Names::stale`], "unknown"), never guessed. A number is never given twice, so a
//! name that is found is right however old the file is.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use osmia_maps::{
    Access, MapError, Pins,
    catalogue::{self, Catalogue, Direction, Index, PodName, PolicyName, Reason, SetHead, SetRule},
    decode::{Cell, Record},
    layout::{
        Endpoint, Meta, VerdictKey,
        policy::{OPEN, V_ALLOW},
    },
    tables,
};

use super::if_pinned;
use crate::arguments::Common;

/// The catalogue, as far as there is one.
#[derive(Debug)]
pub(super) struct Names {
    /// What was read; empty where nothing was.
    index: Index,
    file: Option<PathBuf>,
    is_read: bool,
    /// Rule sets that endpoints have and the catalogue does not know, with the cookie of what they keep out.
    unknown: BTreeMap<u32, u32>,
    stale: Vec<String>,
}

impl Names {
    /// Reads the catalogue beside the pins.
    pub(super) fn read(common: &Common, meta: &Meta) -> Self {
        let file = common.run_folder().map(|run| catalogue::path(&run));
        let read = file.as_deref().map(Index::read);
        let is_read = matches!(read, Some(Ok(_)));
        let (index, stale) = match read {
            None => {
                let why = "no names: the run folder of these pins' agent is not known (--run DIR)".to_owned();
                (Index::default(), vec![why])
            }
            Some(Err(error)) => {
                let path = file.as_deref().unwrap_or(Path::new("")).display();
                (Index::default(), vec![format!("no names: {path}: {error}")])
            }
            Some(Ok(index)) => {
                let stale = compare(meta.catalogue, index.rest().generation).into_iter().collect();
                (index, stale)
            }
        };
        Self { index, file, is_read, unknown: BTreeMap::new(), stale }
    }

    /// The same, for endpoints that were read before: what of their rule sets has no name is said.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn of_endpoints(
        pins: &Pins,
        common: &Common,
        meta: &Meta,
        endpoints: &[(u32, Endpoint)],
    ) -> Result<Self, MapError> {
        let mut names = Self::read(common, meta);
        let mut users: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (slot, endpoint) in endpoints {
            for (_, set) in rule_sets(endpoint).filter(|(_, set)| names.set(*set).is_none()) {
                users.entry(set).or_default().push(names.pod_text(*slot));
            }
        }
        let Some(verdicts) = if_pinned(tables::VERDICTS.open(pins, Access::ReadOnly))? else { return Ok(names) };
        for (set, mut users) in users {
            // Of one that lets anybody in the cookie is that of a rule.
            let head = verdicts.get(&VerdictKey::head(set, 0))?.filter(|head| head.flags & V_ALLOW == 0);
            let cookie = head.map_or(0, |head| head.cookie);
            names.unknown.insert(set, cookie);
            // Without a catalogue that is said once.
            if names.is_read {
                users.dedup();
                let (users, why) = (users.join(", "), names.cookie_text(cookie));
                names.stale.push(format!("the catalogue does not know rule set {set} of {users}: {why}"));
            }
        }
        Ok(names)
    }

    /// What makes names doubtful.
    pub(super) fn stale(&self) -> &[String] {
        &self.stale
    }

    /// Whether there was a catalogue.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Where they are from, for messages.
    pub(super) fn place(&self) -> String {
        self.file.as_deref().map_or_else(|| "no catalogue".to_owned(), |file| file.display().to_string())
    }

    /// The pod of an endpoint; `Some(None)`: the runtime named none.
    pub(super) fn pod(&self, slot: u32) -> Option<Option<&PodName>> {
        self.told().endpoints.get(&slot).map(Option::as_ref)
    }

    /// The pod of an endpoint, or its slot where that has no name.
    pub(super) fn pod_text(&self, slot: u32) -> String {
        match self.pod(slot) {
            Some(Some(pod)) => pod.to_string(),
            Some(None) => format!("slot {slot} (no pod named)"),
            None => format!("slot {slot}"),
        }
    }

    pub(super) fn pod_cell(&self, slot: u32) -> Cell {
        self.pod(slot).flatten().map_or(Cell::Absent, |pod| Cell::Text(pod.to_string().into()))
    }

    /// What is no name of a number: policies, pods, what is in force and what is not.
    pub(super) fn told(&self) -> &Catalogue {
        self.index.rest()
    }

    pub(super) fn set(&self, number: u32) -> Option<&SetHead> {
        self.index.set(number)
    }

    /// The rules of a set.
    pub(super) fn rules(&self, set: u32) -> Vec<SetRule> {
        self.index.rules(set).unwrap_or_default()
    }

    /// Numbers of the sets that have a name.
    pub(super) fn sets(&self) -> impl Iterator<Item = u32> {
        self.index.sets()
    }

    /// Numbers of the classes that have a name.
    pub(super) fn classes(&self) -> impl Iterator<Item = u32> {
        self.index.classes()
    }

    /// What atoms say of a class; of class 0 none does. `None`: the catalogue does not know it.
    pub(super) fn signature(&self, class: u32) -> Option<Vec<(u32, u16)>> {
        if class == 0 { Some(Vec::new()) } else { self.index.class(class) }
    }

    pub(super) fn reason(&self, cookie: u32) -> Option<&Reason> {
        self.index.reason(cookie)
    }

    /// A cookie in words.
    pub(super) fn cookie_text(&self, cookie: u32) -> String {
        match self.reason(cookie) {
            Some(reason) => reason_text(reason),
            None if cookie == 0 => "no row: a rule set without rows lets nothing pass".to_owned(),
            None => format!("unknown to the catalogue (cookie {cookie})"),
        }
    }

    /// What a class' atoms say, in words; `None`: the catalogue does not know the class.
    pub(super) fn class_atoms(&self, class: u32) -> Option<Vec<String>> {
        let signature = self.signature(class)?;
        let word = |(atom, port): &(u32, u16)| match port {
            0 => self.atom_text(*atom),
            port => format!("{} = {port}", self.atom_text(*atom)),
        };
        Some(signature.iter().map(word).collect())
    }

    /// A peer of rules in words.
    pub(super) fn atom_text(&self, atom: u32) -> String {
        self.index.atom(atom).unwrap_or_else(|| format!("unknown peer {atom}"))
    }
}

fn compare(maps: u64, file: u64) -> Option<String> {
    (maps != file)
        .then(|| format!("the maps are of catalogue generation {maps}, the catalogue of {file}: names may be missing"))
}

/// A cookie's reason in words.
pub(super) fn reason_text(reason: &Reason) -> String {
    match reason {
        Reason::Rule { policy, direction, rule, text } => {
            format!("{policy} {}[{rule}]: {text}", direction_name(*direction))
        }
        Reason::Isolated { policies, .. } => format!("isolated by {}", policies_text(policies)),
        Reason::OverBudget { policies, .. } => {
            format!("shut: the rules of {} need more rows than there is room for", policies_text(policies))
        }
        Reason::Provisional { .. } => {
            "provisional: no Pod object was told yet (or one that has ended or has hostNetwork) and a policy may select it"
                .to_owned()
        }
        Reason::Changing => "shut while its rules were written (osmia status says if it lasts)".to_owned(),
    }
}

/// The policies that a reason names.
pub(super) fn reason_policies(reason: &Reason) -> &[PolicyName] {
    match reason {
        Reason::Rule { policy, .. } => std::slice::from_ref(policy),
        Reason::Isolated { policies, .. } | Reason::OverBudget { policies, .. } => policies,
        Reason::Provisional { .. } | Reason::Changing => &[],
    }
}

pub(super) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    }
}

pub(super) fn policies_text(policies: &[PolicyName]) -> String {
    policies.iter().map(PolicyName::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn policies_cell(policies: &[PolicyName]) -> Cell {
    Cell::List(policies.iter().map(|policy| Cell::Text(policy.to_string().into())).collect())
}

pub(super) fn texts(texts: impl IntoIterator<Item = String>) -> Cell {
    Cell::List(texts.into_iter().map(|text| Cell::Text(text.into())).collect())
}

/// The rule sets that an endpoint has, by direction; those without are not isolated.
pub(super) fn rule_sets(endpoint: &Endpoint) -> impl Iterator<Item = (Direction, u32)> + use<> {
    let both = [(Direction::Ingress, endpoint.ingress_rules), (Direction::Egress, endpoint.egress_rules)];
    both.into_iter().filter(|(_, set)| *set != OPEN)
}

/// What policy makes of endpoints: as their Pod and their policies say, or one of what [`state`] says.
pub(super) const STATES: [&str; 7] =
    ["open", "isolated", "provisional", "over_budget", "changing", "unknown", "unmanaged"];

/// What makes an endpoint's policy something else than what its Pod and its policies say: of `endpoint list`.
pub(super) fn state(names: &Names, slot: u32, endpoint: &Endpoint) -> Option<&'static str> {
    if names.pod(slot)?.is_none() {
        return Some("unmanaged");
    }
    let mut states = rule_sets(endpoint).map(|(_, set)| {
        let known = names.set(set);
        let cookie = known.map_or(names.unknown.get(&set).copied(), |set| Some(set.isolation));
        match cookie.and_then(|cookie| names.reason(cookie)) {
            Some(Reason::Provisional { .. }) => Some("provisional"),
            Some(Reason::Changing) => Some("changing"),
            Some(Reason::OverBudget { .. }) => Some("over_budget"),
            _ => known.is_none().then_some("unknown"),
        }
    });
    states.find_map(|state| state)
}

/// The fields of `endpoint list` that are about policy.
pub(super) fn endpoint_record(names: &Names, slot: u32, endpoint: &Endpoint) -> Record {
    let isolated = rule_sets(endpoint).map(|(direction, _)| direction_name(direction).into()).collect();
    let state = state(names, slot, endpoint).map_or(Cell::Absent, Cell::name);
    Record::new().with("isolated", Cell::Flags(isolated)).with("policy", state)
}
