//! What was told, against what the apiserver says now.
//!
//! Invariant: a kind is told to be all there once it was listed to its end and of each of its objects is known what it
//! said last.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::Hasher as _,
    path::Path,
};

use anyhow::Result;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use crate::{
    model::{Event, Kind, packed::pack},
    source::{
        commons::Commons,
        copy::DiskCopy,
        object::{Key, Object},
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
    /// The last list that had it.
    round: u32,
}

#[derive(Default)]
struct Listed {
    known: BTreeMap<Key, Known>,
    round: u32,
    /// Listed to its end by this process.
    complete: bool,
    /// It was said that all of it was told.
    told: bool,
}

/// All that was told.
pub(super) struct Told {
    kinds: [Listed; KINDS],
    commons: Commons,
    copy: DiskCopy<Key>,
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
        let mut events = Vec::new();
        let copy = DiskCopy::open(path, |key: Key, mut object: Object, text| {
            commons.share(&mut object);
            events.push(object.told(&key));
            let known = Known { print: print(text), round: 0 };
            kinds[kind(&key) as usize].known.insert(key, known);
        })?;
        if copy.is_whole() {
            events.extend(Kind::ALL.map(Event::Remembered));
        }
        Ok((Self { kinds, commons, copy, unreadable: BTreeMap::new() }, events))
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

    /// Takes news of a kind in; what changed by it.
    pub(super) fn take(&mut self, kind: Kind, news: News, events: &mut Vec<Event>) {
        let of = &mut self.kinds[kind as usize];
        match news {
            News::Begin => of.round += 1,
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
                let before = of.known.insert(key.clone(), Known { print, round: of.round });
                if before.as_ref().is_none_or(|known| known.print != print) {
                    self.commons.share(&mut object);
                    events.push(object.told(&key));
                    self.copy.put(key, Some(text), before.is_none());
                }
            }
            News::Is(key, Err(why)) => {
                let round = of.round;
                let kept = of.known.get_mut(&key).map(|known| known.round = round).is_some();
                let before = self.unreadable.insert(key.clone(), (why.clone(), round));
                if before.is_none_or(|(before, _)| before != why) {
                    tracing::error!(?key, why, kept, "an object cannot be read; what it said last stays");
                }
            }
            News::Gone(key) => {
                self.unreadable.remove(&key);
                if of.known.remove(&key).is_some() {
                    self.copy.put(key.clone(), None, false);
                    events.push(key.gone());
                }
            }
            News::End => {
                of.complete = true;
                let round = of.round;
                self.unreadable.retain(|key, (_, last)| self::kind(key) != kind || *last == round);
                for (key, _) in of.known.extract_if(.., |_, known| known.round != round) {
                    self.copy.put(key.clone(), None, false);
                    events.push(key.gone());
                }
            }
        }
        self.tell_all(kind, events);
    }

    /// A kind is all told from now on, if it is.
    fn tell_all(&mut self, kind: Kind, events: &mut Vec<Event>) {
        let of = &mut self.kinds[kind as usize];
        if of.told || !of.complete {
            return;
        }
        // What a policy protects that cannot be read nobody knows. What a copy that is not whole has of it may be older than the last.
        let is_known = |key| self.copy.is_whole() && of.known.contains_key(key);
        of.told = self.unreadable.keys().filter(|key| self::kind(key) == kind).all(is_known);
        if of.told {
            events.push(Event::Told(kind));
            if self.kinds.iter().all(|of| of.told) {
                self.copy.make_whole();
                self.kinds.iter_mut().for_each(|of| pack(&mut of.known));
            }
        }
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
        unreadable.chain(self.copy.problem().map(str::to_owned))
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

    #[test]
    fn a_kind_of_which_an_object_cannot_be_read_is_not_told_to_be_all_there() {
        let key = || Key::Policy(("n".to_owned(), "p".to_owned()).into());
        let bad = || News::Is(key(), Err("no selector".into()));
        let good = || News::Is(key(), Ok(Object::Policy("n".into(), "p".into(), PolicyObject::default())));
        let whole = [Event::Told(Kind::Policy)];
        for way_out in [vec![good()], vec![News::Gone(key())], vec![News::Begin, News::End]] {
            let (mut world, _) = World::open(TempDir::new().unwrap());
            let mut events = Vec::new();
            for (kind, news) in all() {
                let news = if kind == Kind::Policy { vec![News::Begin, bad(), News::End] } else { news };
                news.into_iter().for_each(|news| world.told.take(kind, news, &mut events));
            }
            assert!(world.told.is_complete() && !events.contains(&whole[0]) && !world.told.has_copy(), "{events:?}");
            events.clear();
            for news in way_out {
                world.told.take(Kind::Policy, news, &mut events);
            }
            assert!(events.ends_with(&whole) && world.told.problems().count() == 0, "{events:?}");
            // What was good once holds, over a restart too; what never was does not.
            let other = News::Is(Key::Policy(("n".to_owned(), "q".to_owned()).into()), Err("no selector".into()));
            for (bad, is_told) in [(bad(), true), (other, false)] {
                world.take(Kind::Policy, [News::Begin, good(), News::End]);
                let (mut again, _) = world.restart();
                assert!(again.told.has_copy());
                events.clear();
                for news in [News::Begin, bad, News::End] {
                    again.told.take(Kind::Policy, news, &mut events);
                }
                assert_eq!(events.contains(&whole[0]), is_told, "{events:?}");
                world = again;
            }
        }
    }
}
