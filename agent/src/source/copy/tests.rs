use std::{collections::BTreeSet, fs};

use serde_json::value::to_raw_value;
use tempfile::TempDir;

use super::*;

struct World {
    dir: TempDir,
    copy: DiskCopy<String>,
}

impl World {
    fn new() -> Self {
        Self::over(TempDir::new().unwrap()).0
    }

    /// And what was read of it.
    fn over(dir: TempDir) -> (Self, BTreeMap<String, u64>) {
        let mut values = BTreeMap::new();
        let each = |key, value, _: &RawValue| {
            values.insert(key, value);
        };
        let copy = DiskCopy::open(&dir.path().join("copy"), each).unwrap();
        (Self { dir, copy }, values)
    }

    fn restart(self) -> (Self, BTreeMap<String, u64>) {
        drop(self.copy);
        Self::over(self.dir)
    }

    fn set(&mut self, key: &str, value: u64, is_new: bool) {
        self.copy.put(key.into(), Some(to_raw_value(&value).unwrap()), is_new);
    }

    fn on_disk(&self) -> String {
        fs::read_to_string(self.dir.path().join("copy")).unwrap()
    }

    fn overwrite(&self, text: &str) {
        fs::write(self.dir.path().join("copy"), text).unwrap();
    }

    /// Until the disk is tried again.
    async fn again(&mut self) {
        tokio::time::sleep_until(self.copy.due().unwrap()).await;
        self.copy.save();
    }
}

