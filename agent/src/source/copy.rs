//! The copy on disk of what a source told, by which a start may live: one rule for every source.
//!
//! Invariant: it says of itself that it is whole only once all there is was told, and after everything that was told; where a part of it is
//! lost or cannot be read it stops to say so before that part goes from the file, and while several changes that belong together are being
//! written. So a start that is told it is whole has every policy of some moment. Where it is not whole, what it holds may be older than what
//! was told last, so nothing of it stands in for what cannot be read now when a source says that all was told. What the disk refuses is kept
//! and tried again, up to a bound. Beyond it nothing is kept before the next start: only a start has everything told anew. Where policy depends
//! on what is refused, the file, which is older than what is in force then, stops to say that it is whole before anything comes into force.
//! What policy depends on is synced behind its coming into force: the power takes what was told in the last second, and a start lives by the rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    mem,
    path::Path,
    time::Duration,
};

use anyhow::Result;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{saved::Saved, waiting::Waiting};
use crate::model::Name;

/// After the disk refused; each time that it does again it is twice as long, to at most a minute.
const AGAIN: Duration = Duration::from_secs(2);
const AGAIN_AT_MOST: Duration = Duration::from_secs(60);
/// Bytes of what is not on disk yet that a disk which refuses may cost, and what an entry takes beside its text.
const UNSAVED_AT_MOST: usize = 8 << 20;
const ENTRY: usize = 200;

/// What a line on disk is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
enum Line<K> {
    /// The copy is whole. Without it a policy may be missing and the copy is not to be lived by.
    Complete,
    /// The pod of this name is newer than the policies.
    Early(Name),
    /// The policy of this name says something else, which waits.
    Waits(Name),
    Object(K),
}

/// What is not on disk yet of a key.
struct Unsaved {
    /// `None`: it is gone.
    text: Option<Box<RawValue>>,
    /// An older line of it is.
    is_on_disk: bool,
}

/// What becomes of what is told.
#[derive(PartialEq, Eq)]
enum Keeping {
    All,
    /// Nothing more: too much was not on disk. The file is to be emptied.
    ToEmpty,
    /// Nothing more, and nothing is there.
    Nothing,
}

/// The copy. `K` is what a text is known by.
pub(super) struct DiskCopy<K> {
    saved: Saved<Line<K>>,
    unsaved: BTreeMap<Line<K>, Unsaved>,
    /// The pods that are newer than the policies.
    early: BTreeSet<Name>,
    /// The policies that wait by what was on disk, until they are asked for.
    waiting: BTreeMap<Name, Waiting>,
    /// About [`UNSAVED_AT_MOST`].
    bytes: usize,
    is_whole: bool,
    /// What the file says of that.
    says_whole: bool,
    /// By what the file has alone other pods would be isolated, or others allowed.
    outdated: bool,
    /// The power is not to take that.
    durable: bool,
    keeping: Keeping,
    /// Why the disk has not all of it.
    unkept: Option<String>,
    /// When the disk, which refused, is tried again, and how long that was put off.
    again: Option<(Instant, Duration)>,
}

