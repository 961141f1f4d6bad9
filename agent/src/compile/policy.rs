//! NetworkPolicies → rule sets, peer classes and the verdict of each pair of them.
//!
//! * An *atom* is one peer of a rule (pods by selectors, or a range of addresses), alone or with a named port of the pods it speaks of.
//! * A *class* is the set of addresses that every atom in use treats alike; class 0 is who no atom speaks of.
//! * A *rule set* is what one direction of an endpoint is held to; endpoints with the same policies and named ports share it; 0: not isolated.
//!
//! Invariant: pure and incremental: an update touches what its atoms, classes and rule sets touch, and leads to the same meaning as a start
//! from nothing (numbers aside). Rule sets and classes never change: what changes gets a new number, and numbers are never given twice.

mod alike;
mod atoms;
mod blocks;
mod budget;
mod change;
mod classes;
mod cookies;
mod definition;
mod events;
mod local;
mod names;
mod numbers;
mod owners;
mod ports;
mod recall;
mod resume;
mod sets;
mod totals;
mod verdicts;
mod words;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use osmia_maps::layout::{VerdictKey, VerdictRow};

use self::{
    alike::Alike,
    atoms::Atoms,
    blocks::Blocks,
    classes::{Classes, Signature},
    definition::Digests,
    owners::Owners,
    sets::Sets,
};
pub use self::{
    budget::OverBudget,
    change::{CLOSED, CLOSED_COOKIE, Change, Rules},
    cookies::Cookie,
    events::{About, Touched, about},
    local::Local,
    resume::{Pinned, Resumed},
};
use crate::model::{Cluster, Name, NamespaceObject, PodObject, policy::Direction};

/// The compiled policies of this node's endpoints.
///
/// That of default is what the maps hold after the first [`Self::resume`] over nothing: the head of [`CLOSED`], and class 0 for all of IPv4.
#[derive(Debug, Default)]
pub struct Policies {
    locals: BTreeMap<u32, Local>,
    rules: BTreeMap<u32, Rules>,
    owners: Owners,
    atoms: Atoms,
    blocks: Blocks,
    sets: Sets,
    classes: Classes,
    budget: budget::Budget,
    digests: Digests,
}

/// What an update has still to look at.
#[derive(Default)]
struct Dirty<'a> {
    endpoints: BTreeSet<u32>,
    addresses: BTreeSet<IpAddr>,
    prefixes: BTreeSet<IpNet>,
    /// Addresses as well, each with a pod that may be whose it is, so that it need not be looked for: they may be those of all pods.
    of_pods: BTreeMap<IpAddr, Told<'a>>,
}

/// A pod that the cluster has; `None`: it is to be looked for.
type Told<'a> = Option<(&'a Name, &'a PodObject)>;

impl Policies {
    /// Follows `cluster`, which already is as it shall be, in what was touched.
    pub fn update(&mut self, cluster: &Cluster, touched: impl IntoIterator<Item = Touched>) -> Change {
        let mut dirty = Dirty::default();
        for touched in touched {
            self.touch(cluster, touched, &mut dirty);
        }
        let mut change = Change::default();
        let (mut new_sets, mut old_sets) = self.choose_sets(cluster, &mut dirty, &mut change);
        let (new_classes, old_classes) = self.classify(cluster, dirty, &mut change);
        self.admit(&mut new_sets, &mut old_sets, (&new_classes, &old_classes), &mut change);
        self.finish(&new_sets, &new_classes, (&old_sets, &old_classes), &mut change);
        change
    }

    /// What atoms that no rule set uses any more leave behind: classes that need not be told apart. Nothing means anything else by it, but
    /// that what was over the budget may fit now. Apart from [`Self::update`], since until all pointers of a change are written the old rule
    /// sets are still asked about their atoms.
    pub fn collect(&mut self, cluster: &Cluster) -> Change {
        let mut dirty = Dirty::default();
        for atom in self.atoms.bury() {
            self.spoken_of(cluster, &atom, &mut dirty);
            self.blocks.remove(&atom, &mut dirty.prefixes);
        }
        let mut change = Change::default();
        let (new_classes, old_classes) = self.classify(cluster, dirty, &mut change);
        let (mut new_sets, mut old_sets) = (BTreeSet::new(), BTreeSet::new());
        self.admit(&mut new_sets, &mut old_sets, (&new_classes, &old_classes), &mut change);
        self.finish(&new_sets, &new_classes, (&old_sets, &old_classes), &mut change);
        change
    }