#[test]
fn it_says_that_it_is_whole_after_all_else_and_that_it_is_not_before() {
    let mut world = World::new();
    world.set("a", 1, true);
    world.copy.make_whole();
    world.set("b", 2, true);
    world.copy.save();
    assert!(world.on_disk().ends_with("[\"Complete\",true]\n"), "{}", world.on_disk());
    let (world, values) = world.restart();
    assert!(world.copy.is_whole() && values.len() == 2);
    // Of the last line nothing can be read.
    world.overwrite(&world.on_disk().replace("[\"Complete\"", "[{\"Object\":\"b\"},{}]\n[\"Complete\""));
    let (world, values) = world.restart();
    assert!(!world.copy.is_whole());
    assert_eq!(values, [("a".to_owned(), 1)].into());
    let mended = world.on_disk();
    let (world, values) = world.restart();
    assert!(!world.copy.is_whole());
    assert_eq!((values.len(), world.on_disk()), (1, mended), "nothing is left to mend");
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_together_is_there_together_wherever_its_writing_ends() {
    let mut world = World::new();
    for name in ["policy-of-old", "pod"] {
        world.set(name, 1, true);
    }
    world.copy.make_whole();
    world.copy.save();
    let before = world.on_disk();
    world.copy.put("policy-of-old".into(), None, false);
    world.set("pod", 2, false);
    world.set("policy-of-new", 2, true);
    world.copy.save();
    let (mut world, after) = world.restart();
    assert!(world.copy.is_whole() && after.len() == 2);
    let all = world.on_disk();
    let mut seen = BTreeSet::new();
    for end in before.len()..=all.len() {
        world.overwrite(&all[..end]);
        let (killed, values) = world.restart();
        if killed.copy.is_whole() {
            seen.insert(values);
        }
        world = killed;
    }
    let old = ["policy-of-old", "pod"].map(|name| (name.to_owned(), 1)).into();
    assert_eq!(seen, [old, after].into());
}

#[tokio::test(start_paused = true)]
async fn a_damaged_copy_is_not_believed_wherever_its_mending_ends() {
    let mut world = World::new();
    world.set("a", 1, true);
    world.copy.make_whole();
    world.copy.save();
    let damaged = format!("{}nonsense\n", world.on_disk());
    world.overwrite(&damaged);
    // Killed before anything is written, as one whose disk refuses all.
    drop(Saved::<Line<String>>::open(&world.dir.path().join("copy")).unwrap());
    assert_eq!(world.on_disk(), damaged);
    // What says that it is not whole is written; the file without the damage is not.
    std::os::unix::fs::symlink("/dev/full", world.dir.path().join("copy.new")).unwrap();
    let (world, _) = world.restart();
    assert!(!world.copy.is_whole());
    assert_eq!(world.on_disk(), format!("{damaged}[\"Complete\",null]\n"));
    let (mut world, _) = world.restart();
    assert!(!world.copy.is_whole() && world.copy.problem().is_none());
    world.copy.make_whole();
    world.copy.save();
    assert!(world.restart().0.copy.is_whole(), "mended with what came next");
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_tried_ever_more_rarely_until_it_has_all() {
    let mut world = World::new();
    world.copy.refuse(true);
    world.set("a", 0, true);
    world.copy.save();
    assert!(world.copy.problem().is_some());
    let mut waits = Vec::new();
    for n in 1..7 {
        let due = world.copy.due().unwrap();
        waits.push((due - Instant::now()).as_secs());
        world.set("a", n, false);
        world.copy.save();
        assert_eq!(world.copy.due(), Some(due), "news do not bring it forward");
        world.again().await;
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 60]);
    world.copy.refuse(false);
    world.set("b", 1, true);
    world.copy.save();
    assert_eq!(world.on_disk(), "");
    world.again().await;
    assert_eq!((world.copy.due(), world.copy.problem()), (None, None));
    assert_eq!(world.restart().1, [("a".to_owned(), 6), ("b".to_owned(), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn what_comes_and_goes_while_the_disk_refuses_costs_nothing() {
    let mut world = World::new();
    world.set("a", 1, true);
    world.set("b", 1, true);
    world.copy.save();
    world.copy.refuse(true);
    for n in 0..100_000 {
        let key = format!("pod-{n}");
        world.set(&key, n, true);
        world.copy.save();
        world.copy.put(key, None, false);
    }
    assert!(world.copy.unsaved.is_empty() && world.copy.bytes == 0, "{}", world.copy.unsaved.len());
    // What is on disk has to go from there, and to come back as it is then.
    world.copy.put("a".into(), None, false);
    world.copy.put("b".into(), None, false);
    world.set("b", 2, true);
    world.copy.save();
    world.copy.refuse(false);
    world.again().await;
    assert_eq!(world.restart().1, [("b".to_owned(), 2)].into());
}

#[tokio::test(start_paused = true)]
async fn too_much_that_the_disk_refuses_is_given_up_and_nobody_lives_by_the_rest() {
    let mut world = World::new();
    world.set("old", 1, true);
    world.copy.make_whole();
    world.copy.save();
    world.copy.refuse(true);
    for n in 0..200_000 {
        world.set(&format!("pod-{n}"), n, true);
        world.copy.save();
        assert!(world.copy.bytes <= UNSAVED_AT_MOST + 1000, "after {n}");
    }
    assert!(
        world.copy.unsaved.is_empty() && world.copy.problem().unwrap().contains("MiB"),
        "{:?}",
        world.copy.problem()
    );
    world.copy.refuse(false);
    world.set("new", 1, true);
    world.copy.make_whole();
    world.copy.save();
    assert_eq!((world.on_disk().as_str(), world.copy.due()), ("", None));
    assert!(world.copy.problem().is_some(), "a restart does not know the last state");
    let (mut world, values) = world.restart();
    assert!(!world.copy.is_whole() && values.is_empty());
    // It begins anew.
    world.set("new", 1, true);
    world.copy.make_whole();
    world.copy.save();
    assert!(world.restart().0.copy.is_whole());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_lacks_what_policy_depends_on_does_not_say_that_it_is_whole() {
    let mut world = World::new();
    world.set("a", 1, true);
    world.copy.make_whole();
    world.copy.save();
    world.copy.refuse(true);
    world.set("b", 1, true);
    world.copy.save();
    assert!(world.on_disk().ends_with("[\"Complete\",true]\n"), "nothing depends on it");
    // Little room, while all is not tried again.
    world.copy.refuse(false);
    world.set("a", 2, false);
    world.copy.outdate();
    world.copy.save();
    assert!(world.copy.due().is_some() && world.on_disk().ends_with("[\"Complete\",null]\n"), "{}", world.on_disk());
    world.again().await;
    assert_eq!(world.copy.problem(), None);
    let (mut world, values) = world.restart();
    assert!(world.copy.is_whole(), "it has all");
    assert_eq!(values, [("a".to_owned(), 2), ("b".to_owned(), 1)].into());
    // And what came later, as ever.
    world.set("c", 1, true);
    world.copy.save();
    assert!(world.restart().0.copy.is_whole());
}

#[test]
fn what_policy_depends_on_is_synced() {
    let mut world = World::new();
    world.set("a", 1, true);
    world.copy.make_whole();
    world.copy.save();
    assert!(!world.copy.saved.is_synced(), "a list of thousands of pods keeps no disk busy");
    world.set("a", 2, true);
    world.copy.outdate();
    world.copy.save();
    assert!(!world.copy.saved.is_synced(), "nor do pods that go and are relabelled all the time");
    world.set("a", 3, true);
    world.copy.outdate_durably();
    world.copy.save();
    assert!(world.copy.saved.is_synced());
}

#[tokio::test(start_paused = true)]
async fn where_even_that_is_refused_nothing_of_it_stays() {
    let mut world = World::new();
    world.set("a", 1, true);
    world.copy.make_whole();
    world.copy.save();
    world.copy.refuse(true);
    world.set("a", 2, false);
    world.copy.outdate();
    world.copy.save();
    assert!(!world.dir.path().join("copy").exists(), "{}", world.on_disk());
    assert!(world.copy.due().is_none() && world.copy.problem().unwrap().contains("would not know"));
    let (world, values) = world.restart();
    assert!(!world.copy.is_whole() && values.is_empty());
    assert_eq!(world.copy.problem(), None, "all is kept anew");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_can_neither_be_written_nor_go_is_said_to_be_older() {
    let mut world = World::new();
    world.set("a", 1, true);
    world.copy.make_whole();
    world.copy.save();
    world.copy.refuse(true);
    // A name that leads to something else cannot be taken away.
    let path = world.dir.path().join("copy");
    fs::rename(&path, world.dir.path().join("kept")).unwrap();
    fs::create_dir(&path).unwrap();
    world.set("a", 2, false);
    world.copy.outdate();
    world.copy.save();
    assert!(world.copy.problem().unwrap().contains("older"), "{:?}", world.copy.problem());
    fs::remove_dir(&path).unwrap();
    fs::rename(world.dir.path().join("kept"), &path).unwrap();
    world.again().await;
    assert!(!path.exists() && world.copy.problem().unwrap().contains("would not know"), "tried until it goes");
}
