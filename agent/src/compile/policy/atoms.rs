//! Atoms: the peers of all rules in use, each once.
//!
//! Invariant: an atom lives as long as a rule set uses it. Numbers are never given twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::numbers::Numbers;
use crate::model::{
    Cluster, Name, NamespaceObject, PodObject, Selector, Sorted,
    policy::{Namespaces, Peer, Protocol},
};

/// Whom an atom speaks of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) enum Who {
    /// Every pod.
    AnyPod,
    /// Pods of one namespace.
    Own(String, Selector),
    /// Pods of labelled namespaces.
    Labelled(Selector, Selector),
    /// A range without some parts.
    Block(IpNet, Sorted<IpNet>),
}

/// One peer, or what its pods call a port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct Atom {
    pub(super) who: Who,
    pub(super) named: Option<(Protocol, Box<str>)>,
}

/// An atom and its number.
#[derive(Clone, Debug)]
pub(super) struct Numbered {
    pub(super) number: u32,
    pub(super) atom: Arc<Atom>,
}

impl Who {
    /// A peer of a rule of a policy in `namespace`; `None`: nobody.
    pub(super) fn of(peer: &Peer, namespace: &str) -> Option<Self> {
        match peer {
            Peer::Pods { namespaces: Namespaces::Own, pods } => Some(Self::Own(namespace.to_owned(), pods.clone())),
            Peer::Pods { namespaces: Namespaces::Labelled(selector), pods } => {
                Some(Self::Labelled(selector.clone(), pods.clone()))
            }
            Peer::Block { cidr, except } => Some(Self::Block(*cidr, except.clone())),
            Peer::Refused => None,
        }
    }
}

impl Atom {
    /// The range, where it speaks of one.
    pub(super) fn range(&self) -> Option<IpNet> {
        match &self.who {
            Who::Block(cidr, _) => Some(*cidr),
            _ => None,
        }
    }

    /// Pods it may speak of.
    pub(super) fn candidates<'c: 'a, 'a>(
        &'a self,
        cluster: &'c Cluster,
    ) -> Box<dyn Iterator<Item = (&'c Name, &'c PodObject)> + 'a> {
        match &self.who {
            Who::Own(namespace, _) => Box::new(cluster.pods_in(namespace)),
            Who::AnyPod | Who::Labelled(..) => Box::new(cluster.pods.iter().map(|(key, pod)| (key, &**pod))),
            Who::Block(..) => Box::new(std::iter::empty()),
        }
    }

    /// What it says of a pod in a namespace: nothing, 0, or the numbers of its named port.
    pub(super) fn value<'a>(
        &'a self,
        namespace: Option<&NamespaceObject>,
        key: &Name,
        pod: &'a PodObject,
    ) -> Box<dyn Iterator<Item = u16> + 'a> {
        let speaks = match &self.who {
            Who::AnyPod => true,
            Who::Own(namespace, pods) => key.is_in(namespace) && pods.matches(&pod.labels),
            Who::Labelled(namespaces, pods) => {
                namespace.is_some_and(|n| namespaces.matches(&n.labels)) && pods.matches(&pod.labels)
            }
            Who::Block(..) => false,
        };
        match (&self.named, speaks) {
            (_, false) => Box::new(std::iter::empty()),
            (None, true) => Box::new(std::iter::once(0)),
            (Some((protocol, name)), true) => Box::new(
                pod.ports.iter().filter(move |p| p.protocol == *protocol && p.name == *name).map(|port| port.port),
            ),
        }
    }
}

#[derive(Debug)]
struct State {
    atom: Arc<Atom>,
    users: usize,
}

#[derive(Debug, Default)]
pub(super) struct Atoms {
    numbers: BTreeMap<Arc<Atom>, u32>,
    states: BTreeMap<u32, State>,
    /// Those that speak of pods of one namespace.
    own: BTreeMap<String, BTreeSet<u32>>,
    /// Those that may speak of pods of any.
    wide: BTreeSet<u32>,
    pub(super) given: Numbers,
    /// Numbers that atoms had before this start.
    pub(super) recalled: BTreeMap<Atom, u32>,
    born: BTreeSet<u32>,
    unused: BTreeSet<u32>,
}

