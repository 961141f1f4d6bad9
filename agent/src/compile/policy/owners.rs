//! Whose an address is.
//!
//! Invariant: with several owners for a moment the newest pod has it (by creation time, then by name), and an endpoint of this node before
//! any other: it is here now, whatever the source still says or does not say yet. Of two endpoints the one with the higher slot.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    mem,
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;

use super::Local;
use crate::model::{Cluster, Name, packed::pack};

/// Creation time and pod: the greater one counts.
type Claim = (Option<i64>, Name);

#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Of each address the claim that counts. There are as many as pods in the cluster: keys and addresses are the model's own.
    claims: BTreeMap<IpAddr, Claim>,
    /// The smaller claims, where there are several.
    outdone: BTreeMap<IpAddr, BTreeSet<Claim>>,
    pods: BTreeMap<Name, (Option<i64>, Arc<[IpAddr]>)>,
    /// The endpoints of this node that have an address, by slot.
    locals: BTreeMap<IpAddr, BTreeMap<u32, Option<Name>>>,
    /// The addresses of this node's endpoints by pod.
    here: BTreeMap<Name, BTreeSet<(IpAddr, u32)>>,
}

impl Owners {
    /// A pod is like this now, or gone; its addresses of before and now are dirty.
    pub(super) fn set_pod(&mut self, key: &Name, cluster: &Cluster, dirty: &mut BTreeSet<IpAddr>) {
        dirty.extend(self.addresses(key));
        let told = cluster.pods.get_key_value(key).filter(|(_, pod)| pod.has_network() && !pod.ips.is_empty());
        if let (Some((created, addresses)), Some((_, pod))) = (self.pods.get_mut(key), told)
            && (*created, &*addresses) == (pod.created, &pod.ips)
        {
            // Labels or ports changed, no claim. The addresses are the model's own again.
            *addresses = Arc::clone(&pod.ips);
            return;
        }
        if let Some((key, (created, addresses))) = self.pods.remove_entry(key) {
            let claim = (created, key);
            addresses.iter().for_each(|address| self.release(address, &claim));
        }
        if let Some((key, pod)) = told {
            for address in pod.ips.iter() {
                self.claim(*address, (pod.created, key.clone()));
            }
            self.pods.insert(key.clone(), (pod.created, Arc::clone(&pod.ips)));
            dirty.extend(pod.ips.iter());
        }
    }

    fn claim(&mut self, address: IpAddr, claim: Claim) {
        let counts = match self.claims.entry(address) {
            Entry::Vacant(new) => {
                new.insert(claim);
                return;
            }
            Entry::Occupied(counts) => counts.into_mut(),
        };
        let smaller = match claim.cmp(counts) {
            Ordering::Equal => return,
            Ordering::Less => claim,
            Ordering::Greater => mem::replace(counts, claim),
        };
        self.outdone.entry(address).or_default().insert(smaller);
    }

    fn release(&mut self, address: &IpAddr, claim: &Claim) {
        let counts = self.claims.get(address) == Some(claim);
        let next = self.outdone.get_mut(address).and_then(|outdone| {
            if counts {
                return outdone.pop_last();
            }
            outdone.remove(claim);
            None
        });
        if self.outdone.get(address).is_some_and(BTreeSet::is_empty) {
            self.outdone.remove(address);
        }
        match next {
            Some(next) => {
                self.claims.insert(*address, next);
            }
            None if counts => {
                self.claims.remove(address);
            }
            None => {}
        }
    }

    /// An endpoint of this node is another now.
    pub(super) fn set_local(&mut self, slot: u32, before: Option<&Local>, now: Option<&Local>) {
        if let Some(local) = before {
            for address in &local.addresses {
                if let Some(slots) = self.locals.get_mut(address) {
                    slots.remove(&slot);
                    if slots.is_empty() {
                        self.locals.remove(address);
                    }
                }
                if let Some((pod, here)) = local.pod.as_ref().and_then(|pod| Some((pod, self.here.get_mut(pod)?))) {
                    here.remove(&(*address, slot));
                    if here.is_empty() {
                        self.here.remove(pod);
                    }
                }
            }
        }
        if let Some(local) = now {
            for address in &local.addresses {
                self.locals.entry(*address).or_default().insert(slot, local.pod.clone());
                if let Some(pod) = &local.pod {
                    self.here.entry(pod.clone()).or_default().insert((*address, slot));
                }
            }
        }
    }

    /// Leaves no room between what it has.
    pub(super) fn pack(&mut self) {
        pack(&mut self.claims);
        pack(&mut self.pods);
    }

    /// The pod that has an address. Of an endpoint for which the runtime named none it is nobody, whoever claims it.
    pub(super) fn owner(&self, address: &IpAddr) -> Option<&Name> {
        match self.locals.get(address).and_then(BTreeMap::last_key_value) {
            Some((_, pod)) => pod.as_ref(),
            None => self.claims.get(address).map(|(_, key)| key),
        }
    }

    /// The endpoint of this node that has an address.
    pub(super) fn slot(&self, address: &IpAddr) -> Option<u32> {
        self.locals.get(address).and_then(|slots| slots.last_key_value()).map(|(slot, _)| *slot)
    }

    /// The endpoints of this node that are a pod.
    pub(super) fn slots(&self, key: &Name) -> impl Iterator<Item = u32> {
        self.here.get(key).into_iter().flatten().map(|(_, slot)| *slot)
    }

    /// The addresses that a pod has or claims.
    pub(super) fn addresses(&self, key: &Name) -> impl Iterator<Item = IpAddr> {
        let local = self.here.get(key).into_iter().flatten().map(|(address, _)| *address);
        let told = self.pods.get(key).into_iter().flat_map(|(_, addresses)| addresses.iter()).copied();
        local.chain(told)
    }

    /// The owned addresses of a range.
    pub(super) fn inside(&self, range: IpNet) -> impl Iterator<Item = IpAddr> {
        let bounds = range.network()..=range.broadcast();
        let told = self.claims.range(bounds.clone()).map(|(address, _)| *address);
        told.chain(self.locals.range(bounds).map(|(address, _)| *address))
    }
}
