//! What is found out once for the many addresses of which the same is to be said.
//!
//! Invariant: it lives no longer than the cluster stays as it is, whose parts it knows by their places in memory; of what is not the cluster's
//! it holds a copy, so that nothing else comes to lie there.

use std::{collections::HashMap, net::IpAddr, ops::RangeInclusive, sync::Arc};

use super::{blocks::Blocks, classes::Signature};
use crate::model::{Name, PodObject};

/// Of the answers to one question.
#[derive(Default)]
pub(super) struct Alike<'a> {
    /// What ranges say, and from where to where.
    around: Option<(RangeInclusive<IpAddr>, Signature)>,
    /// By namespace, labels and ports, which are all that atoms ask a pod for, and what ranges say.
    pods: HashMap<(&'a str, usize, usize, usize), [Signature; 2]>,
    classes: HashMap<usize, (Signature, u32)>,
    changes: HashMap<(usize, usize), [Signature; 2]>,
}

impl<'a> Alike<'a> {
    /// What ranges say of an address.
    pub(super) fn around(&mut self, blocks: &Blocks, address: IpAddr) -> Signature {
        if let Some((stretch, around)) = &self.around
            && stretch.contains(&address)
        {
            return Arc::clone(around);
        }
        let (around, last) = blocks.stretch(address);
        self.around = Some((address..=last, Arc::clone(&around)));
        around
    }

    /// What is said of an address that is a pod's, and of which ranges say what is `around` it.
    pub(super) fn of_pod(
        &mut self,
        key: &'a Name,
        pod: &'a PodObject,
        around: &Signature,
        find: impl FnOnce() -> Signature,
    ) -> Signature {
        let ports = Arc::as_ptr(&pod.ports).cast::<()>().addr();
        let of = (key.namespace(), Arc::as_ptr(&pod.labels).addr(), ports, place(around));
        let [_, found] = self.pods.entry(of).or_insert_with(|| [Arc::clone(around), find()]);
        Arc::clone(found)
    }

    /// The class with a signature.
    pub(super) fn class(&mut self, signature: &Signature, find: impl FnOnce() -> u32) -> u32 {
        self.classes.entry(place(signature)).or_insert_with(|| (Arc::clone(signature), find())).1
    }

    /// Whether this is the first address of which that was said before and this is now.
    pub(super) fn is_first(&mut self, before: &Signature, now: &Signature) -> bool {
        let both = || [Arc::clone(before), Arc::clone(now)];
        let mut is_first = false;
        self.changes.entry((place(before), place(now))).or_insert_with(|| {
            is_first = true;
            both()
        });
        is_first
    }
}

fn place(signature: &Signature) -> usize {
    Arc::as_ptr(signature).cast::<()>().addr()
}
