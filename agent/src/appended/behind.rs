//! What was appended on its way to the disk, behind who appended it.
//!
//! Invariant: what is asked for is on disk half a second and one sync later; nobody waits for that but who drops this.

use std::{
    fs::File,
    io,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A sync begins so long after it was asked for: what comes meanwhile goes with it.
const BEHIND: Duration = Duration::from_millis(500);

/// The thread that syncs.
#[derive(Debug)]
pub(super) struct Behind {
    /// `None` once it ends.
    files: Option<Sender<Arc<File>>>,
    thread: Option<JoinHandle<()>>,
}

impl Behind {
    /// Of the file of this name.
    ///
    /// # Errors
    /// There is no room for a thread.
    pub(super) fn start(path: &Path) -> io::Result<Self> {
        Self::syncing(path, BEHIND, File::sync_data)
    }

    fn syncing(
        path: &Path,
        behind: Duration,
        sync: impl Fn(&File) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (files, asked) = channel();
        let path = path.to_owned();
        let thread = thread::Builder::new().name("sync".into()).spawn(move || follow(&asked, &path, behind, sync))?;
        Ok(Self { files: Some(files), thread: Some(thread) })
    }

    /// What is in the file by now is to be on the disk.
    pub(super) fn sync(&self, file: &Arc<File>) {
        let asked = self.files.as_ref().is_some_and(|files| files.send(Arc::clone(file)).is_ok());
        if !asked {
            tracing::error!("the thread that syncs a file ended: the power can take what is written to it");
        }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        drop(self.files.take());
        // It has said what went wrong.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn follow(asked: &Receiver<Arc<File>>, path: &Path, behind: Duration, sync: impl Fn(&File) -> io::Result<()>) {
    while let Ok(mut file) = asked.recv() {
        let until = Instant::now() + behind;
        while let Ok(next) = asked.recv_timeout(until.saturating_duration_since(Instant::now())) {
            file = next;
        }
        if let Err(error) = sync(&file) {
            tracing::error!(path = %path.display(), %error, "it cannot be synced: the power can take what was written last");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// One that says how long the file was each time.
    fn behind(by: Duration) -> (Behind, Receiver<u64>) {
        let (synced, lengths) = channel();
        let sync = move |file: &File| synced.send(file.metadata()?.len()).map_err(io::Error::other);
        (Behind::syncing(Path::new("file"), by, sync).unwrap(), lengths)
    }

    fn write(file: &Arc<File>) {
        (&**file).write_all(b"line\n").unwrap();
    }

    #[test]
    fn what_was_asked_for_is_synced_once_for_all_that_came_with_it_and_at_the_end() {
        let (behind, lengths) = behind(Duration::from_secs(3600));
        let (old, new) = (Arc::new(tempfile::tempfile().unwrap()), Arc::new(tempfile::tempfile().unwrap()));
        behind.sync(&old);
        for _ in 0..3 {
            write(&new);
            behind.sync(&new);
        }
        drop(behind);
        assert_eq!(lengths.try_iter().collect::<Vec<_>>(), [15], "the file that has the name by now");
    }

    #[test]
    fn what_comes_later_is_synced_later() {
        let (behind, lengths) = behind(Duration::ZERO);
        let file = Arc::new(tempfile::tempfile().unwrap());
        for length in [5, 10] {
            write(&file);
            behind.sync(&file);
            assert_eq!(lengths.recv(), Ok(length));
        }
    }
}
