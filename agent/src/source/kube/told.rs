//! What was told, against what the apiserver says now.
//!
//! Invariant: a kind is told to be all there once it was listed to its end and of each of its objects is known what it said last, and no
//! more while it is listed anew. No policy that was told goes, or isolates others than before, while pods or policies are still to be listed, or
//! the watch of pods is broken: it may be that a pod has other labels by now, and what it was before would be held to no policy. Of what is held
//! back model and copy know that it waits, so that whom it isolates by now it isolates over a start too; and policies are only remembered then, so
//! that no pod is judged that is newer. What isolates more than before is not held back.

mod whom;

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::Hasher as _,
    mem,
    path::Path,
};

use anyhow::Result;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use whom::Whom;

use crate::{
    model::{Event, Kind, Name, packed::pack},
    source::{
        commons::Commons,
        copy::DiskCopy,
        early::Early,
        object::{Key, Object},
        waiting::Waiting,
    },
};

/// How many kinds there are.
pub(super) const KINDS: usize = Kind::ALL.len();

/// What a watch says of its kind.
#[derive(Debug)]
pub(super) enum News {
    /// All are listed anew from here on.
    Begin,
    /// One is there, or why it cannot be read.
    Is(Key, Result<Object, String>),
    /// One is gone.
    Gone(Key),
    /// The list is complete: what was not in it is gone.
    End,
}

/// One object that was told.
struct Known {
    /// Of what it said: the same is not told twice.
    print: u64,
    /// Of a policy, whom it isolates.
    whom: Whom,
    /// The last list that had it.
    round: u32,
}

#[derive(Default)]
struct Listed {
    known: BTreeMap<Key, Known>,
    round: u32,
    /// Listed to its end by this process.
    complete: bool,
    /// It is listed anew, or has to be.
    listing: bool,
    /// It was said that all of it was told.
    told: bool,
}

/// What an object says by now, and as the copy has it; `None`: it is gone.
type Now = Option<(Object, Box<RawValue>)>;

/// A policy that is held back.
#[derive(Default)]
struct Late {
    waiting: Waiting,
    /// What it says now, as the copy has it; `None`: it is gone.
    text: Option<Box<RawValue>>,
}

/// All that was told.
pub(super) struct Told {
    kinds: [Listed; KINDS],
    commons: Commons,
    copy: DiskCopy<Key>,
    early: Early,
    /// News of pods may be missing although they are listed.
    pods_missed: bool,
    /// Policies that isolate others or went, until nothing of pods and policies is missing.
    late: BTreeMap<Name, Late>,
    /// Objects that cannot be read, why, and the last list that had them.
    unreadable: BTreeMap<Key, (String, u32)>,
}

