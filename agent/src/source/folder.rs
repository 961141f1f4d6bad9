//! `--source folder:DIR`: the manifests in `DIR` and the status files in `DIR/status`.
//!
//! Invariant: a bad file keeps its last good objects, over a restart too; the other files apply. An object goes only when every file that
//! held it is gone or holds it no more. What was read at a time is kept at a time. All is told once they were read and of each manifest is known
//! what it said last, when it was good: else it may hold a policy that nobody knows.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde_json::value::to_raw_value;
use tokio::time::{self, Instant};

pub mod files;
pub mod manifest;
mod watch;

use files::{FileId, Files};
use manifest::Refused;
use watch::{Change, Watch};

use super::{arrival::Lookout, copy::DiskCopy, early::Early, object::Object};
use crate::model::{Event, Kind};

/// Longest manifest that is read, bytes.
const MAX_FILE: u64 = 16 << 20;

/// Tells whether a file's content may have changed: device, inode, mtime, ctime, size.
type Stamp = (u64, u64, (i64, i64), (i64, i64), u64);

/// A watched folder.
pub struct Folder {
    dir: PathBuf,
    copy: DiskCopy<FileId>,
    early: Early,
    files: Files,
    stamps: BTreeMap<FileId, Stamp>,
    /// The folder itself is missing.
    missing: bool,
    /// All its files were looked at once.
    is_listed: bool,
    /// It was said that all there is was told.
    told: bool,
}

/// A [`Folder`] and its watch.
pub struct FolderSource {
    folder: Folder,
    watch: Watch,
    lookout: Lookout,
}

impl FolderSource {
    /// Reads the folder once and watches it from then on.
    ///
    /// # Errors
    /// The state folder cannot be used or inotify is refused. A folder that is missing is no error: it is waited for.
    pub fn start(dir: &Path, state: &Path) -> Result<(Self, Vec<Event>)> {
        // The watch first: a change between the two is seen.
        let watch = Watch::new(dir)?;
        let (folder, events) = Folder::open(dir, state)?;
        Ok((Self { folder, watch, lookout: Lookout::new() }, events))
    }

    /// Waits for changes; they and when the first of them came. Cancel-safe.
    pub async fn next(&mut self) -> (Vec<Event>, Instant) {
        let mut look = self.lookout.look();
        let changed = self.watch.changed(&mut look);
        let (change, since) = match self.folder.copy.due() {
            None => changed.await,
            Some(due) => match time::timeout_at(due, changed).await {
                Ok(changed) => changed,
                // The disk is tried again, whether there is news or not.
                Err(_) => {
                    self.folder.copy.save();
                    return (Vec::new(), due);
                }
            },
        };
        let events = match change {
            Change::Everything => self.folder.scan(),
            Change::Files(files) => self.folder.read_all(&files),
        };
        (events, since)
    }

    /// Files that cannot be read, and why.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.folder.problems()
    }
}

impl Folder {
    /// Reads the folder; what its files said last is known from the state folder.
    ///
    /// # Errors
    /// The state folder cannot be used.
    pub fn open(dir: &Path, state: &Path) -> Result<(Self, Vec<Event>)> {
        let mut files = Files::default();
        let mut events = Vec::new();
        let copy = DiskCopy::open(&state.join("source").join("folder"), |file: FileId, objects: Vec<Object>, _| {
            events.extend(files.set(&file, objects));
        })?;
        let mut early = Early::default();
        events.iter().for_each(|event| early.know(event));
        let mut folder = Self {
            dir: dir.to_owned(),
            copy,
            early,
            files,
            stamps: BTreeMap::new(),
            missing: false,
            is_listed: false,
            told: false,
        };
        // Before what is news since then.
        if folder.copy.is_whole() {
            folder.early.begin(&mut folder.copy, &mut events);
        }
        events.extend(folder.scan());
        Ok((folder, events))
    }

