//! What a source said last, on disk: a restart that cannot ask again comes up from it.
//!
//! Invariant: a file of lines `[key, value or null]`, the last line of a key counts. It is appended to, and rewritten (by rename) when half
//! of it is out of date, without holding its values in memory, and by a thread: of a large cluster it has tens of megabytes, and whoever
//! keeps something has packets and pods that wait for him. A crash leaves the old or the new file, at worst with its last line torn, which
//! is dropped. Lines that cannot be read stay until it is rewritten. No fsync: what is lost with the power is asked for again.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result, anyhow};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

/// Bytes that may be out of date before a rewrite is worth it.
const SLACK: u64 = 1 << 20;

/// The file. `K` is what a value is known by.
pub(super) struct Saved<K> {
    path: PathBuf,
    file: File,
    /// Bytes now, and after the last rewrite.
    size: u64,
    rewritten: u64,
    /// Lines of it cannot be read.
    is_damaged: bool,
    /// The shorter file beside it.
    shorter: Option<Shorter>,
    key: PhantomData<K>,
}

/// A file that is being written, of each key's last line.
struct Shorter {
    /// How many bytes of the file it is made of: whole lines.
    of: u64,
    /// Gives its size.
    thread: JoinHandle<Result<u64>>,
}

impl<K: Serialize + DeserializeOwned + Ord + 'static> Saved<K> {
    /// Opens or makes the file and reads what is there, but for lines that cannot be read.
    ///
    /// # Errors
    /// The file cannot be read or made.
    pub(super) fn open(path: &Path) -> Result<(Self, BTreeMap<K, Box<RawValue>>)> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let file = append(path)?;
        let mut values = BTreeMap::new();
        let (mut damaged, mut size, mut torn) = (0, 0, false);
        lines(path, u64::MAX, |line, is_whole| {
            match parse(line) {
                Ok((key, Some(value))) if is_whole => drop(values.insert(key, value)),
                Ok((key, None)) if is_whole => drop(values.remove(&key)),
                // The last one, whose writing was cut short: it was in force nowhere yet.
                _ if !is_whole => torn = true,
                _ => damaged += 1,
            }
            if is_whole {
                size += line.len() as u64 + 1;
            }
            Ok(())
        })?;
        // What is torn would take the next line with it.
        file.set_len(size).with_context(|| format!("cannot write {}", path.display()))?;
        let is_damaged = damaged > 0;
        let path = path.to_owned();
        let saved = Self { path, file, size, rewritten: 0, is_damaged, shorter: None, key: PhantomData };
        if is_damaged || torn {
            tracing::warn!(file = %saved.path.display(), lines = damaged, torn, "lines of the last known state cannot be read");
        }
        Ok((saved, values))
    }

    /// Whether there are lines that cannot be read, so that nobody knows what they said.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Keeps these values; `None` forgets one.
    ///
    /// # Errors
    /// They cannot be written; what was kept before stays.
    pub(super) fn keep<'a, V: Serialize + ?Sized + 'a>(
        &mut self,
        values: impl IntoIterator<Item = (&'a K, Option<&'a V>)>,
    ) -> Result<()>
    where
        K: 'a,
    {
        let mut text = Vec::new();
        for value in values {
            serde_json::to_writer(&mut text, &value)?;
            text.push(b'\n');
        }
        if let Err(error) = self.file.write_all(&text) {
            // Half a line would take the next one with it. If this fails too, that is one more line that cannot be read.
            let _ = self.file.set_len(self.size);
            return Err(error).with_context(|| format!("cannot write {}", self.path.display()));
        }
        self.size += text.len() as u64;
        if let Err(error) = self.shorten() {
            tracing::warn!(
                error = format!("{error:#}"),
                "the last known state is kept, but takes more room than it needs"
            );
            self.rewritten = self.size;
        }
        Ok(())
    }

    /// Takes away what cannot be read, at once. Whoever lives by what is there has said before what that means; so has who keeps anything in a
    /// file that is damaged still, since the next shorter one is without it too.
    ///
    /// # Errors
    /// The file cannot be written; what was there stays.
    pub(super) fn mend(&mut self) -> Result<()> {
        if !self.is_damaged {
            return Ok(());
        }
        let shorter = match self.shorter.take() {
            Some(shorter) => shorter,
            None => self.begin()?,
        };
        self.adopt(shorter)
    }

    /// Begins to write the shorter file where it is worth it; once it is written, it takes this one's place.
    fn shorten(&mut self) -> Result<()> {
        match self.shorter.take() {
            None if self.is_damaged || self.size > 2 * self.rewritten + SLACK => self.shorter = Some(self.begin()?),
            Some(shorter) if shorter.thread.is_finished() => self.adopt(shorter)?,
            shorter => self.shorter = shorter,
        }
        Ok(())
    }

    fn begin(&self) -> Result<Shorter> {
        let (path, new) = (self.path.clone(), self.beside());
        let of = self.file.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
        let write = move || Self::write_last(&path, of, &new);
        let thread = thread::Builder::new().name("shorten".into()).spawn(write);
        Ok(Shorter { of, thread: thread.context("cannot start a thread")? })
    }

    /// Puts the shorter file in the place of this one, when it is written.
    fn adopt(&mut self, Shorter { of, thread }: Shorter) -> Result<()> {
        let written = thread.join().unwrap_or_else(|_| Err(anyhow!("the thread that shortens it ended")));
        let (path, mut last) = (self.path.clone(), 0);
        self.replace(|new| {
            last = written?;
            Ok(last + add_rest(&path, of, new)?)
        })?;
        // What came meanwhile may be out of date already.
        self.rewritten = last;
        Ok(())
    }

    /// Leaves nothing. Needs no room on the disk.
    ///
    /// # Errors
    /// It cannot be written; what was there stays.
    pub(super) fn empty(&mut self) -> Result<()> {
        // It would bring back what is gone.
        self.discard();
        self.file.set_len(0).with_context(|| format!("cannot write {}", self.path.display()))?;
        (self.size, self.rewritten, self.is_damaged) = (0, 0, false);
        Ok(())
    }

    /// Puts the file that `write` writes, which gives its size, in the place of this one.
    fn replace(&mut self, write: impl FnOnce(&Path) -> Result<u64>) -> Result<()> {
        let new = self.beside();
        let written = write(&new).and_then(|size| {
            fs::rename(&new, &self.path).with_context(|| format!("cannot replace {}", self.path.display()))?;
            Ok(size)
        });
        let size = written.inspect_err(|_| {
            // What of it there is fills a disk that may be full already. One that stays is overwritten by the next.
            let _ = fs::remove_file(&new);
        })?;
        self.file = append(&self.path)?;
        (self.size, self.rewritten, self.is_damaged) = (size, size, false);
        Ok(())
    }

    /// As if the disk were full, or were not any more.
    #[cfg(test)]
    pub(super) fn refuse(&mut self, refuse: bool) {
        self.file = if refuse { File::open(&self.path).unwrap() } else { append(&self.path).unwrap() };
    }

    /// Writes each key's last line among the first `of` bytes; the size, bytes.
    fn write_last(path: &Path, of: u64, new: &Path) -> Result<u64> {
        let mut last: BTreeMap<K, usize> = BTreeMap::new();
        let mut at = 0;
        lines(path, of, |line, _| {
            if let Ok((key, value)) = parse(line) {
                match value {
                    Some(_) => last.insert(key, at),
                    None => last.remove(&key),
                };
            }
            at += 1;
            Ok(())
        })?;
        let mut wanted: Vec<usize> = last.into_values().collect();
        wanted.sort_unstable();
        let mut wanted = wanted.into_iter().peekable();
        let failed = || format!("cannot write {}", new.display());
        let mut out = BufWriter::new(File::create(new).with_context(failed)?);
        let (mut at, mut size) = (0, 0);
        lines(path, of, |line, _| {
            if wanted.next_if_eq(&at).is_some() {
                out.write_all(line).and_then(|()| out.write_all(b"\n")).with_context(failed)?;
                size += line.len() as u64 + 1;
            }
            at += 1;
            Ok(())
        })?;
        out.flush().with_context(failed)?;
        Ok(size)
    }
}