impl Told {
    /// Opens the copy on disk; what it says.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Event>)> {
        let mut kinds: [Listed; KINDS] = Default::default();
        let mut commons = Commons::default();
        let mut early = Early::default();
        let mut events = Vec::new();
        let mut copy = DiskCopy::open(path, |key: Key, mut object: Object, text| {
            commons.share(&mut object);
            let known = Known { print: print(text), whom: Whom::of(&object), round: 0 };
            let event = object.told(&key);
            early.know(&event);
            events.push(event);
            kinds[kind(&key) as usize].known.insert(key, known);
        })?;
        if copy.is_whole() {
            early.begin(&mut copy, &mut events);
        }
        let mut late = BTreeMap::new();
        let policies = &mut kinds[Kind::Policy as usize].known;
        for (name, waiting) in copy.take_waiting() {
            let key = Key::Policy(Name::clone(&name));
            policies.remove(&key);
            let mut text = None;
            if let Some(object) = now(&name, &waiting) {
                let said = text.insert(to_raw_value(&object)?);
                policies.insert(key, Known { print: print(said), whom: Whom::of(&object), round: 0 });
            }
            events.push(Event::Waits(Name::clone(&name), waiting.said().to_vec()));
            late.insert(name, Late { waiting, text });
        }
        Ok((Self { kinds, commons, copy, early, pods_missed: false, late, unreadable: BTreeMap::new() }, events))
    }

    /// Whether what was on disk is the whole of what an apiserver said some time.
    pub(super) fn has_copy(&self) -> bool {
        self.copy.is_whole()
    }

    /// Whether each kind was listed to its end.
    pub(super) fn is_complete(&self) -> bool {
        Kind::ALL.into_iter().all(|kind| self.is_listed(kind))
    }

    /// Whether this kind was.
    pub(super) fn is_listed(&self, kind: Kind) -> bool {
        self.kinds[kind as usize].complete
    }

    /// Whether it was said that all of a kind was told, and nothing of it is missing since.
    pub(super) fn is_told(&self, kind: Kind) -> bool {
        self.kinds[kind as usize].told
    }

    /// A kind is to be listed anew: something of it may have been missed.
    pub(super) fn list_anew(&mut self, kind: Kind, events: &mut Vec<Event>) {
        self.kinds[kind as usize].listing = true;
        if Kind::JUDGES.contains(&kind) {
            self.take_back(kind, events);
        }
    }

    /// A kind is only remembered from now on.
    fn take_back(&mut self, kind: Kind, events: &mut Vec<Event>) {
        if mem::take(&mut self.kinds[kind as usize].told) {
            self.early.tell(Event::Remembered(kind), &mut self.copy, events);
        }
    }

    /// Takes news of a kind in; what changed by it.
    pub(super) fn take(&mut self, kind: Kind, news: News, events: &mut Vec<Event>) {
        let of = &mut self.kinds[kind as usize];
        match news {
            News::Begin => {
                of.round += 1;
                self.list_anew(kind, events);
            }
            News::Is(key, Ok(mut object)) => {
                self.unreadable.remove(&key);
                let text = match to_raw_value(&object) {
                    Ok(text) => text,
                    Err(error) => {
                        self.unreadable.insert(key, (error.to_string(), of.round));
                        return;
                    }
                };
                let print = print(&text);
                let now = Known { print, whom: Whom::of(&object), round: of.round };
                let before = of.known.insert(key.clone(), now);
                if before.as_ref().is_none_or(|known| known.print != print) {
                    self.commons.share(&mut object);
                    self.change(key, Some((object, text)), before, events);
                }
            }
            News::Is(key, Err(why)) => {
                let round = of.round;
                let kept = of.known.get_mut(&key).map(|known| known.round = round).is_some();
                let before = self.unreadable.insert(key.clone(), (why.clone(), round));
                if before.is_none_or(|(before, _)| before != why) {
                    tracing::error!(?key, why, kept, "an object cannot be read; what it said last stays");
                }
                // It may isolate anybody.
                if !kept && Kind::JUDGES.contains(&kind) {
                    self.take_back(kind, events);
                }
            }
            News::Gone(key) => {
                self.unreadable.remove(&key);
                if let Some(before) = of.known.remove(&key) {
                    self.change(key, None, Some(before), events);
                }
            }
            News::End => {
                (of.complete, of.listing) = (true, false);
                let round = of.round;
                self.unreadable.retain(|key, (_, last)| self::kind(key) != kind || *last == round);
                let gone: Vec<_> = of.known.extract_if(.., |_, known| known.round != round).collect();
                for (key, before) in gone {
                    self.change(key, None, Some(before), events);
                }
            }
        }
        self.tell_late(events);
        self.tell_all(kind, events);
    }

    /// Whether news of pods may be missing: their watch is broken, or went on this moment.
    pub(super) fn miss_pods(&mut self, is: bool, events: &mut Vec<Event>) {
        self.pods_missed = is;
        self.tell_late(events);
    }

    /// Tells what was held back, if it need not be any more.
    fn tell_late(&mut self, events: &mut Vec<Event>) {
        if self.late.is_empty() || self.holds_back() {
            return;
        }
        for (name, Late { waiting, text }) in mem::take(&mut self.late) {
            self.copy.put_waiting(&name, None, false);
            let now = now(&name, &waiting).zip(text);
            self.tell(Key::Policy(name), now, false, events);
        }
        self.tell_all(Kind::Policy, events);
    }

    /// Whether policies may be told before pods that changed with them.
    fn holds_back(&self) -> bool {
        let [.., policies, pods] = &self.kinds;
        [policies, pods].into_iter().any(|of| of.listing || !of.complete) || self.pods_missed
    }

    /// An object is like this now, or gone.
    fn change(&mut self, key: Key, now: Now, before: Option<Known>, events: &mut Vec<Event>) {
        let Key::Policy(name) = &key else { return self.tell(key, now, before.is_none(), events) };
        let was_late = self.late.contains_key(name);
        let whom = now.as_ref().map(|(object, _)| Whom::of(object));
        // A new one ends nobody's isolation, and what waits was before one that may.
        let ends =
            was_late || before.as_ref().is_some_and(|before| whom.is_none_or(|whom| !whom.are_all_of(before.whom)));
        if ends && self.holds_back() {
            self.take_back(Kind::Policy, events);
            self.wait(Name::clone(name), now, events);
            return;
        }
        if self.late.remove(name).is_some() {
            self.copy.put_waiting(name, None, false);
        }
        self.tell(key, now, before.is_none() && !was_late, events);
    }

    /// Holds a policy back: what it isolates by now it isolates all the same.
    fn wait(&mut self, name: Name, now: Now, events: &mut Vec<Event>) {
        let is_new = !self.late.contains_key(&name);
        let late = self.late.entry(Name::clone(&name)).or_default();
        late.text = None;
        match now {
            Some((Object::Policy(_, _, policy), text)) => {
                late.waiting.say(policy);
                late.text = Some(text);
            }
            _ => late.waiting.go(),
        }
        let said = late.waiting.said().to_vec();
        match to_raw_value(&late.waiting) {
            Ok(text) => self.copy.put_waiting(&name, Some(text), is_new),
            Err(error) => {
                let round = self.kinds[Kind::Policy as usize].round;
                self.unreadable.insert(Key::Policy(Name::clone(&name)), (error.to_string(), round));
            }
        }
        self.early.tell(Event::Waits(name, said), &mut self.copy, events);
    }

    fn tell(&mut self, key: Key, now: Now, is_new: bool, events: &mut Vec<Event>) {
        let (event, text) = match now {
            Some((object, text)) => (object.told(&key), Some(text)),
            None => (key.clone().gone(), None),
        };
        self.early.tell(event, &mut self.copy, events);
        self.copy.put(key, text, is_new);
    }

    /// A kind is all told from now on, if it is.
    fn tell_all(&mut self, kind: Kind, events: &mut Vec<Event>) {
        let of = &mut self.kinds[kind as usize];
        if of.told || !of.complete || of.listing || (kind == Kind::Policy && !self.late.is_empty()) {
            return;
        }
        // What a policy protects that cannot be read nobody knows. What a copy that is not whole has of it may be older than the last.
        let is_known = |key| self.copy.is_whole() && of.known.contains_key(key);
        of.told = self.unreadable.keys().filter(|key| self::kind(key) == kind).all(is_known);
        if of.told {
            self.early.tell(Event::Told(kind), &mut self.copy, events);
            if self.kinds.iter().all(|of| of.told) {
                self.copy.make_whole();
            }
        }
    }

    /// Leaves no room between what it knows: worth it once much was told.
    pub(super) fn pack(&mut self) {
        self.kinds.iter_mut().for_each(|of| pack(&mut of.known));
        self.early.pack();
    }

    /// When [`Self::save`] is to be called again, whether there is news or not.
    pub(super) fn due(&self) -> Option<Instant> {
        self.copy.due()
    }

    /// Brings the copy on disk up to date.
    pub(super) fn save(&mut self) {
        self.copy.save();
    }

    /// What is wrong, in words.
    pub(super) fn problems(&self) -> impl Iterator<Item = String> {
        let unreadable = self.unreadable.iter().map(|(key, (why, _))| format!("{key:?}: {why}"));
        let late = (!self.late.is_empty()).then(|| {
            format!(
                "networkpolicies: {} isolate others or went: whom they isolated stays isolated until all pods and policies are known",
                self.late.len()
            )
        });
        unreadable.chain(late).chain(self.copy.problem().map(str::to_owned))
    }
}

fn kind(key: &Key) -> Kind {
    match key {
        Key::Node(_) => Kind::Node,
        Key::Namespace(_) => Kind::Namespace,
        Key::Policy(..) => Kind::Policy,
        Key::Pod(..) => Kind::Pod,
    }
}

/// What a policy that is held back says now.
fn now(name: &Name, waiting: &Waiting) -> Option<Object> {
    let policy = waiting.now()?.clone();
    Some(Object::Policy(name.namespace().to_owned(), name.name().to_owned(), policy))
}

fn print(text: &RawValue) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.get().as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests;