impl<K: Serialize + DeserializeOwned + Ord + Clone + Debug + 'static> DiskCopy<K> {
    /// Opens the copy and gives `each` of what it holds. One that is damaged is not whole from then on.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn open<V: DeserializeOwned>(path: &Path, mut each: impl FnMut(K, V, &RawValue)) -> Result<Self> {
        let (saved, lines) = Saved::open(path)?;
        let mut copy = Self {
            saved,
            unsaved: BTreeMap::new(),
            early: BTreeSet::new(),
            waiting: BTreeMap::new(),
            bytes: 0,
            is_whole: false,
            says_whole: false,
            outdated: false,
            durable: false,
            keeping: Keeping::All,
            unkept: None,
            again: None,
        };
        let (mut unreadable, mut first) = (0_usize, None);
        for (line, text) in lines {
            let read = match &line {
                Line::Complete => {
                    (copy.is_whole, copy.says_whole) = (true, true);
                    continue;
                }
                Line::Early(name) => {
                    copy.early.insert(Name::clone(name));
                    continue;
                }
                Line::Waits(name) => serde_json::from_str(text.get()).map(|waiting| {
                    copy.waiting.insert(Name::clone(name), waiting);
                }),
                Line::Object(key) => serde_json::from_str(text.get()).map(|value| each(key.clone(), value, &text)),
            };
            if let Err(error) = read {
                unreadable += 1;
                first.get_or_insert_with(|| (line.clone(), error.to_string()));
                copy.put_line(line, None, false);
            }
        }
        if copy.saved.is_damaged() || unreadable > 0 {
            tracing::error!(
                unreadable,
                ?first,
                "the copy of what the source said last is damaged: all has to be told anew before policy begins"
            );
            copy.is_whole = false;
            copy.save();
            // Only now: a kill between the two leaves a damaged one.
            if copy.unkept.is_none()
                && let Err(error) = copy.saved.mend()
            {
                tracing::warn!(error = format!("{error:#}"), "what cannot be read stays in the file for now");
            }
        }
        Ok(copy)
    }

    /// Whether it is all there was at some time: what was on disk, or what was told since [`Self::make_whole`].
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// All there is was told.
    pub(super) fn make_whole(&mut self) {
        self.is_whole = true;
    }

    /// When [`Self::save`] is to be called again, whether there is news or not.
    pub(super) fn due(&self) -> Option<Instant> {
        self.again.map(|(at, _)| at)
    }

    /// Brings the disk up to date. One that refused is tried again ever more rarely: all of it is written each time.
    pub(super) fn save(&mut self) {
        let waits = self.due().is_some_and(|at| Instant::now() < at);
        if self.again.is_some() && self.keeping == Keeping::All && self.bytes > UNSAVED_AT_MOST {
            self.give_up();
        } else if waits {
            self.disown();
            return;
        }
        self.attempt();
    }

    fn attempt(&mut self) {
        let written = match self.keeping {
            Keeping::All => self.write(),
            Keeping::ToEmpty => self.saved.empty(),
            Keeping::Nothing => return,
        };
        match written {
            Ok(()) if self.keeping == Keeping::All => {
                (self.unkept, self.again) = (None, None);
                self.outdated = false;
                if mem::take(&mut self.durable) {
                    self.saved.sync_soon();
                }
            }
            Ok(()) => {
                self.saved.sync_soon();
                (self.keeping, self.again, self.says_whole) = (Keeping::Nothing, None, false);
                // It goes on to be so.
                self.say(given_up());
            }
            Err(error) => {
                let pause = self.again.map_or(AGAIN, |(_, pause)| AGAIN_AT_MOST.min(2 * pause));
                self.again = Some((Instant::now() + pause, pause));
                if self.keeping == Keeping::All {
                    self.say(format!("a restart would not know the last state: {error:#}"));
                    self.disown();
                } else {
                    self.say(format!("a restart would go by a state that is older: {error:#}"));
                }
            }
        }
    }

    /// What policy depends on and the disk refused comes into force now: no start may live by a file without it. To say so takes next to no
    /// room; where even that is refused nothing of the file stays.
    fn disown(&mut self) {
        if !self.outdated || !self.says_whole || self.keeping != Keeping::All {
            return;
        }
        match self.saved.keep([(&Line::Complete, None::<&RawValue>)]) {
            Ok(()) => {
                self.saved.sync_soon();
                self.says_whole = false;
            }
            Err(_) => {
                self.give_up();
                self.attempt();
            }
        }
    }

    /// A write may be cut short anywhere: of several lines the first says that it is not whole, and the last that it is.
    fn write(&mut self) -> Result<()> {
        let whole = RawValue::TRUE.to_owned();
        let ceases = self.says_whole && (!self.is_whole || self.unsaved.len() > 1);
        let becomes = self.is_whole && (ceases || !self.says_whole);
        let first = ceases.then_some((&Line::Complete, None));
        let last = becomes.then_some((&Line::Complete, Some(&whole)));
        let texts = self.unsaved.iter().map(|(line, unsaved)| (line, unsaved.text.as_ref()));
        let lines: Vec<_> = first.into_iter().chain(texts).chain(last).collect();
        if !lines.is_empty() {
            self.saved.keep(lines)?;
        }
        self.unsaved.clear();
        (self.bytes, self.says_whole) = (0, self.is_whole);
        Ok(())
    }

    /// What was on disk is older than what is dropped here, and would be taken for whole.
    fn give_up(&mut self) {
        self.unsaved.clear();
        (self.bytes, self.keeping) = (0, Keeping::ToEmpty);
        self.say(given_up());
    }

    fn say(&mut self, why: String) {
        if self.unkept.as_ref() != Some(&why) {
            tracing::error!(why, "state folder");
        }
        self.unkept = Some(why);
    }

    /// Why a restart would not know the last state.
    pub(super) fn problem(&self) -> Option<&str> {
        self.unkept.as_deref()
    }

    /// As if the disk were full, or were not any more.
    #[cfg(test)]
    pub(super) fn refuse(&mut self, refuse: bool) {
        self.saved.refuse(refuse);
    }
}

