//! The run's folder: sockets, journals, logs, manifests. All that can outlive a crash of the lab.
//!
//! Invariant: a folder is locked while its lab lives. Whoever makes one removes those whose lock is free, so parallel labs do not
//! touch each other and a killed one leaves nothing for longer than until the next.

use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::switch;

/// Short, since a socket's path may have 107 bytes.
const BASE: &str = "/tmp/osm-lab";
const LOCK: &str = "lock";

/// Folders of this process, for the way out by signal.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A folder that goes when this does.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// A new folder; those of dead labs go.
    ///
    /// # Errors
    /// The file system refused.
    pub(crate) fn create() -> Result<Self> {
        switch::watch()?;
        let base = Path::new(BASE);
        fs::create_dir_all(base).with_context(|| format!("make {BASE}"))?;
        // One at a time: a folder whose lock is not taken yet would be a leftover to another lab.
        let turn = File::create(base.join(LOCK)).with_context(|| format!("lock {BASE}"))?;
        turn.lock().with_context(|| format!("lock {BASE}"))?;
        remove_leftovers(base);
        let path = base.join(format!("{:08x}", random() as u32));
        fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        let lock = File::create_new(path.join(LOCK)).with_context(|| format!("lock {}", path.display()))?;
        lock.lock().with_context(|| format!("lock {}", path.display()))?;
        live().push(path.clone());
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed now is a leftover for the next lab.
        let _ = fs::remove_dir_all(&self.path);
        live().retain(|p| *p != self.path);
    }
}

/// Removes the folders of this process, before it exits without running destructors.
pub(crate) fn remove_live() {
    for path in live().drain(..) {
        let _ = fs::remove_dir_all(path);
    }
}

fn live() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove_leftovers(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        match lock.try_lock() {
            Ok(()) => drop(fs::remove_dir_all(&path)),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

/// 64 random bits, from the kernel's generator by way of the standard library's hasher.
#[must_use]
pub fn random() -> u64 {
    RandomState::new().hash_one(0u8)
}