    /// Looks at all files; reads those that changed.
    pub fn scan(&mut self) -> Vec<Event> {
        let mut found = BTreeSet::new();
        for status in [false, true] {
            match self.list(status) {
                Ok(names) => found.extend(names.into_iter().map(|name| FileId { status, name })),
                Err(error) if status && error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    if !self.missing {
                        tracing::error!(folder = %self.folder(status).display(), %error, "cannot list manifests; what they said last stays");
                    }
                    self.missing = true;
                    return Vec::new();
                }
            }
        }
        if self.missing {
            tracing::info!(folder = %self.dir.display(), "the folder of manifests is there again");
            self.missing = false;
        }
        found.extend(self.files.known());
        self.is_listed = true;
        self.read_all(&found)
    }

    /// Reads those of these files that changed. What they say is on the disk before it is told.
    fn read_all(&mut self, files: &BTreeSet<FileId>) -> Vec<Event> {
        let mut events: Vec<Event> = files.iter().flat_map(|file| self.read(file)).collect();
        events.extend(self.tell_all());
        // All of it as one: a pod and its policy may have changed in two files.
        self.copy.save();
        events
    }

    /// Bad manifests of which it is not known what they said last. What a copy that is not whole has of them may be older than that.
    fn awaited(&self) -> impl Iterator<Item = &FileId> {
        let manifests = self.files.bad().keys().filter(|file| !file.status && !self.told);
        manifests.filter(|file| !self.copy.is_whole() || self.files.objects(file).is_empty())
    }

    /// All there is was told, of each kind, if it was; nothing where that was said before.
    fn tell_all(&mut self) -> Vec<Event> {
        if self.told || !self.is_listed || self.awaited().next().is_some() {
            return Vec::new();
        }
        self.told = true;
        self.copy.make_whole();
        self.tell(Kind::ALL.map(Event::Told))
    }

    /// Reads one file if it changed.
    fn read(&mut self, file: &FileId) -> Vec<Event> {
        let path = self.folder(file.status).join(&file.name);
        let stamp = match fs::metadata(&path) {
            Ok(meta) if meta.is_file() => Some((
                meta.dev(),
                meta.ino(),
                (meta.mtime(), meta.mtime_nsec()),
                (meta.ctime(), meta.ctime_nsec()),
                meta.len(),
            )),
            Ok(_) => None,
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return self.refuse(file, Refused { line: 0, why: error.to_string() }),
        };
        let Some(stamp) = stamp else {
            self.stamps.remove(file);
            if !self.files.objects(file).is_empty() {
                self.copy.put(file.clone(), None, false);
            }
            let events = self.files.remove(file);
            return self.tell(events);
        };
        if self.stamps.get(file) == Some(&stamp) {
            return Vec::new();
        }
        if stamp.4 > MAX_FILE {
            self.stamps.insert(file.clone(), stamp);
            return self.refuse(file, Refused { line: 0, why: format!("larger than {MAX_FILE} bytes") });
        }
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8(bytes).map_err(|error| {
                let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
                Refused { line: 1 + good.iter().filter(|b| **b == b'\n').count() as u64, why: "not UTF-8".into() }
            }),
            Err(error) => return self.refuse(file, Refused { line: 0, why: error.to_string() }),
        };
        self.stamps.insert(file.clone(), stamp);
        // Whatever is said of an object names the file that it is in.
        let named = tracing::error_span!("manifest", %file);
        match named.in_scope(|| text.and_then(|text| manifest::parse(&text))) {
            Ok(objects) => {
                if let Err(error) = self.keep(file, &objects) {
                    return self.refuse(file, Refused { line: 0, why: error.to_string() });
                }
                if self.files.bad().contains_key(file) {
                    tracing::info!(%file, "the manifest is good again");
                }
                let events = self.files.set(file, objects);
                self.tell(events)
            }
            Err(why) => self.refuse(file, why),
        }
    }

    /// Files that cannot be read, and why.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let missing = self.missing.then(|| format!("{}: missing", self.dir.display()));
        let bad = self.files.bad().iter().map(|(file, why)| format!("{file}: {why}"));
        let awaited =
            self.awaited().map(|file| format!("{file}: new pods are isolated before it is good: it may hold a policy"));
        missing.into_iter().chain(bad).chain(awaited).chain(self.copy.problem().map(str::to_owned)).collect()
    }

    /// What the copy was given is told, and what of it is newer than the policies.
    fn tell(&mut self, told: impl IntoIterator<Item = Event>) -> Vec<Event> {
        let mut events = Vec::new();
        told.into_iter().for_each(|event| self.early.tell(event, &mut self.copy, &mut events));
        events
    }

    /// A file has these objects.
    fn keep(&mut self, file: &FileId, objects: &[Object]) -> serde_json::Result<()> {
        let before = self.files.objects(file);
        if before != objects {
            let text = if objects.is_empty() { None } else { Some(to_raw_value(objects)?) };
            self.copy.put(file.clone(), text, before.is_empty());
        }
        Ok(())
    }

    fn refuse(&mut self, file: &FileId, why: Refused) -> Vec<Event> {
        let kept = self.files.objects(file).len();
        if self.files.refuse(file, why.clone()) {
            tracing::error!(%file, line = why.line, why = why.why, kept, "bad manifest; its last good objects stay");
        }
        Vec::new()
    }

    fn list(&self, status: bool) -> std::io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.folder(status))? {
            if let Some(name) = entry?.file_name().to_str().filter(|name| is_manifest(name)) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn folder(&self, status: bool) -> PathBuf {
        if status { self.dir.join("status") } else { self.dir.clone() }
    }
}

fn is_manifest(name: &str) -> bool {
    !name.starts_with('.') && [".yaml", ".yml", ".json"].iter().any(|suffix| name.ends_with(suffix))
}

#[cfg(test)]
mod tests;
