//! What the numbers in the catalogue stood for: whatever means the same at this start keeps its number.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use osmia_maps::{
    catalogue::{Catalogue, Last},
    layout::policy::OPEN,
};
use serde::Deserialize as _;

use super::{
    CLOSED, CLOSED_COOKIE, Local,
    atoms::Atom,
    budget::Room,
    cookies::Cookie,
    definition::{Definition, Digest, Digests},
    resume::Pinned,
    sets::Key,
};
use crate::model::policy::Rule;

/// A rule set of before.
#[derive(Clone, Debug)]
pub(super) struct RecalledSet {
    pub(super) number: u32,
    /// Cookie of its isolation.
    pub(super) isolation: u32,
    /// Cookies of its rules.
    pub(super) rules: Vec<u32>,
}

/// Rule sets and cookies of before.
#[derive(Debug, Default)]
pub(super) struct Recalled {
    sets: BTreeMap<Definition, RecalledSet>,
    cookies: BTreeMap<(Cookie, Digest), u32>,
    digests: Digests,
}

impl Recalled {
    pub(super) fn set(&mut self, key: &Key, room: Room) -> Option<RecalledSet> {
        if self.sets.is_empty() {
            return None;
        }
        let definition = self.digests.definition(key, room);
        self.sets.get(&definition).cloned()
    }

    /// `rules`: those that a rule's cookie is of.
    pub(super) fn cookie(&mut self, cookie: &Cookie, rules: Option<&Arc<[Rule]>>) -> Option<u32> {
        if self.cookies.is_empty() {
            return None;
        }
        let digest = rules.map(|rules| self.digests.of(rules).clone()).unwrap_or_default();
        self.cookies.get(&(cookie.clone(), digest)).copied()
    }

    fn take(&mut self, set: RecalledSet, definition: Definition) {
        let direction = definition.direction;
        let isolating: Vec<_> = definition.policies.iter().map(|(policy, ..)| policy.clone()).collect();
        let isolation = Cookie::isolation(direction, isolating, definition.room);
        self.cookies.insert((isolation, Digest::new()), set.isolation);
        let mut cookies = set.rules.iter();
        for (policy, count, digest) in &definition.policies {
            for (rule, number) in cookies.by_ref().take(*count).enumerate() {
                let cookie = Cookie::Rule { policy: policy.clone(), direction, rule };
                self.cookies.insert((cookie, digest.clone()), *number);
            }
        }
        self.sets.insert(definition, set);
    }
}

/// Everything that had a number.
#[derive(Debug, Default)]
pub(super) struct Recall {
    pub(super) atoms: BTreeMap<Atom, u32>,
    pub(super) classes: BTreeMap<Vec<(u32, u16)>, u32>,
    pub(super) recalled: Recalled,
}

impl Recall {
    /// What a catalogue knows, but for some sets. An error says what in the rows it does not know.
    pub(super) fn of(
        catalogue: &Catalogue,
        pinned: &Pinned,
        locals: &BTreeMap<u32, Local>,
        but: &BTreeSet<u32>,
    ) -> Result<Self, String> {
        unknown(catalogue, pinned, locals)?;
        let mut recall = Self::default();
        for (number, (_, definition)) in &catalogue.atoms {
            let atom = Atom::deserialize(definition).map_err(|why| format!("atom {number} of the catalogue: {why}"))?;
            recall.atoms.insert(atom, *number);
        }
        recall.classes.extend(catalogue.classes.iter().map(|(number, signature)| (signature.clone(), *number)));
        for (number, set) in catalogue.sets.iter().filter(|(number, _)| !but.contains(number)) {
            let definition = Definition::deserialize(&set.definition)
                .map_err(|why| format!("rule set {number} of the catalogue: {why}"))?;
            let rules = set.rules.iter().map(|rule| rule.cookie).collect();
            recall.recalled.take(RecalledSet { number: *number, isolation: set.isolation, rules }, definition);
        }
        Ok(recall)
    }
}

fn unknown(catalogue: &Catalogue, pinned: &Pinned, locals: &BTreeMap<u32, Local>) -> Result<(), String> {
    let class = |class: &u32, of: &dyn std::fmt::Display| match catalogue.classes.get(class) {
        _ if *class == 0 => Ok(()),
        Some(signature) if signature.iter().all(|(atom, _)| catalogue.atoms.contains_key(atom)) => Ok(()),
        Some(_) => Err(format!("an atom of class {class} ({of}) is not in the catalogue")),
        None => Err(format!("class {class} ({of}) is not in the catalogue")),
    };
    let set = |set: &u32| match *set == OPEN || *set == CLOSED || catalogue.sets.contains_key(set) {
        true => Ok(()),
        false => Err(format!("rule set {set} is not in the catalogue")),
    };
    pinned.peers.iter().try_for_each(|(address, number)| class(number, address))?;
    pinned.blocks.iter().try_for_each(|(range, number)| class(number, range))?;
    // The row of one that is gone may point to what is gone.
    let rules = pinned.rules.iter().filter(|(slot, _)| locals.contains_key(slot));
    rules.map(|(_, rules)| rules).try_for_each(|rules| set(&rules.egress).and_then(|()| set(&rules.ingress)))?;
    pinned.verdicts.iter().try_for_each(|(key, row)| {
        set(&key.asked.set)?;
        class(&key.asked.class, &format_args!("of rule set {}", key.asked.set))?;
        let known = |cookie: &u32| *cookie == CLOSED_COOKIE || catalogue.cookies.contains_key(cookie);
        match row.cookies().find(|cookie| !known(cookie)) {
            None => Ok(()),
            Some(cookie) => Err(format!("cookie {cookie} of rule set {} is not in the catalogue", key.asked.set)),
        }
    })
}

/// The highest numbers that the catalogue or a row has.
pub(super) fn last(catalogue: &Catalogue, pinned: &Pinned) -> Last {
    let highest = |given: u32, named: Option<&u32>, seen: &mut dyn Iterator<Item = u32>| {
        seen.chain(named.copied()).fold(given, u32::max)
    };
    let Last { atom, class, set, cookie } = catalogue.last;
    let rows = || pinned.verdicts.iter();
    let classes = pinned.peers.values().chain(pinned.blocks.values()).copied();
    let sets = pinned.rules.values().flat_map(|rules| [rules.egress, rules.ingress]);
    let atoms = catalogue.classes.values().flatten().map(|(atom, _)| *atom);
    Last {
        atom: highest(atom, catalogue.atoms.keys().next_back(), &mut { atoms }),
        class: highest(
            class,
            catalogue.classes.keys().next_back(),
            &mut classes.chain(rows().map(|(key, _)| key.asked.class)),
        ),
        set: highest(
            set.max(CLOSED),
            catalogue.sets.keys().next_back(),
            &mut sets.chain(rows().map(|(key, _)| key.asked.set)),
        ),
        cookie: highest(
            cookie.max(CLOSED_COOKIE),
            catalogue.cookies.keys().next_back(),
            &mut rows().flat_map(|(_, row)| row.cookies()),
        ),
    }
}
