//! Classes: addresses that every atom treats alike.
//!
//! Invariant: a class is its signature for ever; it lives as long as an address or a range has it. Class 0 has the empty signature.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;

use super::{blocks::ALL_V4, numbers::Numbers};
use crate::model::packed::pack;

/// What the atoms in use say of an address, sorted: atom, and 0 or the port that the address' pod calls by the atom's name.
pub(super) type Signature = Arc<[(u32, u16)]>;

/// The atoms of which two signatures, both sorted, say something else.
pub(super) fn difference(a: &[(u32, u16)], b: &[(u32, u16)]) -> BTreeSet<u32> {
    let alone = |a: &[(u32, u16)], b: &[(u32, u16)]| -> Vec<u32> {
        a.iter().filter(|said| b.binary_search(said).is_err()).map(|(atom, _)| *atom).collect()
    };
    alone(a, b).into_iter().chain(alone(b, a)).collect()
}

#[derive(Debug)]
struct State {
    signature: Signature,
    users: usize,
}

#[derive(Debug)]
pub(super) struct Classes {
    numbers: BTreeMap<Signature, u32>,
    states: BTreeMap<u32, State>,
    with: BTreeMap<u32, BTreeSet<u32>>,
    addresses: BTreeMap<IpAddr, u32>,
    /// Addresses that would have a class of their own if there were room: all above those that have one.
    crowded_out: BTreeSet<IpAddr>,
    prefixes: BTreeMap<IpNet, u32>,
    /// What is said of addresses of pods that have no class of their own, where their range says something.
    ranged: BTreeMap<IpAddr, Signature>,
    pub(super) given: Numbers,
    /// Numbers that signatures had before this start.
    pub(super) recalled: BTreeMap<Vec<(u32, u16)>, u32>,
    born: BTreeSet<u32>,
    unused: BTreeSet<u32>,
}

impl Default for Classes {
    fn default() -> Self {
        Self {
            numbers: BTreeMap::new(),
            states: BTreeMap::new(),
            with: BTreeMap::new(),
            addresses: BTreeMap::new(),
            crowded_out: BTreeSet::new(),
            prefixes: BTreeMap::from([(ALL_V4, 0)]),
            ranged: BTreeMap::new(),
            given: Numbers::default(),
            recalled: BTreeMap::new(),
            born: BTreeSet::new(),
            unused: BTreeSet::new(),
        }
    }
}

impl Classes {
    /// The class with a signature; it is nobody's yet if it is new.
    pub(super) fn number(&mut self, signature: Signature) -> u32 {
        if signature.is_empty() {
            return 0;
        }
        if let Some(number) = self.numbers.get(&signature) {
            return *number;
        }
        let number = self.recalled.get(&*signature).copied().unwrap_or_else(|| self.given.next());
        for (atom, _) in signature.iter() {
            self.with.entry(*atom).or_default().insert(number);
        }
        self.numbers.insert(Arc::clone(&signature), number);
        self.states.insert(number, State { signature, users: 0 });
        self.born.insert(number);
        self.unused.insert(number);
        number
    }

    pub(super) fn of_address(&self, address: &IpAddr) -> Option<u32> {
        self.addresses.get(address).copied()
    }

    /// Numbers of all classes.
    pub(super) fn numbers(&self) -> BTreeSet<u32> {
        self.states.keys().copied().collect()
    }

    pub(super) fn has(&self, class: u32) -> bool {
        self.states.contains_key(&class)
    }

    /// The classes of addresses that have another one than their range.
    pub(super) fn addresses(&self) -> &BTreeMap<IpAddr, u32> {
        &self.addresses
    }

    /// Addresses that would have another class than their range if there were room.
    pub(super) fn crowded_out(&self) -> &BTreeSet<IpAddr> {
        &self.crowded_out
    }

    /// An address is about to have a class of its own, of at most `room`, or is among the crowded out now. Who loses his class to it.
    pub(super) fn make_room(&mut self, address: IpAddr, room: usize) -> Option<IpAddr> {
        let has = self.addresses.contains_key(&address) || self.crowded_out.contains(&address);
        if has || self.addresses.len() < room {
            return None;
        }
        let loser = self.addresses.last_key_value().map(|(last, _)| *last).filter(|last| address < *last);
        self.crowded_out.insert(loser.unwrap_or(address));
        loser
    }

