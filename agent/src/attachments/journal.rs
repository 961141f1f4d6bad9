//! The journal: what the agent has promised, written before it is promised.
//!
//! Invariant: an append that succeeded is in the file whole; one that failed left nothing. A torn last line (the machine died while it was
//! written) is cut off; a damaged line elsewhere loses itself alone and is said, with the damaged file kept.
//!
//! In the file is in the kernel's hands: a killed agent loses nothing. The disk has a line [`BEHIND`] later at most, by a thread of its own,
//! and all of them after a clean stop. No answer waits for that, since only the machine's end can come between: no pod of this boot lives
//! then, and of another boot's lines nothing is taken over anyhow, neither attachments nor DELs nor rests of addresses (see
//! [`Line::Boot`]). A disk that is full is still said by the append itself: file systems take the room when they are written to. One that
//! fails later is said as an error, and nothing more is appended until a rewrite has brought everything to it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tokio::sync::oneshot;

use super::record::Line;
use crate::appended::sync_folder;

/// How long a line may be in the kernel's hands alone.
const BEHIND: Duration = Duration::from_millis(500);

/// Why a line is not in the journal. Nothing of it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot write the journal {path}: {why}")]
pub struct JournalError {
    path: String,
    why: String,
}

type Done = oneshot::Sender<Result<(), JournalError>>;

/// What the journal's thread is told.
enum Job {
    /// Something was appended since the last sync.
    Appended,
    Rewrite(Vec<u8>, Done),
}

/// The open journal.
#[derive(Clone, Debug)]
pub struct Journal {
    writer: Arc<Mutex<Writer>>,
    jobs: mpsc::Sender<Job>,
}

/// What a journal held.
#[derive(Debug, Default)]
pub struct Replay {
    /// Its lines in order.
    pub lines: Vec<Line>,
    /// What could not be read, in words.
    pub damage: Vec<String>,
}

impl Journal {
    /// Opens or makes the journal and reads it.
    ///
    /// # Errors
    /// The file cannot be made, read or cut.
    pub fn open(path: &Path) -> Result<(Self, Replay)> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("cannot open the journal {}", path.display()))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(|| format!("cannot read the journal {}", path.display()))?;
        let (mut replay, good) = read(&bytes);
        if !replay.damage.is_empty() {
            let kept = path.with_extension("damaged");
            fs::write(&kept, &bytes)
                .with_context(|| format!("cannot keep the damaged journal as {}", kept.display()))?;
            replay.damage.push(format!("the damaged journal is kept as {}", kept.display()));
        }
        file.set_len(good).context("cannot cut the journal's torn end")?;
        file.sync_all().context("cannot sync the journal")?;
        sync_folder(path).context("cannot sync the journal's folder")?;
        let (jobs, queue) = mpsc::channel();
        let writer = Arc::new(Mutex::new(Writer::new(path.to_owned(), file, good)));
        let shared = Arc::clone(&writer);
        thread::Builder::new()
            .name("journal".into())
            .stack_size(256 << 10)
            .spawn(move || follow(&shared, &queue))
            .context("cannot start the journal's thread")?;
        Ok((Self { writer, jobs }, replay))
    }

    /// Appends a line. In the file when this returns, on disk soon after.
    ///
    /// # Errors
    /// The disk is full or broken; nothing was written.
    pub fn append(&self, line: &Line) -> Result<(), JournalError> {
        let mut writer = lock(&self.writer);
        if !writer.behind {
            self.jobs.send(Job::Appended).map_err(|_| writer.error(&ended()))?;
            writer.behind = true;
        }
        let result = encode(line).and_then(|bytes| writer.append(&bytes));
        result.map_err(|e| writer.error(&e))
    }

    /// Replaces the journal by these lines, on disk when this returns; the old one stays if that fails.
    ///
    /// # Errors
    /// The disk is full or broken.
    pub async fn rewrite(&self, lines: &[Line]) -> Result<(), JournalError> {
        let failed = |e| lock(&self.writer).error(&e);
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend(encode(line).map_err(failed)?);
        }
        let (done, answer) = oneshot::channel();
        self.jobs.send(Job::Rewrite(bytes, done)).map_err(|_| failed(ended()))?;
        answer.await.map_err(|_| failed(ended()))?
    }

    /// Whether the disk has refused what was appended: nothing more is until a [`Self::rewrite`].
    #[must_use]
    pub fn is_refused(&self) -> bool {
        lock(&self.writer).refused.is_some()
    }

    /// Brings what was appended to the disk now.
    ///
    /// # Errors
    /// The disk is broken.
    pub fn sync(&self) -> Result<(), JournalError> {
        sync(&self.writer)?;
        // Lines that an earlier sync lost are still lost: the kernel says so once.
        let writer = lock(&self.writer);
        writer.refused.as_ref().map_or(Ok(()), |why| Err(writer.error(&io::Error::other(why.clone()))))
    }

    /// From now on what is appended goes to a disk that is gone: it takes everything and cannot be synced (EINVAL).
    #[cfg(test)]
    pub(super) fn lose_disk(&self) {
        lock(&self.writer).file = Arc::new(OpenOptions::new().write(true).open("/dev/null").unwrap());
    }
}

