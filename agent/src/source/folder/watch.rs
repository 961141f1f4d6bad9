//! Says when something in the folder may have changed.
//!
//! Invariant: no change is missed for good: what inotify cannot see (a folder that is replaced, the target of a link that is written in
//! place, a full event queue) is found by the slow look.

use std::{
    collections::BTreeSet,
    future, io,
    mem::MaybeUninit,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::time::{self, Instant};

use super::files::FileId;
use crate::{source::arrival::Look, sys::Readable};

/// Several writes in a row become one reading.
const SETTLE: Duration = Duration::from_millis(20);
/// Look again although no event came.
const SLOW: Duration = Duration::from_secs(60);
/// The same while a folder is missing.
const MISSING: Duration = Duration::from_secs(1);

/// What to read again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// These files.
    Files(BTreeSet<FileId>),
    /// All of them.
    Everything,
}

/// A watched folder: (device, inode) when the watch was set, and its watch descriptor.
type Watched = Option<((u64, u64), i32)>;

/// Watches of `DIR` and `DIR/status`.
pub(super) struct Watch {
    fd: Readable,
    main: PathBuf,
    status: PathBuf,
    watched: [Watched; 2],
    pending: Option<Change>,
    /// When the first of what is pending came.
    since: Option<Instant>,
}

impl Watch {
    /// Starts to watch. A folder that is missing is waited for.
    ///
    /// # Errors
    /// inotify is refused (its per-user limits).
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .context("cannot watch folders: inotify (see fs.inotify.max_user_instances)")?;
        let fd = Readable::new(fd).context("cannot wait for folder events")?;
        let (main, status) = (dir.to_owned(), dir.join("status"));
        let mut watch = Self { fd, main, status, watched: [None; 2], pending: None, since: None };
        watch.renew();
        Ok(watch)
    }

    /// Waits for the next change, and says since when it may have been there. Cancel-safe: what was seen and not returned is returned next
    /// time.
    pub(super) async fn changed(&mut self, look: &mut Look<'_>) -> (Change, Instant) {
        while self.pending.is_none() {
            let patience = if self.watched[0].is_some() { SLOW } else { MISSING };
            let since = match time::timeout(patience, readable(&self.fd, look)).await {
                Ok(since) => {
                    self.drain();
                    since
                }
                Err(_) => {
                    self.renew();
                    self.pending = Some(Change::Everything);
                    Instant::now()
                }
            };
            self.since = self.pending.is_some().then_some(since);
        }
        time::sleep(SETTLE).await;
        self.drain();
        (self.pending.take().unwrap_or(Change::Everything), self.since.take().unwrap_or_else(Instant::now))
    }

    /// Sets the watches that are missing or look at a folder that was replaced.
    fn renew(&mut self) {
        for (watched, path) in self.watched.iter_mut().zip([&self.main, &self.status]) {
            let identity =
                std::fs::metadata(path).ok().filter(std::fs::Metadata::is_dir).map(|meta| (meta.dev(), meta.ino()));
            match (*watched, identity) {
                (Some((old, _)), Some(new)) if old == new => {}
                (old, Some(new)) => {
                    if let Some((_, descriptor)) = old {
                        // Already gone with its folder, in most cases.
                        let _ = inotify::remove_watch(&self.fd, descriptor);
                    }
                    let flags = WatchFlags::CLOSE_WRITE
                        | WatchFlags::CREATE
                        | WatchFlags::MOVED_TO
                        | WatchFlags::MOVED_FROM
                        | WatchFlags::DELETE
                        | WatchFlags::DELETE_SELF
                        | WatchFlags::MOVE_SELF
                        | WatchFlags::ONLYDIR;
                    *watched = match inotify::add_watch(&self.fd, path, flags) {
                        Ok(descriptor) => Some((new, descriptor)),
                        Err(error) => {
                            tracing::warn!(folder = %path.display(), %error, "cannot watch; it is read every minute instead");
                            None
                        }
                    };
                }
                (_, None) => *watched = None,
            }
        }
    }

    fn drain(&mut self) {
        let mut renew = false;
        let mut buffer = [const { MaybeUninit::uninit() }; 4096];
        let mut events = inotify::Reader::new(&self.fd, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => break,
            };
            let kind = event.events();
            let lost = ReadFlags::QUEUE_OVERFLOW
                | ReadFlags::IGNORED
                | ReadFlags::DELETE_SELF
                | ReadFlags::MOVE_SELF
                | ReadFlags::UNMOUNT;
            if kind.intersects(lost) {
                renew = true;
                if kind.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED) {
                    for watched in &mut self.watched {
                        if watched.is_some_and(|(_, descriptor)| descriptor == event.wd()) {
                            *watched = None;
                        }
                    }
                }
                self.pending = Some(Change::Everything);
                continue;
            }
            let status = self.watched[1].is_some_and(|(_, descriptor)| descriptor == event.wd());
            let name = event.file_name().and_then(|name| name.to_str().ok()).unwrap_or_default().to_owned();
            if kind.contains(ReadFlags::ISDIR) || name == "..data" {
                // `status` came or went, or a mounted ConfigMap was switched over.
                renew |= kind.contains(ReadFlags::ISDIR);
                self.pending = Some(Change::Everything);
            } else if super::is_manifest(&name) {
                let file = FileId { status, name };
                let being_written = kind.contains(ReadFlags::CREATE) && is_plain(&self.path(&file));
                if being_written {
                    // Its CLOSE_WRITE follows.
                    continue;
                }
                match &mut self.pending {
                    Some(Change::Files(files)) => {
                        files.insert(file);
                    }
                    Some(Change::Everything) => {}
                    None => self.pending = Some(Change::Files(BTreeSet::from([file]))),
                }
            }
        }
        if renew {
            self.renew();
        }
    }

    fn path(&self, file: &FileId) -> PathBuf {
        if file.status { self.status.join(&file.name) } else { self.main.join(&file.name) }
    }
}

/// Waits until there is something to read, which may have been there since the answer.
async fn readable(fd: &Readable, look: &mut Look<'_>) -> Instant {
    let mut wait = pin!(fd.wait());
    future::poll_fn(|context| {
        let since = look.since();
        wait.as_mut().poll(context).map(|_| since)
    })
    .await
}

/// A regular file with one name: not a link, which is complete as soon as it is there.
fn is_plain(path: &Path) -> bool {
    let meta: io::Result<_> = std::fs::symlink_metadata(path);
    meta.is_ok_and(|meta| meta.is_file() && meta.nlink() == 1)
}
