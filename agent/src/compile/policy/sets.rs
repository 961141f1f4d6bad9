//! Rule sets: what one direction of an endpoint is held to.
//!
//! Invariant: a rule set is its key for ever; it lives as long as an endpoint has it. Cookies name rules and isolations; one is never given
//! to another, and a policy that was written anew has new ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Local,
    atoms::{Atom, Atoms, Who},
    classes::Signature,
    ports::Range,
};
use crate::model::{
    Cluster, NamedPort,
    policy::{Direction, Peers, Port, Ports, Protocol, Rule},
};

/// A policy that isolates an endpoint.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Isolating {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, empty where a manifest has none.
    pub uid: String,
}

/// What a cookie stands for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cookie {
    /// A rule that allows.
    Rule {
        /// The policy.
        policy: Isolating,
        /// Which list of it.
        direction: Direction,
        /// Index in that list.
        rule: usize,
    },
    /// Isolation by these policies.
    Isolated(Direction, Vec<Isolating>),
    /// The endpoint's Pod has not been told yet, and a policy may select it.
    Provisional(Direction),
    /// The endpoint's rules are being written this moment.
    Changing,
}

/// What makes two endpoints' rules the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    direction: Direction,
    policies: Vec<(Isolating, Arc<[Rule]>)>,
    /// The endpoint's ports that rules call by name (ingress).
    named: Vec<NamedPort>,
}

/// The rules of an endpoint; `None`: nothing isolates it.
pub(super) fn key(cluster: &Cluster, local: &Local, direction: Direction) -> Option<Key> {
    let pod_key = local.pod.as_ref()?;
    let policies = cluster.policies.range((pod_key.0.clone(), String::new())..);
    let policies = policies.take_while(|(key, _)| key.0 == pod_key.0);
    let Some(pod) = cluster.pods.get(pod_key) else {
        let open = cluster.namespaces.contains_key(&pod_key.0) && policies.count() == 0;
        return (!open).then(|| Key { direction, policies: Vec::new(), named: Vec::new() });
    };
    if !pod.has_network() {
        return None;
    }
    let selecting = policies.filter(|(_, policy)| policy.subject.matches(&pod.labels));
    let policies: Vec<(Isolating, Arc<[Rule]>)> = selecting
        .filter_map(|((namespace, name), policy)| {
            let rules = Arc::clone(policy.rules(direction)?);
            let (namespace, name, uid) = (namespace.clone(), name.clone(), policy.uid.clone());
            Some((Isolating { namespace, name, uid }, rules))
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
            pod.ports.iter().filter(|port| used.contains(&(port.protocol, port.name.as_str()))).cloned().collect()
        }
    };
    Some(Key { direction, policies, named })
}

fn items(rule: &Rule) -> impl Iterator<Item = (Protocol, &Port)> {
    let items = match &rule.ports {
        Ports::All => [].as_slice(),
        Ports::Of(items) => items.as_slice(),
    };
    items.iter().map(|item| (item.protocol, &item.port))
}