impl Atoms {
    /// The number of an atom, which is used once more now.
    pub(super) fn take(&mut self, atom: Atom) -> u32 {
        if let Some(number) = self.numbers.get(&atom) {
            if let Some(state) = self.states.get_mut(number) {
                state.users += 1;
            }
            self.unused.remove(number);
            return *number;
        }
        let number = self.recalled.get(&atom).copied().unwrap_or_else(|| self.given.next());
        let atom = Arc::new(atom);
        match &atom.who {
            Who::Own(namespace, _) => {
                self.own.entry(namespace.clone()).or_default().insert(number);
            }
            Who::AnyPod | Who::Labelled(..) => {
                self.wide.insert(number);
            }
            Who::Block(..) => {}
        }
        self.numbers.insert(Arc::clone(&atom), number);
        self.states.insert(number, State { atom, users: 1 });
        self.born.insert(number);
        number
    }

    /// An atom is used once less.
    pub(super) fn release(&mut self, number: u32) {
        if let Some(state) = self.states.get_mut(&number) {
            state.users = state.users.saturating_sub(1);
            if state.users == 0 {
                self.unused.insert(number);
            }
        }
    }

    /// Numbers of all atoms.
    pub(super) fn numbers(&self) -> BTreeSet<u32> {
        self.states.keys().copied().collect()
    }

    /// By number.
    pub(super) fn get(&self, number: u32) -> Option<&Atom> {
        self.states.get(&number).map(|state| &*state.atom)
    }

    /// What came since the last time.
    pub(super) fn born(&mut self) -> Vec<Numbered> {
        let born = std::mem::take(&mut self.born);
        born.into_iter().filter_map(|number| self.numbered(number)).collect()
    }

    /// Forgets those that nothing uses.
    pub(super) fn bury(&mut self) -> Vec<Numbered> {
        let unused = std::mem::take(&mut self.unused);
        self.forget(&unused)
    }

    /// Forgets those that came since the last time and are not used: no range or class has them yet.
    pub(super) fn drop_unborn(&mut self) {
        let unborn = &self.born & &self.unused;
        self.born = &self.born - &unborn;
        self.unused = &self.unused - &unborn;
        self.forget(&unborn);
    }

    fn forget(&mut self, unused: &BTreeSet<u32>) -> Vec<Numbered> {
        let dead: Vec<Numbered> = unused.iter().filter_map(|number| self.numbered(*number)).collect();
        for Numbered { number, atom } in &dead {
            self.numbers.remove(atom);
            self.states.remove(number);
            self.given.leave(*number);
            self.wide.remove(number);
            if let Who::Own(namespace, _) = &atom.who
                && let Some(own) = self.own.get_mut(namespace)
            {
                own.remove(number);
                if own.is_empty() {
                    self.own.remove(namespace);
                }
            }
        }
        dead
    }

    fn numbered(&self, number: u32) -> Option<Numbered> {
        self.states.get(&number).map(|state| Numbered { number, atom: Arc::clone(&state.atom) })
    }

    /// What all atoms say of a pod.
    pub(super) fn of_pod(&self, cluster: &Cluster, key: &Name, pod: &PodObject) -> Vec<(u32, u16)> {
        let namespace = cluster.namespaces.get(key.namespace());
        let own = self.own.get(key.namespace()).into_iter().flatten();
        let asked = own.chain(&self.wide).filter_map(|number| Some((*number, self.states.get(number)?)));
        asked
            .flat_map(|(number, state)| {
                state.atom.value(namespace, key, pod).map(move |value| (number, value)).collect::<Vec<_>>()
            })
            .collect()
    }
}
