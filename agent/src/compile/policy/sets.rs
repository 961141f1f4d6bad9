//! Rule sets: what one direction of an endpoint is held to.
//!
//! Invariant: a rule set is its key for ever; it lives as long as an endpoint has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use osmia_maps::catalogue::PolicyName;

use super::{
    Local,
    atoms::{Atom, Atoms, Who},
    budget::{Room, ranges_of},
    classes::Signature,
    cookies::{Cookie, Cookies},
    numbers::Numbers,
    ports::Range,
    recall::Recalled,
    totals::Totals,
};
use crate::model::{
    Cluster, NamedPort,
    policy::{Direction, Peers, Port, Ports, Protocol, Rule},
};

/// What makes two endpoints' rules the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) direction: Direction,
    pub(super) policies: Vec<(PolicyName, Arc<[Rule]>)>,
    /// The endpoint's ports that rules call by name (ingress).
    pub(super) named: Vec<NamedPort>,
}

/// The rules of an endpoint; `None`: nothing isolates it.
pub(super) fn key(cluster: &Cluster, local: &Local, direction: Direction) -> Option<Key> {
    let pod_key = local.pod.as_ref()?;
    let policies = cluster.policies_in(pod_key.namespace());
    let Some(pod) = local.judged(cluster) else {
        let provisional = Key { direction, policies: Vec::new(), named: Vec::new() };
        return local.may_be_isolated(cluster).then_some(provisional);
    };
    let policies: Vec<(PolicyName, Arc<[Rule]>)> = policies
        .filter_map(|(key, told)| {
            // While a policy waits whom it isolates by what it says now is held to that, and whom it isolated before alone to what it said then.
            let mut selecting = cluster.said(key, told).filter(|policy| policy.subject.matches(&pod.labels));
            let (policy, rules) = selecting.find_map(|policy| Some((policy, Arc::clone(policy.rules(direction)?))))?;
            let (namespace, name, uid) = (key.namespace().into(), key.name().into(), policy.uid.to_string());
            Some((PolicyName { namespace, name, uid }, rules))
        })
        .collect();
    if policies.is_empty() {
        return None;
    }
    let named = match direction {
        Direction::Egress => Vec::new(),
        Direction::Ingress => {
            let used: BTreeSet<(Protocol, &str)> =
                policies.iter().flat_map(|(_, rules)| rules.iter()).flat_map(names).collect();
            pod.ports.iter().filter(|port| used.contains(&(port.protocol, &*port.name))).cloned().collect()
        }
    };
    Some(Key { direction, policies, named })
}

/// Whether no policy isolates an endpoint, and nothing says that one might.
pub(super) fn is_open(cluster: &Cluster, local: &Local) -> bool {
    [Direction::Egress, Direction::Ingress].into_iter().all(|direction| key(cluster, local, direction).is_none())
}

fn items(rule: &Rule) -> impl Iterator<Item = (Protocol, &Port)> {
    let items = match &rule.ports {
        Ports::All => [].as_slice(),
        Ports::Of(items) => items,
    };
    items.iter().map(|item| (item.protocol, &item.port))
}

fn names(rule: &Rule) -> impl Iterator<Item = (Protocol, &str)> {
    items(rule).filter_map(|(protocol, port)| match port {
        Port::Named(name) => Some((protocol, &**name)),
        Port::All | Port::Range(..) => None,
    })
}

/// A rule with its atoms.
#[derive(Debug)]
pub(super) struct SetRule {
    pub(super) cookie: u32,
    /// Atoms of its peers; `None`: anyone.
    pub(super) peers: Option<BTreeSet<u32>>,
    /// Traffic by number; `None`: all traffic.
    pub(super) ranges: Option<Vec<Range>>,
    /// Atoms that tell the port of the peer's pod (egress).
    pub(super) named: Vec<(u32, Protocol)>,
}

#[derive(Debug)]
pub(super) struct Set {
    pub(super) key: Arc<Key>,
    /// Without room for all of it nothing is allowed by it.
    pub(super) room: Room,
    /// How many ranges and exceptions its rules write down.
    pub(super) ranges: usize,
    /// How many rows it has, or would have.
    pub(super) rows: usize,
    pub(super) isolation: u32,
    pub(super) rules: Vec<SetRule>,
    atoms: BTreeSet<u32>,
    /// Rules that speak of an atom, by index; sorted.
    speaking: Vec<(u32, usize)>,
    /// Rules that speak of anybody.
    anybody: Vec<usize>,
    /// Slots of the endpoints that have it.
    holders: BTreeSet<u32>,
}

#[derive(Debug)]
pub(super) struct Sets {
    numbers: BTreeMap<Arc<Key>, u32>,
    sets: BTreeMap<u32, Set>,
    with: BTreeMap<u32, BTreeSet<u32>>,
    pub(super) given: Numbers,
    pub(super) cookies: Cookies,
    pub(super) recalled: Recalled,
    totals: Totals,
}

