//! What was told, against what the apiserver says now.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::Hasher as _,
    mem,
    path::Path,
    time::Duration,
};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use crate::{
    model::{Event, Kind},
    source::{
        object::{Key, Object},
        saved::Saved,
    },
};

/// How many kinds there are.
pub(super) const KINDS: usize = Kind::ALL.len();

/// After the disk refused; each time that it does again it is twice as long, to at most a minute.
const AGAIN: Duration = Duration::from_secs(2);
const AGAIN_AT_MOST: Duration = Duration::from_secs(60);

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

/// What a line on disk is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Line {
    /// Every kind was listed to its end once: without it, a policy may be missing and the copy is not to be lived by.
    Complete,
    Object(Key),
}

/// One object that was told.
struct Known {
    /// Of what it said: the same is not told twice.
    print: u64,
    /// The last list that had it.
    round: u32,
}

#[derive(Default)]
struct Listed {
    known: BTreeMap<Key, Known>,
    round: u32,
    /// Listed to its end by this process.
    complete: bool,
}

/// All that was told.
pub(super) struct Told {
    kinds: [Listed; KINDS],
    saved: Saved<Line>,
    /// Not on disk yet.
    unsaved: BTreeMap<Line, Option<Box<RawValue>>>,
    has_copy: bool,
    /// Why the disk has not all of it.
    unkept: Option<String>,
    /// When the disk, which refused, is tried again, and how long that was put off.
    again: Option<(Instant, Duration)>,
    /// Objects that cannot be read, and why.
    unreadable: BTreeMap<Key, String>,
}