fn encode(line: &Line) -> io::Result<Vec<u8>> {
    let json = serde_json::to_string(line)?;
    Ok(format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())).into_bytes())
}

fn ended() -> io::Error {
    io::Error::other("its thread ended")
}

/// Lines of a journal and the length up to which it is whole.
fn read(bytes: &[u8]) -> (Replay, u64) {
    let mut replay = Replay::default();
    let mut good = 0;
    let mut pending: Vec<String> = Vec::new();
    for (number, raw) in (1..).zip(bytes.split_inclusive(|b| *b == b'\n')) {
        match line(raw) {
            Ok(line) => {
                replay.lines.push(line);
                // Damage with a good line behind it is no torn end.
                replay.damage.append(&mut pending);
                good += raw.len() as u64;
            }
            Err(why) => {
                pending.push(format!("line {number}: {why}"));
                good += raw.len() as u64;
            }
        }
    }
    if !pending.is_empty() {
        // The torn end: everything behind the last good line.
        let tail: usize = bytes.split_inclusive(|b| *b == b'\n').rev().take(pending.len()).map(<[u8]>::len).sum();
        good -= tail as u64;
        tracing::warn!(bytes = tail, "cut the journal's torn end");
    }
    (replay, good)
}

fn line(raw: &[u8]) -> Result<Line> {
    let text = std::str::from_utf8(raw)?;
    let Some(text) = text.strip_suffix('\n') else { bail!("cut short") };
    let Some((sum, json)) = text.split_once(' ') else { bail!("no checksum") };
    if sum != format!("{:08x}", crc32fast::hash(json.as_bytes())) {
        bail!("wrong checksum");
    }
    Ok(serde_json::from_str(json)?)
}

/// The journal's thread: syncs what was appended, and rewrites. Ends with the journal.
fn follow(writer: &Mutex<Writer>, queue: &mpsc::Receiver<Job>) {
    let mut due = None::<Instant>;
    loop {
        let job = match due {
            None => queue.recv().map_err(mpsc::RecvTimeoutError::from),
            Some(due) => queue.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match job {
            Ok(Job::Appended) => due = due.or_else(|| Some(Instant::now() + BEHIND)),
            Ok(Job::Rewrite(bytes, done)) => {
                let mut writer = lock(writer);
                let result = writer.rewrite(&bytes).map_err(|e| writer.error(&e));
                // Who no longer waits was cancelled.
                drop(done.send(result));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                due = None;
                if let Err(error) = sync(writer) {
                    tracing::error!(%error, "what was written last is not on disk; it is written anew before the next change");
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Without the lock: appends go on meanwhile.
fn sync(writer: &Mutex<Writer>) -> Result<(), JournalError> {
    let file = {
        let mut writer = lock(writer);
        writer.behind = false;
        Arc::clone(&writer.file)
    };
    file.sync_data().map_err(|error| {
        let mut writer = lock(writer);
        // The kernel forgets what it could not write, and says so once.
        writer.refused = Some(error.to_string());
        writer.error(&error)
    })
}

fn lock(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Writer {
    path: PathBuf,
    file: Arc<File>,
    /// Bytes that are whole.
    length: u64,
    /// A write failed and what it left could not be cut off yet.
    unsure: bool,
    /// The thread was told that there is something to sync.
    behind: bool,
    /// What the disk said when it refused what was appended.
    refused: Option<String>,
}

impl Writer {
    fn new(path: PathBuf, file: File, length: u64) -> Self {
        Self { path, file: Arc::new(file), length, unsure: false, behind: false, refused: None }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if let Some(why) = &self.refused {
            return Err(io::Error::other(format!("the disk refused what was written before: {why}")));
        }
        if self.unsure {
            self.cut()?;
        }
        match self.file.write_all_at(line, self.length) {
            Ok(()) => {
                self.length += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.unsure = true;
                // If this fails too the next append tries again before it writes.
                drop(self.cut());
                Err(error)
            }
        }
    }

    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.unsure = false;
        Ok(())
    }

    fn rewrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&new)?;
        let written = file.write_all_at(bytes, 0).and_then(|()| file.sync_all());
        written.inspect_err(|_| drop(fs::remove_file(&new)))?;
        fs::rename(&new, &self.path)?;
        // From here on the new file is the journal, whatever the folder's sync says.
        *self = Self::new(self.path.clone(), file, bytes.len() as u64);
        sync_folder(&self.path)
    }

    fn error(&self, why: &io::Error) -> JournalError {
        let why = match why.kind() {
            io::ErrorKind::StorageFull => "no space left on this disk; free some and try again".to_owned(),
            _ => why.to_string(),
        };
        JournalError { path: self.path.display().to_string(), why }
    }
}

#[cfg(test)]
mod tests;