impl Default for Sets {
    fn default() -> Self {
        let mut cookies = Cookies::default();
        let closed = cookies.take(Cookie::Changing, &none(), None);
        debug_assert_eq!(closed, super::CLOSED_COOKIE);
        Self {
            numbers: BTreeMap::new(),
            sets: BTreeMap::new(),
            with: BTreeMap::new(),
            given: Numbers::after(super::CLOSED),
            cookies,
            recalled: Recalled::default(),
            totals: Totals::default(),
        }
    }
}

impl Sets {
    /// The number of a rule set, its atoms taken and `new` called if it is new. `before` is what the endpoint had.
    pub(super) fn number(&mut self, key: Key, before: u32, atoms: &mut Atoms, new: impl FnOnce(u32)) -> u32 {
        // Most changes of a policy leave one direction as it is: nothing is looked for then.
        if self.sets.get(&before).is_some_and(|set| *set.key == key) {
            return before;
        }
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.make(Arc::new(key), Room::Whole, atoms);
        new(number);
        number
    }

    /// The same rules under another number; the old number is kept until it is forgotten.
    pub(super) fn renumber(&mut self, number: u32, room: Room, atoms: &mut Atoms) -> Option<u32> {
        let (key, rows) = self.sets.get(&number).map(|set| (Arc::clone(&set.key), set.rows))?;
        let new = self.make(key, room, atoms);
        if let Some(set) = self.sets.get_mut(&new) {
            set.rows = rows;
        }
        Some(new)
    }

    fn make(&mut self, key: Arc<Key>, room: Room, atoms: &mut Atoms) -> u32 {
        let before = self.recalled.set(&key, room);
        let number = before.as_ref().map_or_else(|| self.given.next(), |before| before.number);
        let isolating: Vec<PolicyName> = key.policies.iter().map(|(policy, _)| policy.clone()).collect();
        let isolation = Cookie::isolation(key.direction, isolating, room);
        let known = before.as_ref().map(|before| before.isolation).or_else(|| self.recalled.cookie(&isolation, None));
        let isolation = self.cookies.take(isolation, &none(), known);
        let mut rules = Vec::new();
        for (policy, of) in key.policies.iter().filter(|_| room != Room::NoRanges) {
            for (index, rule) in of.iter().enumerate() {
                let cookie = Cookie::Rule { policy: policy.clone(), direction: key.direction, rule: index };
                let known = before.as_ref().and_then(|before| before.rules.get(rules.len()).copied());
                let known = known.or_else(|| self.recalled.cookie(&cookie, Some(of)));
                let cookie = self.cookies.take(cookie, of, known);
                rules.push(set_rule(rule, &policy.namespace, cookie, &key, atoms));
            }
        }
        let of_rule = |(index, rule): (usize, &SetRule)| {
            let named = rule.named.iter().map(|(atom, _)| *atom);
            rule.peers.iter().flatten().copied().chain(named).map(move |atom| (atom, index)).collect::<Vec<_>>()
        };
        let mut speaking: Vec<(u32, usize)> = rules.iter().enumerate().flat_map(of_rule).collect();
        speaking.sort_unstable();
        let own: BTreeSet<u32> = speaking.iter().map(|(atom, _)| *atom).collect();
        for atom in &own {
            self.with.entry(*atom).or_default().insert(number);
        }
        let anybody = rules.iter().enumerate().filter(|(_, rule)| rule.peers.is_none()).map(|(index, _)| index);
        let anybody = anybody.collect();
        self.numbers.insert(Arc::clone(&key), number);
        let ranges = ranges_of(&key).count();
        let set = Set {
            key,
            room,
            ranges,
            rows: 1,
            isolation,
            rules,
            atoms: own,
            speaking,
            anybody,
            holders: BTreeSet::new(),
        };
        self.sets.insert(number, set);
        number
    }

    /// The endpoint in a slot has it now.
    pub(super) fn take(&mut self, number: u32, slot: u32) {
        let Some(set) = self.sets.get_mut(&number) else { return };
        if set.holders.is_empty() {
            self.totals.add(set);
        }
        set.holders.insert(slot);
    }

    /// The endpoint in a slot has it no more. Whether nobody has it now.
    pub(super) fn release(&mut self, number: u32, slot: u32) -> bool {
        let Some(set) = self.sets.get_mut(&number) else { return false };
        let is_last = set.holders.remove(&slot) && set.holders.is_empty();
        if is_last {
            self.totals.remove(set);
        }
        is_last
    }

    /// Gives back what [`Self::number`] took.
    pub(super) fn release_atoms(&self, number: u32, atoms: &mut Atoms) {
        let rules = self.sets.get(&number).into_iter().flat_map(|set| &set.rules);
        for rule in rules {
            let named = rule.named.iter().map(|(atom, _)| atom);
            for atom in rule.peers.iter().flatten().chain(named) {
                atoms.release(*atom);
            }
        }
    }