impl<K> Saved<K> {
    fn beside(&self) -> PathBuf {
        self.path.with_extension("new")
    }

    /// Waits for the shorter file that is being written, which nobody wants any more.
    fn discard(&mut self) {
        let Some(Shorter { thread, .. }) = self.shorter.take() else { return };
        // What the thread says is of no use any more.
        let _ = thread.join();
        let _ = fs::remove_file(self.beside());
    }
}

impl<K> Drop for Saved<K> {
    fn drop(&mut self) {
        // Whoever opens the file next finds nobody who writes beside it.
        self.discard();
    }
}

/// Adds what `path` has behind its first `of` bytes to `new`; how much that is, bytes.
fn add_rest(path: &Path, of: u64, new: &Path) -> Result<u64> {
    let added = || -> io::Result<u64> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(of))?;
        io::copy(&mut file, &mut OpenOptions::new().append(true).open(new)?)
    };
    added().with_context(|| format!("cannot write {}", new.display()))
}

/// Of one line, without its end.
fn parse<K: DeserializeOwned>(line: &[u8]) -> serde_json::Result<(K, Option<Box<RawValue>>)> {
    serde_json::from_slice(line)
}

fn append(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("cannot open {}", path.display()))
}

/// Calls `each` with every line of the first `of` bytes, and whether it is a whole one.
fn lines(path: &Path, of: u64, mut each: impl FnMut(&[u8], bool) -> Result<()>) -> Result<()> {
    let failed = || format!("cannot read {}", path.display());
    let mut file = BufReader::new(File::open(path).with_context(failed)?.take(of));
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line).with_context(failed)? > 0 {
        let is_whole = line.pop_if(|last| *last == b'\n').is_some();
        each(&line, is_whole)?;
        line.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    type Values = BTreeMap<String, Vec<u32>>;

    fn open(path: &Path) -> (Saved<String>, Values) {
        let (saved, texts) = Saved::open(path).unwrap();
        (saved, texts.into_iter().map(|(key, text)| (key, serde_json::from_str(text.get()).unwrap())).collect())
    }

    #[test]
    fn the_last_value_of_a_key_counts_over_restarts() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("deeper/file");
        let (mut saved, values) = open(&path);
        assert!(values.is_empty());
        let (a, b) = ("a".to_owned(), "b".to_owned());
        saved.keep([(&a, Some(&vec![1])), (&b, Some(&vec![2]))]).unwrap();
        saved.keep([(&a, Some(&vec![3])), (&b, None)]).unwrap();
        assert_eq!(open(&path).1, Values::from([(a, vec![3])]));
    }

    #[test]
    fn a_torn_line_and_a_damaged_one_take_nothing_else_with_them() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, b"[\"a\",[1]]\n[\"b\",[2]\n\xff\n[\"c\",[3]]\n[\"a\",[4").unwrap();
        let (mut saved, values) = open(&path);
        assert_eq!(values.into_keys().collect::<Vec<_>>(), ["a", "c"]);
        saved.keep([(&"d".to_owned(), Some(&vec![5]))]).unwrap();
        assert_eq!(open(&path).1.into_keys().collect::<Vec<_>>(), ["a", "c", "d"], "and the next line stands alone");
    }

    #[test]
    fn what_cannot_be_read_stays_until_it_is_mended() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        // No line, no key, no text.
        fs::write(&path, b"[\"a\",[1]]\n[\"b\",[2]\n[3,[3]]\n[\"c\",\"\xff\"]\n").unwrap();
        let (saved, values) = open(&path);
        assert!(saved.is_damaged());
        drop(saved);
        let (mut saved, again) = open(&path);
        assert!(saved.is_damaged() && again == values, "whoever opened it may have said nothing of it yet");
        saved.keep([(&"d".to_owned(), Some(&vec![4]))]).unwrap();
        saved.mend().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"[\"a\",[1]]\n[\"d\",[4]]\n");
        assert!(!open(&path).0.is_damaged());
        // What a killed agent did not write to its end says nothing that was in force.
        fs::write(&path, b"[\"a\",[1]]\n[\"b\",[2").unwrap();
        assert!(!open(&path).0.is_damaged());
    }

    #[test]
    fn what_a_full_disk_took_of_a_shorter_file_does_not_stay() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        let (mut saved, _) = open(&path);
        std::os::unix::fs::symlink("/dev/full", dir.path().join("file.new")).unwrap();
        let value = vec![70_000; 1000];
        for _ in 0..400 {
            saved.keep([(&"a".to_owned(), Some(&value))]).unwrap();
        }
        drop(saved);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(open(&path).1["a"], value);
    }

    /// Keeps `a` until the file is a short one again.
    fn keep_until_short(saved: &mut Saved<String>, path: &Path) -> u32 {
        for round in 0..1000 {
            saved.keep([(&"a".to_owned(), Some(&vec![round; 1000]))]).unwrap();
            while saved.shorter.as_ref().is_some_and(|shorter| !shorter.thread.is_finished()) {
                thread::yield_now();
            }
            if fs::metadata(path).unwrap().len() < SLACK && saved.rewritten > 0 {
                return round;
            }
        }
        panic!("{} bytes", fs::metadata(path).unwrap().len());
    }

    #[test]
    fn it_does_not_grow_without_bound() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        let (mut saved, _) = open(&path);
        let last = keep_until_short(&mut saved, &path);
        drop(saved);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(open(&path).1, Values::from([("a".to_owned(), vec![last; 1000])]));
    }

    #[test]
    fn a_shorter_file_has_also_what_was_kept_while_it_was_written() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        let (mut saved, _) = open(&path);
        let names: Vec<String> = ["b", "c", "d"].map(str::to_owned).into();
        saved.keep([(&names[0], Some(&vec![1])), (&names[1], Some(&vec![1]))]).unwrap();
        while saved.shorter.is_none() {
            saved.keep([(&"a".to_owned(), Some(&vec![0; 1000]))]).unwrap();
        }
        saved.keep([(&names[0], Some(&vec![2])), (&names[1], None), (&names[2], Some(&vec![2]))]).unwrap();
        let last = keep_until_short(&mut saved, &path);
        let wanted = [("a", vec![last; 1000]), ("b", vec![2]), ("d", vec![2])];
        let wanted: Values = wanted.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!(open(&path).1, wanted);
    }
}