    fn finish(
        &mut self,
        new_sets: &BTreeSet<u32>,
        new_classes: &BTreeSet<u32>,
        (old_sets, old_classes): (&BTreeSet<u32>, &BTreeSet<u32>),
        change: &mut Change,
    ) {
        for slot in &change.closing {
            change.endpoints.entry(*slot).or_insert_with(|| self.rules.get(slot).copied().unwrap_or_default());
        }
        self.rows(new_sets, new_classes, &mut change.verdicts);
        self.retire(old_sets, old_classes, change);
    }

    /// The rows of some sets with every class, and of some classes with every set.
    fn rows(&self, sets: &BTreeSet<u32>, classes: &BTreeSet<u32>, rows: &mut BTreeMap<VerdictKey, VerdictRow>) {
        let mut each = |key, row| {
            rows.insert(key, row);
        };
        for set in sets {
            verdicts::base(&self.sets, *set, &mut each);
            for class in self.classes.with_any(self.sets.atoms(*set)) {
                verdicts::of(&self.sets, &self.classes, *set, class, &mut each);
            }
        }
        for class in classes {
            for set in self.with_class(*class).difference(sets) {
                verdicts::of(&self.sets, &self.classes, *set, *class, &mut each);
            }
        }
    }

    /// Sets with an atom that speaks of a class.
    fn with_class(&self, class: u32) -> BTreeSet<u32> {
        self.sets.with_any(self.classes.signature(class).iter().map(|(atom, _)| atom))
    }

    /// Forgets sets and classes that nothing points to any more.
    fn retire(&mut self, sets: &BTreeSet<u32>, classes: &BTreeSet<u32>, change: &mut Change) {
        let mut gone = BTreeMap::new();
        self.rows(sets, classes, &mut gone);
        for class in classes {
            self.classes.forget(*class);
        }
        for set in sets {
            self.sets.forget(*set);
        }
        // A pair of a new one and one that goes is not worth a row.
        gone.retain(|key, _| change.verdicts.remove(key).is_none());
        change.old_verdicts = gone.into_keys().collect();
    }

    /// The names of rule-set cookies.
    pub fn cookies(&self) -> impl Iterator<Item = (u32, &Cookie)> {
        self.sets.cookies.all()
    }

    /// What an endpoint is held to.
    #[must_use]
    pub fn rules(&self, slot: u32) -> Rules {
        self.rules.get(&slot).copied().unwrap_or_default()
    }

    /// Addresses and ranges that have a class: rows of the maps once these are brought to it.
    #[must_use]
    pub fn pointers(&self) -> (usize, usize) {
        (self.classes.addresses().len(), self.classes.prefixes().len())
    }

    /// Leaves no room between what it knows: worth it once much changed.
    pub fn pack(&mut self) {
        self.owners.pack();
        self.classes.pack();
    }

    fn touch(&mut self, cluster: &Cluster, touched: Touched, dirty: &mut Dirty<'_>) {
        match touched {
            Touched::Pod(key) => {
                self.owners.set_pod(&key, cluster, &mut dirty.addresses);
                dirty.endpoints.extend(self.owners.slots(&key));
            }
            Touched::Namespace(name) => {
                for (key, _) in cluster.pods_in(&name) {
                    dirty.addresses.extend(self.owners.addresses(key));
                }
                // An endpoint whose Pod nobody told yet depends on whether its namespace is known.
                dirty.endpoints.extend(self.slots(|pod| pod.is_in(&name)));
            }
            Touched::Policy(key) => dirty.endpoints.extend(self.slots(|pod| pod.is_in(key.namespace()))),
            Touched::Endpoint(slot, local) => {
                let before = match local {
                    Some(local) => self.locals.insert(slot, local),
                    None => self.locals.remove(&slot),
                };
                for local in before.iter().chain(self.locals.get(&slot)) {
                    dirty.addresses.extend(&local.addresses);
                }
                self.owners.set_local(slot, before.as_ref(), self.locals.get(&slot));
                dirty.endpoints.insert(slot);
            }
        }
    }