impl Told {
    /// Opens the copy on disk; what it says.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Event>)> {
        let (saved, lines) = Saved::open::<Box<RawValue>>(path)?;
        let mut told = Self {
            kinds: Default::default(),
            saved,
            unsaved: BTreeMap::new(),
            has_copy: false,
            unkept: None,
            again: None,
            unreadable: BTreeMap::new(),
        };
        let mut events = Vec::new();
        let mut unreadable = Vec::new();
        for (line, text) in lines {
            let Line::Object(key) = line else {
                told.has_copy = true;
                continue;
            };
            match serde_json::from_str::<Object>(text.get()) {
                Ok(object) => {
                    let known = Known { print: print(&text), round: 0 };
                    told.kinds[kind(&key) as usize].known.insert(key, known);
                    events.push(object.told());
                }
                Err(error) => unreadable.push((key, error.to_string())),
            }
        }
        if told.saved.is_damaged() || !unreadable.is_empty() {
            told.drop_damage(unreadable);
        }
        if told.has_copy {
            events.extend(Kind::ALL.map(Event::Remembered));
        }
        Ok((told, events))
    }

    /// Not all of the copy can be read, and what is missing may be a policy: it is not lived by, and the next start does not read it again.
    fn drop_damage(&mut self, unreadable: Vec<(Key, String)>) {
        let (objects, first) = (unreadable.len(), unreadable.first());
        tracing::error!(
            objects,
            ?first,
            "the copy of what the apiserver said last is damaged: it has to answer before policy begins"
        );
        self.has_copy = false;
        self.unsaved.insert(Line::Complete, None);
        self.unsaved.extend(unreadable.into_iter().map(|(key, _)| (Line::Object(key), None)));
        self.save();
    }

    /// Whether what was on disk is the whole of what an apiserver said some time.
    pub(super) fn has_copy(&self) -> bool {
        self.has_copy
    }

    /// Whether each kind was listed to its end.
    pub(super) fn is_complete(&self) -> bool {
        Kind::ALL.into_iter().all(|kind| self.is_listed(kind))
    }

    /// Whether this kind was.
    pub(super) fn is_listed(&self, kind: Kind) -> bool {
        self.kinds[kind as usize].complete
    }

    /// Takes news of a kind in; what changed by it.
    pub(super) fn take(&mut self, kind: Kind, news: News, events: &mut Vec<Event>) {
        let of = &mut self.kinds[kind as usize];
        match news {
            News::Begin => of.round += 1,
            News::Is(key, Ok(object)) => {
                self.unreadable.remove(&key);
                let text = match to_raw_value(&object) {
                    Ok(text) => text,
                    Err(error) => {
                        self.unreadable.insert(key, error.to_string());
                        return;
                    }
                };
                let now = Known { print: print(&text), round: of.round };
                let before = of.known.insert(key.clone(), now);
                if before.is_none_or(|known| known.print != print(&text)) {
                    self.unsaved.insert(Line::Object(key), Some(text));
                    events.push(object.told());
                }
            }
            News::Is(key, Err(why)) => {
                let round = of.round;
                let kept = of.known.get_mut(&key).map(|known| known.round = round).is_some();
                if self.unreadable.insert(key.clone(), why.clone()).as_ref() != Some(&why) {
                    tracing::error!(?key, why, kept, "an object cannot be read; what it said last stays");
                }
            }
            News::Gone(key) => {
                self.unreadable.remove(&key);
                if of.known.remove(&key).is_some() {
                    self.unsaved.insert(Line::Object(key.clone()), None);
                    events.push(key.gone());
                }
            }
            News::End => {
                let is_first = !mem::replace(&mut of.complete, true);
                let round = of.round;
                for (key, _) in of.known.extract_if(.., |_, known| known.round != round) {
                    self.unreadable.remove(&key);
                    self.unsaved.insert(Line::Object(key.clone()), None);
                    events.push(key.gone());
                }
                if is_first {
                    events.push(Event::Told(kind));
                }
                if !self.has_copy && self.is_complete() {
                    self.has_copy = true;
                    self.unsaved.insert(Line::Complete, Some(RawValue::TRUE.to_owned()));
                }
            }
        }
    }

    /// When [`Self::save`] is to be called again, whether there is news or not.
    pub(super) fn due(&self) -> Option<Instant> {
        self.again.map(|(at, _)| at)
    }

    /// Brings the copy on disk up to date. A disk that refused is tried again ever more rarely: all of it is written each time.
    pub(super) fn save(&mut self) {
        if self.unsaved.is_empty() || self.due().is_some_and(|at| Instant::now() < at) {
            return;
        }
        let lines = self.unsaved.iter().map(|(line, text)| (line, text.as_ref()));
        match self.saved.keep(lines) {
            Ok(()) => {
                self.unsaved.clear();
                self.unkept = None;
                self.again = None;
            }
            Err(error) => {
                let pause = self.again.map_or(AGAIN, |(_, pause)| AGAIN_AT_MOST.min(2 * pause));
                self.again = Some((Instant::now() + pause, pause));
                let why = format!("a restart without apiserver would not know the last state: {error:#}");
                if self.unkept.as_ref() != Some(&why) {
                    tracing::error!(why, "state folder");
                }
                self.unkept = Some(why);
            }
        }
    }

    /// What is wrong, in words.
    pub(super) fn problems(&self) -> impl Iterator<Item = String> {
        let unreadable = self.unreadable.iter().map(|(key, why)| format!("{key:?}: {why}"));
        unreadable.chain(self.unkept.clone())
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

fn print(text: &RawValue) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.get().as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::model::{NodeObject, PodObject, PolicyObject};

    struct World {
        dir: TempDir,
        told: Told,
    }

    impl World {
        fn open(dir: TempDir) -> (Self, Vec<Event>) {
            let (told, events) = Told::open(&dir.path().join("kube")).unwrap();
            (Self { dir, told }, events)
        }

        fn take(&mut self, kind: Kind, news: impl IntoIterator<Item = News>) -> Vec<Event> {
            let mut events = Vec::new();
            for news in news {
                self.told.take(kind, news, &mut events);
            }
            self.told.save();
            events.retain(|event| !matches!(event, Event::Told(_)));
            events
        }

        fn restart(self) -> (Self, Vec<Event>) {
            drop(self.told);
            Self::open(self.dir)
        }
    }

    fn node(name: &str, uid: &str) -> News {
        let object = NodeObject { uid: uid.into(), ..NodeObject::default() };
        News::Is(Key::Node(name.into()), Ok(Object::Node(name.into(), object)))
    }

    fn gone(name: &str) -> Event {
        Event::NodeGone(name.into())
    }

    fn names(events: &[Event]) -> Vec<&str> {
        events.iter().map(|e| if let Event::Node(name, _) = e { name.as_str() } else { "?" }).collect()
    }

    #[test]
    fn what_is_told_twice_is_told_once() {
        let (mut world, _) = World::open(TempDir::new().unwrap());
        assert_eq!(world.take(Kind::Node, [News::Begin, node("a", "1"), node("a", "1"), News::End]).len(), 1);
        assert_eq!(world.take(Kind::Node, [node("a", "1")]), []);
        assert_eq!(names(&world.take(Kind::Node, [node("a", "2")])), ["a"]);
    }

    #[test]
    fn a_list_tells_what_went_while_nobody_watched() {
        let (mut world, _) = World::open(TempDir::new().unwrap());
        world.take(Kind::Node, [News::Begin, node("a", "1"), node("b", "1"), News::End, node("c", "1")]);
        assert_eq!(world.take(Kind::Node, [News::Begin, node("b", "1")]), [], "an unfinished list takes nothing away");
        let events = world.take(Kind::Node, [News::Begin, node("b", "1"), News::End]);
        assert_eq!(events, [gone("a"), gone("c")]);
        assert_eq!(world.take(Kind::Node, [News::Gone(Key::Node("b".into()))]), [gone("b")]);
        assert_eq!(world.take(Kind::Node, [News::Gone(Key::Node("b".into()))]), []);
    }

    #[test]
    fn what_cannot_be_read_stays_as_it_was_and_is_said() {
        let (mut world, _) = World::open(TempDir::new().unwrap());
        let bad = || News::Is(Key::Node("a".into()), Err("no address".into()));
        world.take(Kind::Node, [News::Begin, node("a", "1"), News::End]);
        assert_eq!(world.take(Kind::Node, [bad(), News::Begin, bad(), News::End]), []);
        assert_eq!(world.told.problems().collect::<Vec<_>>(), ["Node(\"a\"): no address"]);
        assert_eq!(world.take(Kind::Node, [node("a", "1")]), []);
        assert_eq!(world.told.problems().count(), 0);
    }

    #[test]
    fn a_restart_knows_it_all_once_every_kind_was_listed() {
        let (mut world, _) = World::open(TempDir::new().unwrap());
        let pod = Object::Pod("n".into(), "p".into(), PodObject { uid: "1".into(), ..PodObject::default() });
        world.take(Kind::Node, [News::Begin, node("a", "1"), node("b", "1"), News::End]);
        world.take(Kind::Pod, [News::Begin, News::Is(Key::of(&pod), Ok(pod.clone())), News::End]);
        let (mut world, events) = world.restart();
        assert_eq!(events.len(), 3, "nothing says that it is all: {events:?}");
        assert!(!world.told.has_copy(), "no policy was asked for yet");
        for of in Kind::ALL {
            let own = [node("a", "1"), News::Is(Key::of(&pod), Ok(pod.clone()))].into_iter();
            let own = own.filter(|news| matches!(news, News::Is(key, _) if kind(key) == of));
            world.take(of, [News::Begin].into_iter().chain(own).chain([News::End]));
        }
        let (world, events) = world.restart();
        assert!(world.told.has_copy() && !world.told.is_complete());
        assert!(Kind::ALL.iter().all(|kind| events.contains(&Event::Remembered(*kind))));
        assert_eq!(events.len(), 2 + KINDS, "and what went stays gone: {events:?}");
    }

    /// Each kind listed, with a node and a policy.
    fn all() -> Vec<(Kind, Vec<News>)> {
        let policy = Object::Policy("n".into(), "p".into(), PolicyObject::default());
        let of = |kind| match kind {
            Kind::Node => vec![node("a", "1")],
            Kind::Policy => vec![News::Is(Key::of(&policy), Ok(policy.clone()))],
            Kind::Namespace | Kind::Pod => vec![],
        };
        Kind::ALL
            .map(|kind| (kind, [vec![News::Begin], of(kind), vec![News::End]].into_iter().flatten().collect()))
            .into()
    }

    #[test]
    fn a_copy_of_which_something_cannot_be_read_is_not_lived_by_and_is_mended() {
        for damage in [r#"[{"Object":{"Policy":["n","p"]}},{"subject":7}]"#, "nonsense"] {
            let (mut world, _) = World::open(TempDir::new().unwrap());
            for (kind, news) in all() {
                world.take(kind, news);
            }
            let path = world.dir.path().join("kube");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, format!("{text}{damage}\n")).unwrap();
            let (world, events) = world.restart();
            assert!(
                !world.told.has_copy() && !events.iter().any(|event| matches!(event, Event::Remembered(_))),
                "{damage}"
            );
            let mended = std::fs::read_to_string(&path).unwrap();
            let (mut world, _) = world.restart();
            assert!(!world.told.has_copy(), "nor by the next start: {damage}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), mended, "which has nothing to say");
            for (kind, news) in all() {
                world.take(kind, news);
            }
            let (world, events) = world.restart();
            assert!(world.told.has_copy() && events.len() == 2 + KINDS, "{damage}: {events:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_disk_is_tried_ever_more_rarely_until_it_has_all() {
        let (mut world, _) = World::open(TempDir::new().unwrap());
        world.told.saved.refuse(true);
        world.take(Kind::Node, [News::Begin, node("a", "1"), News::End]);
        assert_eq!(world.told.problems().count(), 1);
        let start = Instant::now();
        let mut waits = Vec::new();
        for n in 0..6 {
            let due = world.told.due().unwrap();
            waits.push((due - Instant::now()).as_secs());
            world.take(Kind::Node, [node("a", &n.to_string())]);
            assert_eq!(world.told.due(), Some(due), "news do not bring it forward");
            tokio::time::sleep_until(due).await;
            world.told.save();
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 60], "after {:?}", start.elapsed());
        world.told.saved.refuse(false);
        world.take(Kind::Node, [node("b", "1")]);
        assert_eq!(std::fs::metadata(world.dir.path().join("kube")).unwrap().len(), 0);
        tokio::time::sleep_until(world.told.due().unwrap()).await;
        world.told.save();
        assert_eq!((world.told.due(), world.told.problems().count()), (None, 0));
        assert_eq!(names(&world.restart().1), ["a", "b"]);
    }
}
