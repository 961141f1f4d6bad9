//! Whose an address is.
//!
//! Invariant: with several owners for a moment the newest pod has it (by creation time, then by name), and an endpoint of this node before
//! any other: it is here now, whatever the source still says or does not say yet. Of two endpoints the one with the higher slot.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;

use super::{Local, PodKey};
use crate::model::PodObject;

type Claim = (Option<i64>, PodKey);

#[derive(Debug, Default)]
pub(super) struct Owners {
    claims: BTreeMap<IpAddr, BTreeSet<Claim>>,
    pods: BTreeMap<PodKey, (Option<i64>, Vec<IpAddr>)>,
    /// The endpoints of this node that have an address, by slot.
    locals: BTreeMap<IpAddr, BTreeMap<u32, Option<PodKey>>>,
    /// The addresses of this node's endpoints by pod.
    here: BTreeMap<PodKey, BTreeSet<(IpAddr, u32)>>,
}

impl Owners {
    /// A pod is like this now, or gone; its addresses of before and now are dirty.
    pub(super) fn set_pod(&mut self, key: &PodKey, pod: Option<&PodObject>, dirty: &mut BTreeSet<IpAddr>) {
        dirty.extend(self.addresses(key));
        if let Some((created, addresses)) = self.pods.remove(key) {
            let claim = (created, key.clone());
            for address in addresses {
                if let Some(claims) = self.claims.get_mut(&address) {
                    claims.remove(&claim);
                    if claims.is_empty() {
                        self.claims.remove(&address);
                    }
                }
            }
        }
        if let Some(pod) = pod.filter(|pod| pod.has_network() && !pod.ips.is_empty()) {
            for address in &pod.ips {
                self.claims.entry(*address).or_default().insert((pod.created, key.clone()));
            }
            self.pods.insert(key.clone(), (pod.created, pod.ips.clone()));
            dirty.extend(&pod.ips);
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

    /// The pod that has an address. Of an endpoint for which the runtime named none it is nobody, whoever claims it.
    pub(super) fn owner(&self, address: &IpAddr) -> Option<&PodKey> {
        match self.locals.get(address).and_then(BTreeMap::last_key_value) {
            Some((_, pod)) => pod.as_ref(),
            None => self.claims.get(address)?.last().map(|(_, key)| key),
        }
    }

    /// The endpoint of this node that has an address.
    pub(super) fn slot(&self, address: &IpAddr) -> Option<u32> {
        self.locals.get(address).and_then(|slots| slots.last_key_value()).map(|(slot, _)| *slot)
    }

    /// The endpoints of this node that are a pod.
    pub(super) fn slots(&self, key: &PodKey) -> impl Iterator<Item = u32> {
        self.here.get(key).into_iter().flatten().map(|(_, slot)| *slot)
    }

    /// The addresses that a pod has or claims.
    pub(super) fn addresses(&self, key: &PodKey) -> Vec<IpAddr> {
        let local = self.here.get(key).into_iter().flatten().map(|(address, _)| *address);
        let told = self.pods.get(key).into_iter().flat_map(|(_, addresses)| addresses).copied();
        local.chain(told).collect()
    }

    /// The owned addresses of a range.
    pub(super) fn inside(&self, range: IpNet) -> impl Iterator<Item = IpAddr> {
        let bounds = range.network()..=range.broadcast();
        let told = self.claims.range(bounds.clone()).map(|(address, _)| *address);
        told.chain(self.locals.range(bounds).map(|(address, _)| *address))
    }
}