    /// A set that nobody has is known no more.
    pub(super) fn forget(&mut self, number: u32) {
        let Some(set) = self.sets.remove(&number) else { return };
        if self.numbers.get(&set.key) == Some(&number) {
            self.numbers.remove(&set.key);
        }
        self.given.leave(number);
        for atom in &set.atoms {
            if let Some(with) = self.with.get_mut(atom) {
                with.remove(&number);
                if with.is_empty() {
                    self.with.remove(atom);
                }
            }
        }
        for cookie in set.rules.iter().map(|rule| rule.cookie).chain([set.isolation]) {
            self.cookies.release(cookie);
        }
    }

    pub(super) fn get(&self, number: u32) -> Option<&Set> {
        self.sets.get(&number)
    }

    /// So many rows it has, or would have.
    pub(super) fn set_rows(&mut self, number: u32, rows: usize) {
        let Some(set) = self.sets.get_mut(&number) else { return };
        let before = std::mem::replace(&mut set.rows, rows);
        if !set.holders.is_empty() {
            self.totals.rows = self.totals.rows - before + rows;
        }
    }

    /// What those that endpoints have need together.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// The endpoints, by slot, that have any of these sets; some more than once.
    pub(super) fn holders(&self, sets: BTreeSet<u32>) -> impl Iterator<Item = u32> {
        sets.into_iter().filter_map(|number| self.sets.get(&number)).flat_map(|set| &set.holders).copied()
    }

    /// Those that endpoints have.
    pub(super) fn used(&self) -> impl Iterator<Item = (u32, &Set)> {
        self.sets.iter().filter(|(_, set)| !set.holders.is_empty()).map(|(number, set)| (*number, set))
    }

    pub(super) fn atoms(&self, number: u32) -> &BTreeSet<u32> {
        static NONE: BTreeSet<u32> = BTreeSet::new();
        self.sets.get(&number).map_or(&NONE, |set| &set.atoms)
    }

    /// Sets with any of these atoms.
    pub(super) fn with_any<'a>(&self, atoms: impl Iterator<Item = &'a u32>) -> BTreeSet<u32> {
        atoms.filter_map(|atom| self.with.get(atom)).flatten().copied().collect()
    }

    /// Numbers of all sets.
    pub(super) fn numbers(&self) -> BTreeSet<u32> {
        self.sets.keys().copied().collect()
    }
}

impl Set {
    /// The rules that may speak of a class with this signature, in order.
    pub(super) fn speaking(&self, signature: &Signature) -> impl Iterator<Item = &SetRule> {
        let of = |atom: u32| {
            let first = self.speaking.partition_point(|(a, _)| *a < atom);
            self.speaking.iter().skip(first).take_while(move |(a, _)| *a == atom).map(|(_, index)| *index)
        };
        let rules: BTreeSet<usize> =
            signature.iter().flat_map(|(atom, _)| of(*atom)).chain(self.anybody.iter().copied()).collect();
        rules.into_iter().filter_map(|index| self.rules.get(index))
    }
}

fn none() -> Arc<[Rule]> {
    Arc::from([])
}

fn set_rule(rule: &Rule, namespace: &str, cookie: u32, key: &Key, atoms: &mut Atoms) -> SetRule {
    let ranges = match &rule.ports {
        Ports::All => None,
        Ports::Of(_) => Some(items(rule).flat_map(|(protocol, port)| numbers(protocol, port, &key.named)).collect()),
    };
    let has_ranges = ranges.as_ref().is_none_or(|ranges: &Vec<Range>| !ranges.is_empty());
    let who: Option<BTreeSet<Who>> = match &rule.peers {
        Peers::Anyone => None,
        Peers::Of(peers) => Some(peers.iter().filter_map(|peer| Who::of(peer, namespace)).collect()),
    };
    let peers = who.as_ref().map(|who| {
        let needed = who.iter().filter(|_| has_ranges);
        needed.map(|who| atoms.take(Atom { who: who.clone(), named: None })).collect()
    });
    let mut named = Vec::new();
    if key.direction == Direction::Egress {
        let used: BTreeSet<(Protocol, &str)> = names(rule).collect();
        // A range is no pod that could have named ports.
        let pods = who.unwrap_or_else(|| BTreeSet::from([Who::AnyPod])).into_iter();
        for who in pods.filter(|who| !matches!(who, Who::Block(..))) {
            for (protocol, name) in &used {
                let atom = Atom { who: who.clone(), named: Some((*protocol, (*name).into())) };
                named.push((atoms.take(atom), *protocol));
            }
        }
    }
    SetRule { cookie, peers, ranges, named }
}

fn numbers(protocol: Protocol, port: &Port, named: &[NamedPort]) -> Vec<Range> {
    match port {
        Port::All => vec![Range { protocol, first: 0, last: u16::MAX }],
        Port::Range(first, last) => vec![Range { protocol, first: *first, last: *last }],
        Port::Named(name) => {
            let own = named.iter().filter(|port| port.protocol == protocol && port.name == *name);
            own.map(|port| Range { protocol, first: port.port, last: port.port }).collect()
        }
    }
}
