//! `--source folder:DIR`: the manifests in `DIR` and the status files in `DIR/status`.
//!
//! Invariant: a bad file keeps its last good objects, over a restart too; the other files apply. An object goes only when every file that
//! held it is gone or holds it no more.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::ErrorKind,
    mem,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::Result;
use tokio::time::Instant;

pub mod files;
pub mod manifest;
mod watch;

use files::{FileId, Files};
use manifest::Refused;
use watch::{Change, Watch};

use super::{arrival::Lookout, object::Object, saved::Saved};
use crate::model::{Event, Kind};

/// Longest manifest that is read, bytes.
const MAX_FILE: u64 = 16 << 20;

/// Tells whether a file's content may have changed: device, inode, mtime, ctime, size.
type Stamp = (u64, u64, (i64, i64), (i64, i64), u64);

/// A watched folder.
pub struct Folder {
    dir: PathBuf,
    saved: Saved<FileId>,
    files: Files,
    stamps: BTreeMap<FileId, Stamp>,
    /// The folder itself is missing.
    missing: bool,
    /// It was said that all there is was told, once the folder was read.
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
        let (change, since) = self.watch.changed(&mut self.lookout.look()).await;
        let events = match change {
            Change::Everything => self.folder.scan(),
            Change::Files(files) => files.iter().flat_map(|file| self.folder.read(file)).collect(),
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
        let (saved, records) = Saved::open(&state.join("source").join("folder"))?;
        let mut folder = Self {
            dir: dir.to_owned(),
            saved,
            files: Files::default(),
            stamps: BTreeMap::new(),
            missing: false,
            told: false,
        };
        let mut events = Vec::new();
        let is_known = !records.is_empty();
        for (file, objects) in records {
            events.extend(folder.files.set(&file, objects));
        }
        events.extend(folder.scan());
        if is_known && !folder.told {
            events.extend(Kind::ALL.map(Event::Remembered));
        }
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
        let mut events = Vec::new();
        for file in self.files.known().union(&found) {
            events.extend(self.read(file));
        }
        events.extend(self.all_told());
        events
    }

    /// All there is was told, of each kind; nothing where it was said before.
    fn all_told(&mut self) -> Vec<Event> {
        match mem::replace(&mut self.told, true) {
            true => Vec::new(),
            false => Kind::ALL.map(Event::Told).into(),
        }
    }

    /// Reads one file if it changed.
    pub fn read(&mut self, file: &FileId) -> Vec<Event> {
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
                self.keep(file, &[]);
            }
            return self.files.remove(file);
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
                if self.files.bad().contains_key(file) {
                    tracing::info!(%file, "the manifest is good again");
                }
                if self.files.objects(file) != objects.as_slice() {
                    self.keep(file, &objects);
                }
                self.files.set(file, objects)
            }
            Err(why) => self.refuse(file, why),
        }
    }

    /// Files that cannot be read, and why.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let missing = self.missing.then(|| format!("{}: missing", self.dir.display()));
        missing.into_iter().chain(self.files.bad().iter().map(|(file, why)| format!("{file}: {why}"))).collect()
    }

    fn keep(&mut self, file: &FileId, objects: &[Object]) {
        let objects = Some(objects).filter(|objects| !objects.is_empty());
        if let Err(error) = self.saved.keep([(file, objects)]) {
            tracing::error!(%file, error = format!("{error:#}"), "a restart would not know the last good state of this file");
        }
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
