//! The journal: what the agent has promised, on disk before it is promised.
//!
//! Invariant: an append that succeeded is on disk whole; one that failed left nothing. A torn last line (the machine died while it was
//! written) is cut off; a damaged line elsewhere loses itself alone and is said, with the damaged file kept. Lines written at the same
//! time share one fsync: a thread of its own takes all that wait.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

use anyhow::{Context, Result, bail};
use tokio::sync::oneshot;

use super::record::Line;

/// Why a line is not in the journal. Nothing of it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot write the journal {path}: {why}")]
pub struct JournalError {
    path: String,
    why: String,
}

type Done = oneshot::Sender<Result<(), JournalError>>;

enum Job {
    Append(Vec<u8>, Done),
    Rewrite(Vec<u8>, Done),
}

/// The open journal.
#[derive(Clone, Debug)]
pub struct Journal {
    jobs: mpsc::Sender<Job>,
    path: String,
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
        let mut writer = Writer { path: path.to_owned(), file, length: good, unsure: false };
        thread::Builder::new()
            .name("journal".into())
            .stack_size(256 << 10)
            .spawn(move || writer.run(&queue))
            .context("cannot start the journal's thread")?;
        Ok((Self { jobs, path: path.display().to_string() }, replay))
    }

    /// Appends a line. On disk when this returns.
    ///
    /// # Errors
    /// The disk is full or broken; nothing was written.
    pub async fn append(&self, line: &Line) -> Result<(), JournalError> {
        let bytes = self.encode(line)?;
        self.send(|done| Job::Append(bytes, done)).await
    }

    /// Replaces the journal by these lines; the old one stays if that fails.
    ///
    /// # Errors
    /// The disk is full or broken.
    pub async fn rewrite(&self, lines: &[Line]) -> Result<(), JournalError> {
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend(self.encode(line)?);
        }
        self.send(|done| Job::Rewrite(bytes, done)).await
    }

    fn encode(&self, line: &Line) -> Result<Vec<u8>, JournalError> {
        let json = serde_json::to_string(line).map_err(|e| self.error(&e))?;
        Ok(format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())).into_bytes())
    }

    async fn send(&self, job: impl FnOnce(Done) -> Job) -> Result<(), JournalError> {
        let (done, answer) = oneshot::channel();
        self.jobs.send(job(done)).map_err(|_| self.error(&"its thread ended"))?;
        answer.await.map_err(|_| self.error(&"its thread ended"))?
    }

    fn error(&self, why: &dyn std::fmt::Display) -> JournalError {
        JournalError { path: self.path.clone(), why: why.to_string() }
    }
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

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

struct Writer {
    path: PathBuf,
    file: File,
    /// Bytes that are whole and on disk.
    length: u64,
    /// A write failed and what it left could not be cut off yet.
    unsure: bool,
}

impl Writer {
    fn run(&mut self, queue: &mpsc::Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            let mut lines = Vec::new();
            let mut waiting = Vec::new();
            let mut rewrite = None;
            for job in std::iter::once(first).chain(std::iter::from_fn(|| queue.try_recv().ok())) {
                match job {
                    Job::Append(bytes, done) => {
                        lines.extend(bytes);
                        waiting.push(done);
                    }
                    Job::Rewrite(bytes, done) => {
                        rewrite = Some((bytes, done));
                        break;
                    }
                }
            }
            if !waiting.is_empty() {
                let result = self.append(&lines).map_err(|e| self.error(&e));
                for done in waiting {
                    // Who no longer waits was cancelled.
                    drop(done.send(result.clone()));
                }
            }
            if let Some((bytes, done)) = rewrite {
                let result = self.rewrite(&bytes).map_err(|e| self.error(&e));
                drop(done.send(result));
            }
        }
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.unsure {
            self.cut()?;
        }
        self.file.seek(SeekFrom::Start(self.length))?;
        let written = self.file.write_all(lines).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => {
                self.length += lines.len() as u64;
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
        self.file.sync_data()?;
        self.unsure = false;
        Ok(())
    }

    fn rewrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&new)?;
        file.write_all(bytes).and_then(|()| file.sync_all()).inspect_err(|_| drop(fs::remove_file(&new)))?;
        fs::rename(&new, &self.path)?;
        // From here on the new file is the journal, whatever the folder's sync says.
        self.file = file;
        self.length = bytes.len() as u64;
        self.unsure = false;
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