fn names(rule: &Rule) -> impl Iterator<Item = (Protocol, &str)> {
    items(rule).filter_map(|(protocol, port)| match port {
        Port::Named(name) => Some((protocol, name.as_str())),
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
    key: Arc<Key>,
    pub(super) isolation: u32,
    pub(super) rules: Vec<SetRule>,
    atoms: BTreeSet<u32>,
    users: usize,
}

#[derive(Debug)]
pub(super) struct Sets {
    numbers: BTreeMap<Arc<Key>, u32>,
    sets: BTreeMap<u32, Set>,
    with: BTreeMap<u32, BTreeSet<u32>>,
    last: u32,
    cookies: Cookies,
}

impl Default for Sets {
    fn default() -> Self {
        let mut cookies = Cookies::default();
        let closed = cookies.take(Cookie::Changing, Arc::from([]));
        debug_assert_eq!(closed, super::CLOSED_COOKIE);
        let (numbers, sets, with) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { numbers, sets, with, last: super::CLOSED, cookies }
    }
}

impl Sets {
    /// The number of a rule set, its atoms taken and `new` called if it is new.
    pub(super) fn number(&mut self, key: Key, atoms: &mut Atoms, new: impl FnOnce(u32)) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        self.last += 1;
        let number = self.last;
        let key = Arc::new(key);
        let isolating: Vec<Isolating> = key.policies.iter().map(|(policy, _)| policy.clone()).collect();
        let isolation = match isolating.is_empty() {
            true => Cookie::Provisional(key.direction),
            false => Cookie::Isolated(key.direction, isolating),
        };
        let isolation = self.cookies.take(isolation, Arc::from([]));
        let mut rules = Vec::new();
        for (policy, of) in &key.policies {
            for (index, rule) in of.iter().enumerate() {
                let cookie = Cookie::Rule { policy: policy.clone(), direction: key.direction, rule: index };
                let cookie = self.cookies.take(cookie, Arc::clone(of));
                rules.push(set_rule(rule, &policy.namespace, cookie, &key, atoms));
            }
        }
        let peers = rules.iter().flat_map(|rule| rule.peers.iter().flatten().copied());
        let own: BTreeSet<u32> =
            peers.chain(rules.iter().flat_map(|r| r.named.iter().map(|(atom, _)| *atom))).collect();
        for atom in &own {
            self.with.entry(*atom).or_default().insert(number);
        }
        self.numbers.insert(Arc::clone(&key), number);
        self.sets.insert(number, Set { key, isolation, rules, atoms: own, users: 0 });
        new(number);
        number
    }

    pub(super) fn take(&mut self, number: u32) {
        if let Some(set) = self.sets.get_mut(&number) {
            set.users += 1;
        }
    }

    /// Whether nobody has it any more.
    pub(super) fn release(&mut self, number: u32) -> bool {
        self.sets.get_mut(&number).is_some_and(|set| {
            set.users = set.users.saturating_sub(1);
            set.users == 0
        })
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
        self.numbers.remove(&set.key);
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

    pub(super) fn atoms(&self, number: u32) -> &BTreeSet<u32> {
        static NONE: BTreeSet<u32> = BTreeSet::new();
        self.sets.get(&number).map_or(&NONE, |set| &set.atoms)
    }

    /// Sets with an atom of the signature.
    pub(super) fn with_any(&self, signature: &Signature) -> BTreeSet<u32> {
        signature.iter().filter_map(|(atom, _)| self.with.get(atom)).flatten().copied().collect()
    }

    pub(super) fn cookies(&self) -> impl Iterator<Item = (u32, &Cookie)> {
        self.cookies.states.iter().map(|(number, state)| (*number, &state.key.0))
    }
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
                let atom = Atom { who: who.clone(), named: Some((*protocol, (*name).to_owned())) };
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

type CookieKey = (Cookie, Arc<[Rule]>);

#[derive(Debug)]
struct CookieState {
    key: Arc<CookieKey>,
    users: usize,
}

#[derive(Debug, Default)]
struct Cookies {
    numbers: BTreeMap<Arc<CookieKey>, u32>,
    states: BTreeMap<u32, CookieState>,
    last: u32,
}

impl Cookies {
    /// The cookie of a name, as long as the rules it comes from are the same.
    fn take(&mut self, cookie: Cookie, rules: Arc<[Rule]>) -> u32 {
        let key = (cookie, rules);
        if let Some(number) = self.numbers.get(&key) {
            if let Some(state) = self.states.get_mut(number) {
                state.users += 1;
            }
            return *number;
        }
        self.last += 1;
        let key = Arc::new(key);
        self.numbers.insert(Arc::clone(&key), self.last);
        self.states.insert(self.last, CookieState { key, users: 1 });
        self.last
    }

    fn release(&mut self, number: u32) {
        let Some(state) = self.states.get_mut(&number) else { return };
        state.users = state.users.saturating_sub(1);
        if state.users == 0
            && let Some(state) = self.states.remove(&number)
        {
            self.numbers.remove(&state.key);
        }
    }
}