impl<K: Ord> DiskCopy<K> {
    /// A key has this text now, or is gone; `is_new`: it had none before.
    pub(super) fn put(&mut self, key: K, text: Option<Box<RawValue>>, is_new: bool) {
        self.put_line(Line::Object(key), text, is_new);
    }

    /// The pods that are newer than the policies. See [`super::early`].
    pub(super) fn early(&self) -> &BTreeSet<Name> {
        &self.early
    }

    /// Whether a pod is one of them; whether that is news.
    pub(super) fn set_early(&mut self, pod: &Name, is: bool) -> bool {
        let is_news = if is { self.early.insert(Name::clone(pod)) } else { self.early.remove(pod) };
        if is_news {
            self.put_line(Line::Early(Name::clone(pod)), is.then(|| RawValue::TRUE.to_owned()), is);
        }
        is_news
    }

    /// No pod is any more.
    pub(super) fn none_is_early(&mut self) {
        while let Some(pod) = self.early.pop_first() {
            self.put_line(Line::Early(pod), None, false);
        }
    }

    /// The policies that waited by what was on disk.
    pub(super) fn take_waiting(&mut self) -> BTreeMap<Name, Waiting> {
        mem::take(&mut self.waiting)
    }

    /// A policy waits and said this, or waits no more; `is_new`: it did not before.
    pub(super) fn put_waiting(&mut self, policy: &Name, said: Option<Box<RawValue>>, is_new: bool) {
        self.put_line(Line::Waits(Name::clone(policy)), said, is_new);
    }

    /// What is told and not saved yet changes whom policy isolates, or what it allows.
    pub(super) fn outdate(&mut self) {
        self.outdated = true;
    }

    /// The same of a policy or a namespace, which change rarely enough for a sync each: a pod of the cluster goes every second.
    pub(super) fn outdate_durably(&mut self) {
        self.outdate();
        self.durable = true;
    }

    fn put_line(&mut self, line: Line<K>, text: Option<Box<RawValue>>, is_new: bool) {
        if self.keeping != Keeping::All {
            return;
        }
        let before = self.unsaved.remove(&line);
        self.bytes -= before.as_ref().map_or(0, Unsaved::cost);
        let unsaved = Unsaved { text, is_on_disk: before.map_or(!is_new, |before| before.is_on_disk) };
        // What came and went while the disk refused leaves nothing.
        if unsaved.text.is_some() || unsaved.is_on_disk {
            self.bytes += unsaved.cost();
            self.unsaved.insert(line, unsaved);
        }
    }
}

fn given_up() -> String {
    let mib = UNSAVED_AT_MOST >> 20;
    format!(
        "a restart would not know the last state: the disk refused until {mib} MiB had changed, or refused all; all is kept anew from the next start on"
    )
}

impl Unsaved {
    fn cost(&self) -> usize {
        ENTRY + self.text.as_ref().map_or(0, |text| text.get().len())
    }
}

#[cfg(test)]
mod tests;
