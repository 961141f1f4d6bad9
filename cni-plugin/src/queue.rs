//! DEL with the agent away: a durable queue under `STATE/queue`, written by the plugin and drained by the agent before it serves.
//!
//! Invariant: an entry is on disk, whole, before the plugin says success. The plugin holds a *shared* lock while it writes, the agent
//! an *exclusive* one while it drains; after getting the lock the plugin tries the agent once more, so that no entry is written after
//! the drain of an agent that already serves. One entry an attachment: repeats replace it and do not use up the queue.
//! Entries carry the boot id: after a reboot nothing is left that they could name, and the agent drops them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::protocol::{AttachmentKey, host_link_name};

/// Most entries the queue takes; beyond it DEL fails, so that a dead agent is noticed.
pub const MAX_ENTRIES: usize = 256;

const LOCK: &str = "lock";
const SUFFIX: &str = "json";
const LOCK_POLL: Duration = Duration::from_millis(10);

/// A DEL that waits for the agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The attachment.
    pub key: AttachmentKey,
    /// When the DEL started, CLOCK_BOOTTIME in ns; as in [`crate::protocol::Request::Delete`].
    pub started_ns: u64,
    /// Boot id of the kernel it came in.
    pub boot_id: String,
}

/// Why the queue did not take or give an entry.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// [`MAX_ENTRIES`] reached.
    #[error("the queue {} holds {MAX_ENTRIES} DELs already: start osmia-agent on this node, it drains the queue", .0.display())]
    Full(PathBuf),
    /// Somebody holds the lock.
    #[error("the queue {} stayed locked: osmia-agent is draining it; try again", .0.display())]
    Locked(PathBuf),
    /// The file system refused.
    #[error("{what} {}: {source}: check that the folder is writable and the disk has room", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
}

fn io_error<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> QueueError + 'a {
    move |source| QueueError::Io { what, path: path.to_owned(), source }
}

/// The queue's folder.
#[derive(Clone, Debug)]
pub struct Queue {
    folder: PathBuf,
}

/// The queue with its lock held; dropping it gives the lock back.
#[derive(Debug)]
pub struct LockedQueue {
    folder: PathBuf,
    // Closing the file releases the lock.
    _lock: File,
}

/// An entry as found on disk.
#[derive(Debug)]
pub struct Found {
    /// Its file, for [`LockedQueue::remove`].
    pub file: PathBuf,
    /// Its content, or why it cannot be read.
    pub entry: Result<Entry, String>,
}

impl Queue {
    /// The queue of a state folder.
    #[must_use]
    pub fn in_state(state: &Path) -> Self {
        Self { folder: state.join("queue") }
    }

    /// For writing entries: many plugins at a time, never beside a drain.
    ///
    /// # Errors
    /// The folder cannot be made or locked, or the lock is not free by `until`.
    pub fn lock_shared(&self, until: Instant) -> Result<LockedQueue, QueueError> {
        self.lock(FlockOperation::NonBlockingLockShared, until)
    }

    /// For draining: alone.
    ///
    /// # Errors
    /// As for [`Self::lock_shared`].
    pub fn lock_exclusive(&self, until: Instant) -> Result<LockedQueue, QueueError> {
        self.lock(FlockOperation::NonBlockingLockExclusive, until)
    }

    fn lock(&self, operation: FlockOperation, until: Instant) -> Result<LockedQueue, QueueError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(io_error("making the folder", &self.folder))?;
        let path = self.folder.join(LOCK);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(io_error("opening", &path))?;
        loop {
            match flock(&lock, operation) {
                Ok(()) => return Ok(LockedQueue { folder: self.folder.clone(), _lock: lock }),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_POLL),
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(QueueError::Locked(self.folder.clone())),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(io_error("locking", &path)(errno.into())),
            }
        }
    }
}

impl LockedQueue {
    /// Writes an entry: temporary file, fsync, rename, fsync of the folder. Replaces an entry of the same attachment.
    ///
    /// # Errors
    /// The queue is full, or the file system refused.
    pub fn push(&self, entry: &Entry) -> Result<(), QueueError> {
        let name = host_link_name(&entry.key);
        let file = self.folder.join(&name).with_extension(SUFFIX);
        if !file.exists() && self.files()?.len() >= MAX_ENTRIES {
            return Err(QueueError::Full(self.folder.clone()));
        }
        let new = self.folder.join(format!(".{name}.{}", std::process::id()));
        self.write(entry, &new, &file).inspect_err(|_| {
            // Already failing: a leftover that cannot be removed either goes with the next drain, as one of a killed plugin does.
            let _ = fs::remove_file(&new);
        })
    }

    fn write(&self, entry: &Entry, new: &Path, file: &Path) -> Result<(), QueueError> {
        let bytes = serde_json::to_vec(entry).map_err(|e| io_error("encoding", file)(e.into()))?;
        let mut out = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(new)
            .map_err(io_error("making", new))?;
        out.write_all(&bytes).and_then(|()| out.sync_all()).map_err(io_error("writing", new))?;
        fs::rename(new, file).map_err(io_error("renaming to", file))?;
        File::open(&self.folder).and_then(|f| f.sync_all()).map_err(io_error("syncing", &self.folder))
    }

