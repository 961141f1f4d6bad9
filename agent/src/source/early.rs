//! Which pods are newer than the policies and namespaces that are told.
//!
//! Invariant: while policies or namespaces are only remembered, a pod that comes, or comes to have another uid or other labels, is said to be
//! early before it is told. The copy on disk says it too, from before the pod's line there until both kinds are told or the pod is gone. So
//! what a start finds in the copy is never judged by policies that are older.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
};

use super::copy::DiskCopy;
use crate::model::{Event, Kind, Name, PodObject, packed::pack};

/// What a source told of pods, as far as that matters here.
#[derive(Default)]
pub(super) struct Early {
    /// Of each pod that was told, a print of its uid and labels, and whether it completed.
    pods: BTreeMap<Name, u64>,
    /// The kinds that pods are judged by and that are only remembered.
    old: BTreeSet<Kind>,
}

impl Early {
    /// What the copy says of an object.
    pub(super) fn know(&mut self, event: &Event) {
        if let Event::Pod(name, pod) = event {
            self.pods.insert(Name::clone(name), print(pod));
        }
    }

    /// All that the copy says is known: what of it is only remembered.
    pub(super) fn begin<K: Ord>(&mut self, copy: &mut DiskCopy<K>, events: &mut Vec<Event>) {
        Kind::ALL.into_iter().for_each(|kind| self.tell(Event::Remembered(kind), copy, events));
        events.extend(copy.early().iter().map(|name| Event::Early(Name::clone(name))));
    }

    /// Tells an event, which the copy is to say by the same [`DiskCopy::save`].
    pub(super) fn tell<K: Ord>(&mut self, event: Event, copy: &mut DiskCopy<K>, events: &mut Vec<Event>) {
        match &event {
            Event::Pod(name, pod) => {
                let now = print(pod);
                let before = self.pods.insert(Name::clone(name), now);
                if before.is_some_and(|before| before != now) {
                    copy.outdate();
                }
                if !self.old.is_empty() && before != Some(now) && copy.set_early(name, true) {
                    events.push(Event::Early(Name::clone(name)));
                }
            }
            Event::PodGone(name) => {
                if self.pods.remove(name).is_some() {
                    // Its addresses may be another's from now on.
                    copy.outdate();
                }
                copy.set_early(name, false);
            }
            Event::Remembered(kind) if Kind::JUDGES.contains(kind) => drop(self.old.insert(*kind)),
            Event::Told(kind) => {
                self.old.remove(kind);
                if self.old.is_empty() {
                    copy.none_is_early();
                }
            }
            Event::Policy(..)
            | Event::PolicyGone(_)
            | Event::Waits(..)
            | Event::Namespace(..)
            | Event::NamespaceGone(_) => copy.outdate_durably(),
            _ => {}
        }
        events.push(event);
    }

    /// Leaves no room between what it has: worth it once much was told.
    pub(super) fn pack(&mut self) {
        pack(&mut self.pods);
    }
}

fn print(pod: &PodObject) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&pod.uid, &pod.labels, pod.completed).hash(&mut hasher);
    hasher.finish()
}
