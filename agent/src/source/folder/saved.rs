//! The last good objects of each file, kept in the state folder: a file that turns bad while no agent runs loses nothing.
//!
//! Invariant: one record a file, replaced by rename, so that a crash leaves the old or the new one. No fsync: a record lost with the
//! power is read again from the file itself.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::files::FileId;
use crate::source::object::Object;

/// The folder of records.
pub(super) struct Saved {
    dir: PathBuf,
}

impl Saved {
    /// Opens or makes the folder and reads what is there. A record that cannot be read is dropped and said.
    ///
    /// # Errors
    /// The folder cannot be made or listed.
    pub(super) fn open(dir: &Path) -> Result<(Self, BTreeMap<FileId, Vec<Object>>)> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut records = BTreeMap::new();
        for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let path = entry?.path();
            let Some(file) = path.file_name().and_then(|name| name.to_str()).and_then(id) else { continue };
            let read =
                fs::read(&path).map_err(anyhow::Error::from).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
            match read {
                Ok(objects) => {
                    records.insert(file, objects);
                }
                Err(error) => tracing::warn!(file = %path.display(), %error, "dropped a damaged record of a manifest"),
            }
        }
        Ok((Self { dir: dir.to_owned() }, records))
    }

    /// Keeps a file's objects.
    ///
    /// # Errors
    /// The record cannot be written; the old one stays.
    pub(super) fn keep(&self, file: &FileId, objects: &[Object]) -> Result<()> {
        if objects.is_empty() {
            return self.forget(file);
        }
        let new = self.dir.join(".new");
        fs::write(&new, serde_json::to_vec(objects)?).with_context(|| format!("cannot write {}", new.display()))?;
        fs::rename(&new, self.path(file)).with_context(|| format!("cannot keep the objects of {file}"))
    }

    /// Forgets a file.
    ///
    /// # Errors
    /// The record cannot be removed.
    pub(super) fn forget(&self, file: &FileId) -> Result<()> {
        match fs::remove_file(self.path(file)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot forget the objects of {file}"))
            }
            _ => Ok(()),
        }
    }

    fn path(&self, file: &FileId) -> PathBuf {
        self.dir.join(format!("{}{}", if file.status { "s-" } else { "m-" }, file.name))
    }
}

fn id(name: &str) -> Option<FileId> {
    let (status, name) = match name.split_at_checked(2)? {
        ("m-", name) => (false, name),
        ("s-", name) => (true, name),
        _ => return None,
    };
    Some(FileId { status, name: name.to_owned() })
}