    fn slots(&self, of: impl Fn(&Name) -> bool) -> impl Iterator<Item = u32> {
        self.locals.iter().filter(move |(_, local)| local.pod.as_ref().is_some_and(&of)).map(|(slot, _)| *slot)
    }

    /// Gives dirty endpoints their rule sets. Sets that came, and sets that nobody has any more.
    fn choose_sets<'a>(
        &mut self,
        cluster: &'a Cluster,
        dirty: &mut Dirty<'a>,
        change: &mut Change,
    ) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let (mut new, mut unused) = (BTreeSet::new(), BTreeSet::new());
        for slot in &dirty.endpoints {
            let local = self.locals.get(slot);
            let before = self.rules(*slot);
            let mut choose = |direction, before: u32| {
                let key = local.and_then(|local| sets::key(cluster, local, direction));
                let number = key.map_or(0, |key| {
                    self.sets.number(key, before, &mut self.atoms, |number| {
                        new.insert(number);
                    })
                });
                if number != before {
                    self.sets.take(number, *slot);
                    if self.sets.release(before, *slot) {
                        unused.insert(before);
                    }
                    unused.remove(&number);
                }
                number
            };
            let rules = Rules {
                egress: choose(Direction::Egress, before.egress),
                ingress: choose(Direction::Ingress, before.ingress),
            };
            if rules != before && local.is_some() {
                change.endpoints.insert(*slot, rules);
                change.epochs.insert(*slot);
                change.closing.insert(*slot);
            }
            match local {
                Some(_) => self.rules.insert(*slot, rules),
                None => self.rules.remove(slot),
            };
        }
        for set in &unused {
            self.sets.release_atoms(*set, &mut self.atoms);
        }
        self.admit_ranges(&mut new, &mut unused, change);
        for atom in self.atoms.born() {
            self.spoken_of(cluster, &atom, dirty);
            self.blocks.add(&atom, &mut dirty.prefixes);
        }
        // Sets that came and went within one update never had a row.
        let brief: BTreeSet<u32> = new.intersection(&unused).copied().collect();
        for set in brief {
            new.remove(&set);
            unused.remove(&set);
            self.sets.forget(set);
        }
        (new, unused)
    }

    /// The known addresses that an atom speaks of.
    fn spoken_of<'a>(&self, cluster: &'a Cluster, atom: &atoms::Numbered, dirty: &mut Dirty<'a>) {
        match atom.atom.range() {
            Some(range) => dirty.addresses.extend(self.owners.inside(range)),
            None => {
                let mut found = Vec::new();
                // Pods of a namespace come together.
                let mut last: Option<(&str, Option<&NamespaceObject>)> = None;
                for (key, pod) in atom.atom.candidates(cluster) {
                    let namespace = match last.filter(|(name, _)| key.is_in(name)) {
                        Some((_, namespace)) => namespace,
                        None => cluster.namespaces.get(key.namespace()),
                    };
                    last = Some((key.namespace(), namespace));
                    if atom.atom.value(namespace, key, pod).next().is_some() {
                        found.extend(self.owners.addresses(key).map(|address| (address, Some((key, pod)))));
                    }
                }
                // The map is filled in its order: addresses of a node lie together there, those of a namespace do not.
                found.sort_unstable_by_key(|(address, _)| *address);
                dirty.of_pods.extend(found);
            }
        }
    }

    /// Gives dirty addresses and ranges their classes. Classes that came, and classes that nothing has any more.
    fn classify(
        &mut self,
        cluster: &Cluster,
        mut dirty: Dirty<'_>,
        change: &mut Change,
    ) -> (BTreeSet<u32>, BTreeSet<u32>) {
        for prefix in &dirty.prefixes {
            // A range of which no atom speaks has its row too: an exception inside a range of which one does.
            let class = self.blocks.contains(prefix).then(|| self.classes.number(self.blocks.signature(*prefix)));
            if class != self.classes.of_prefix(prefix) {
                self.classes.set_prefix(*prefix, class);
                change.blocks.insert(*prefix, class);
            }
        }
        let mut told = BTreeSet::new();
        let mut alike = Alike::default();
        let mut addresses = std::mem::take(&mut dirty.of_pods);
        for address in &dirty.addresses {
            addresses.entry(*address).or_default();
        }
        while let Some((address, pod)) = addresses.pop_first() {
            let around = alike.around(&self.blocks, address);
            let signature = self.signature(cluster, address, pod, &around, &mut alike);
            if signature == around {
                self.mean(address, &around, signature, &mut told, &mut alike, change);
                if let Some(next) = self.classes.leave_room(&address, self.budget.peers) {
                    addresses.entry(next).or_default();
                }
                continue;
            }
            if let Some(loser) = self.classes.make_room(address, self.budget.peers) {
                let around = self.blocks.signature(IpNet::from(loser));
                self.mean(loser, &around, Arc::clone(&around), &mut told, &mut alike, change);
            }
            let crowded_out = self.classes.crowded_out().contains(&address);
            let signature = if crowded_out { Arc::clone(&around) } else { signature };
            self.mean(address, &around, signature, &mut told, &mut alike, change);
        }
        change.epochs.extend(self.asking(&told));
        self.classes.settle()
    }

    /// This is said of an address now, and that of the range around it.
    fn mean(
        &mut self,
        address: IpAddr,
        around: &Signature,
        signature: Signature,
        told: &mut BTreeSet<u32>,
        alike: &mut Alike<'_>,
        change: &mut Change,
    ) {
        let meant = self.classes.meaning(&address);
        // For the atoms one address is enough; each endpoint here is looked at by itself.
        if meant != signature && (alike.is_first(&meant, &signature) || self.owners.slot(&address).is_some()) {
            self.tell(&address, &meant, &signature, told, change);
        }
        let is_own = signature != *around;
        self.classes.set_ranged(address, (!is_own).then_some(around));
        let class = is_own.then(|| alike.class(&signature, || self.classes.number(Arc::clone(&signature))));
        if class != self.classes.of_address(&address) {
            self.classes.set_address(address, class);
            change.peers.insert(address, class);
        }
    }

    /// Something else is said of an address: those atoms are `told`. Flows of who asks for them have to be judged again.
    fn tell(
        &self,
        address: &IpAddr,
        before: &[(u32, u16)],
        now: &[(u32, u16)],
        told: &mut BTreeSet<u32>,
        change: &mut Change,
    ) {
        if before == now {
            return;
        }
        let different = classes::difference(before, now);
        if let Some(slot) = self.owners.slot(address).filter(|_| self.asking(&different).next().is_some()) {
            change.closing.insert(slot);
        }
        told.extend(different);
    }

    /// The endpoints whose rules ask for any of these atoms.
    fn asking(&self, atoms: &BTreeSet<u32>) -> impl Iterator<Item = u32> {
        self.sets.holders(self.sets.with_any(atoms.iter()))
    }

    /// What every atom in use says of an address.
    fn signature<'a>(
        &self,
        cluster: &'a Cluster,
        address: IpAddr,
        told: Told<'a>,
        around: &Signature,
        alike: &mut Alike<'a>,
    ) -> Signature {
        let Some(key) = self.owners.owner(&address) else { return Arc::clone(around) };
        if let Some(local) = self.owners.slot(&address).and_then(|slot| self.locals.get(&slot)) {
            let pod = local.object(cluster);
            return pod.map_or_else(|| Arc::clone(around), |pod| self.said_of(cluster, key, pod, around));
        }
        let find = || cluster.pods.get_key_value(key).map(|(key, pod)| (key, &**pod));
        let told = told.filter(|(name, _)| *name == key).or_else(find);
        let Some((key, pod)) = told else { return Arc::clone(around) };
        alike.of_pod(key, pod, around, || self.said_of(cluster, key, pod, around))
    }

    /// What every atom in use says of an address of a pod, of which ranges say what is `around` it.
    fn said_of(&self, cluster: &Cluster, key: &Name, pod: &PodObject, around: &Signature) -> Signature {
        let mut all = self.atoms.of_pod(cluster, key, pod);
        all.extend_from_slice(around);
        all.sort_unstable();
        all.dedup();
        all.into()
    }
}