    /// An address has no class of its own. Who may have one instead.
    pub(super) fn leave_room(&mut self, address: &IpAddr, room: usize) -> Option<IpAddr> {
        self.crowded_out.remove(address);
        if self.addresses.len() < room { self.crowded_out.pop_first() } else { None }
    }

    /// The classes of ranges.
    pub(super) fn prefixes(&self) -> &BTreeMap<IpNet, u32> {
        &self.prefixes
    }

    pub(super) fn of_prefix(&self, prefix: &IpNet) -> Option<u32> {
        self.prefixes.get(prefix).copied()
    }

    pub(super) fn set_address(&mut self, address: IpAddr, class: Option<u32>) {
        let before = match class {
            Some(class) => self.addresses.insert(address, class),
            None => self.addresses.remove(&address),
        };
        self.moved(before, class);
    }

    pub(super) fn set_prefix(&mut self, prefix: IpNet, class: Option<u32>) {
        let before = match class {
            Some(class) => self.prefixes.insert(prefix, class),
            None => self.prefixes.remove(&prefix),
        };
        self.moved(before, class);
    }

    /// What was said of an address of a pod, whether by its class or by its range.
    pub(super) fn meaning(&self, address: &IpAddr) -> Signature {
        match self.of_address(address) {
            Some(class) => self.signature(class),
            None => self.ranged.get(address).cloned().unwrap_or_default(),
        }
    }

    /// What is said of an address by its range; `None`: it has a class of its own.
    pub(super) fn set_ranged(&mut self, address: IpAddr, around: Option<&Signature>) {
        match around.filter(|signature| !signature.is_empty()) {
            Some(signature) => self.ranged.insert(address, Arc::clone(signature)),
            None => self.ranged.remove(&address),
        };
    }

    /// Leaves no room between what it has.
    pub(super) fn pack(&mut self) {
        pack(&mut self.addresses);
        pack(&mut self.ranged);
    }

    fn moved(&mut self, from: Option<u32>, to: Option<u32>) {
        if let Some((number, state)) = to.and_then(|to| Some((to, self.states.get_mut(&to)?))) {
            state.users += 1;
            self.unused.remove(&number);
        }
        if let Some((number, state)) = from.and_then(|from| Some((from, self.states.get_mut(&from)?))) {
            state.users = state.users.saturating_sub(1);
            if state.users == 0 {
                self.unused.insert(number);
            }
        }
    }

    /// Classes that came and are had, and classes that nothing has any more: those stay known until they are forgotten.
    pub(super) fn settle(&mut self) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let unused = std::mem::take(&mut self.unused);
        let born = std::mem::take(&mut self.born);
        let brief: Vec<u32> = born.intersection(&unused).copied().collect();
        for class in &brief {
            self.forget(*class);
        }
        let new = born.difference(&unused).copied().collect();
        (new, unused.into_iter().filter(|class| self.states.contains_key(class)).collect())
    }

    pub(super) fn forget(&mut self, class: u32) {
        let Some(state) = self.states.remove(&class) else { return };
        self.numbers.remove(&state.signature);
        self.given.leave(class);
        for (atom, _) in state.signature.iter() {
            if let Some(with) = self.with.get_mut(atom) {
                with.remove(&class);
                if with.is_empty() {
                    self.with.remove(atom);
                }
            }
        }
    }

    pub(super) fn signature(&self, class: u32) -> Signature {
        self.states.get(&class).map(|state| Arc::clone(&state.signature)).unwrap_or_default()
    }

    /// Classes of which any of these atoms speaks.
    pub(super) fn with_any(&self, atoms: &BTreeSet<u32>) -> BTreeSet<u32> {
        // The smaller side leads.
        if atoms.len() > self.states.len() {
            let speaks = |state: &State| state.signature.iter().any(|(atom, _)| atoms.contains(atom));
            return self.states.iter().filter(|(_, state)| speaks(state)).map(|(number, _)| *number).collect();
        }
        atoms.iter().filter_map(|atom| self.with.get(atom)).flatten().copied().collect()
    }
}