    fn files(&self) -> Result<Vec<PathBuf>, QueueError> {
        let mut files = Vec::new();
        for item in fs::read_dir(&self.folder).map_err(io_error("reading", &self.folder))? {
            let path = item.map_err(io_error("reading", &self.folder))?.path();
            if path.extension().is_some_and(|e| e == SUFFIX) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// All entries, a damaged one with the reason.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn entries(&self) -> Result<Vec<Found>, QueueError> {
        let read = |file: &Path| {
            let bytes = fs::read(file).map_err(|e| e.to_string())?;
            serde_json::from_slice(&bytes).map_err(|e| e.to_string())
        };
        Ok(self.files()?.into_iter().map(|file| Found { entry: read(&file), file }).collect())
    }

    /// Removes what killed plugins left half written. Under the exclusive lock alone: under a shared one others are still writing.
    ///
    /// # Errors
    /// The folder cannot be read, or the file system refused.
    pub fn remove_unfinished(&self) -> Result<(), QueueError> {
        for item in fs::read_dir(&self.folder).map_err(io_error("reading", &self.folder))? {
            let item = item.map_err(io_error("reading", &self.folder))?;
            if item.file_name().as_encoded_bytes().starts_with(b".") {
                fs::remove_file(item.path()).map_err(io_error("removing", &item.path()))?;
            }
        }
        Ok(())
    }

    /// Removes an entry that is done. One that is gone already is fine.
    ///
    /// # Errors
    /// The file system refused.
    pub fn remove(&self, found: &Found) -> Result<(), QueueError> {
        match fs::remove_file(&found.file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("removing", &found.file)(e)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("osm-queue-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn entry(id: usize, started_ns: u64) -> Entry {
        Entry { key: AttachmentKey::new(format!("c{id}"), "eth0").unwrap(), started_ns, boot_id: "b".into() }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    #[test]
    fn an_entry_comes_back_and_a_repeat_replaces_it() {
        let folder = Folder::new("repeat");
        let queue = Queue::in_state(&folder.0);
        let locked = queue.lock_shared(soon()).unwrap();
        locked.push(&entry(1, 5)).unwrap();
        locked.push(&entry(1, 9)).unwrap();
        drop(locked);
        let locked = queue.lock_exclusive(soon()).unwrap();
        let found = locked.entries().unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].entry.as_ref().unwrap(), &entry(1, 9));
        locked.remove(&found[0]).unwrap();
        locked.remove(&found[0]).unwrap();
        assert!(locked.entries().unwrap().is_empty());
    }

    #[test]
    fn writers_share_and_the_drain_is_alone() {
        let folder = Folder::new("lock");
        let queue = Queue::in_state(&folder.0);
        let one = queue.lock_shared(soon()).unwrap();
        let two = queue.lock_shared(soon()).unwrap();
        assert!(matches!(queue.lock_exclusive(soon()), Err(QueueError::Locked(_))));
        drop((one, two));
        let drain = queue.lock_exclusive(soon()).unwrap();
        assert!(matches!(queue.lock_shared(soon()), Err(QueueError::Locked(_))));
        drop(drain);
        queue.lock_shared(soon()).unwrap();
    }

    #[test]
    fn a_full_queue_refuses_new_attachments_only() {
        let folder = Folder::new("full");
        let locked = Queue::in_state(&folder.0).lock_shared(soon()).unwrap();
        for id in 0..MAX_ENTRIES {
            locked.push(&entry(id, 1)).unwrap();
        }
        assert!(matches!(locked.push(&entry(MAX_ENTRIES, 1)), Err(QueueError::Full(_))));
        locked.push(&entry(0, 2)).unwrap();
        assert_eq!(locked.entries().unwrap().len(), MAX_ENTRIES);
    }

    #[test]
    fn a_damaged_entry_is_named_and_hides_no_other() {
        let folder = Folder::new("damage");
        let locked = Queue::in_state(&folder.0).lock_shared(soon()).unwrap();
        locked.push(&entry(1, 1)).unwrap();
        fs::write(folder.0.join("queue/osm000000000000.json"), b"{\"key\":").unwrap();
        fs::write(folder.0.join("queue/.osm1.4711"), b"torn").unwrap();
        let found = locked.entries().unwrap();
        assert_eq!(found.iter().map(|f| f.entry.is_ok()).collect::<Vec<_>>(), [false, true]);
        drop(locked);
        let locked = Queue::in_state(&folder.0).lock_exclusive(soon()).unwrap();
        locked.remove_unfinished().unwrap();
        assert_eq!(locked.entries().unwrap().len(), 2);
        assert!(!folder.0.join("queue/.osm1.4711").exists() && folder.0.join("queue/lock").exists());
    }
}
