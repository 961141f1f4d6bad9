//! Whose an address is.
//!
//! Invariant: with several owners for a moment the newest pod has it (by creation time, then by name), and an endpoint of this node before
//! any other: it is here now, whatever the source still says or does not say yet.

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
    locals: BTreeMap<IpAddr, PodKey>,
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

    /// The endpoints of this node; `changed` are those whose addresses may have another owner.
    pub(super) fn set_locals<'a>(&mut self, locals: &BTreeMap<u32, Local>, changed: impl Iterator<Item = &'a Local>) {
        for address in changed.flat_map(|local| &local.addresses) {
            let owner = locals.values().rev().find(|local| local.addresses.contains(address));
            match owner.and_then(|local| local.pod.clone()) {
                Some(pod) => self.locals.insert(*address, pod),
                None => self.locals.remove(address),
            };
        }
    }

    /// The pod that has an address.
    pub(super) fn owner(&self, address: &IpAddr) -> Option<&PodKey> {
        self.locals.get(address).or_else(|| self.claims.get(address)?.last().map(|(_, key)| key))
    }

    /// The endpoint of this node that has an address.
    pub(super) fn slot(&self, locals: &BTreeMap<u32, Local>, address: &IpAddr) -> Option<u32> {
        locals.iter().find(|(_, local)| local.addresses.contains(address)).map(|(slot, _)| *slot)
    }

    /// The addresses that a pod has or claims.
    pub(super) fn addresses(&self, key: &PodKey) -> Vec<IpAddr> {
        let local = self.locals.iter().filter(|(_, pod)| *pod == key).map(|(address, _)| *address);
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
