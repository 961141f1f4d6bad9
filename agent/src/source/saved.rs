//! What a source said last, on disk: a restart that cannot ask again comes up from it.
//!
//! Invariant: a file of lines `[key, value or null]`, the last line of a key counts. It is appended to, and rewritten (by rename) when half
//! of it is out of date, without holding its values in memory. A crash leaves the old or the new file, at worst with its last line torn,
//! which is dropped. No fsync: what is lost with the power is asked for again.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, BufWriter, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Serialize, de::DeserializeOwned, de::IgnoredAny};

/// Bytes that may be out of date before a rewrite is worth it.
const SLACK: u64 = 1 << 20;

/// The file. `K` is what a value is known by.
pub(super) struct Saved<K> {
    path: PathBuf,
    file: File,
    /// Bytes now, and after the last rewrite.
    size: u64,
    rewritten: u64,
    /// What some line said is not known.
    is_damaged: bool,
    key: PhantomData<K>,
}

impl<K: Serialize + DeserializeOwned + Ord> Saved<K> {
    /// Opens or makes the file and reads what is there. Lines that cannot be read are dropped, from the file as well, and said.
    ///
    /// # Errors
    /// The file cannot be read or made.
    pub(super) fn open<V: Serialize + DeserializeOwned>(path: &Path) -> Result<(Self, BTreeMap<K, V>)> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let file = append(path)?;
        let mut values = BTreeMap::new();
        let (mut damaged, mut size, mut torn) = (0, 0, false);
        lines(path, |line, is_whole| {
            match serde_json::from_slice::<(K, Option<V>)>(line) {
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
        let mut saved = Self { path: path.to_owned(), file, size, rewritten: 0, is_damaged, key: PhantomData };
        if is_damaged || torn {
            tracing::warn!(file = %path.display(), lines = damaged, torn, "dropped what cannot be read of the last known state");
        }
        if is_damaged && let Err(error) = saved.begin_anew(&values) {
            tracing::warn!(
                error = format!("{error:#}"),
                "what cannot be read stays in the file: the next start says it again"
            );
        }
        Ok((saved, values))
    }

    /// Whether lines could not be read when it was opened, so that nobody knows what they said.
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
        if self.size > 2 * self.rewritten + SLACK
            && let Err(error) = self.rewrite()
        {
            tracing::warn!(
                error = format!("{error:#}"),
                "the last known state is kept, but takes more room than it needs"
            );
            self.rewritten = self.size;
        }
        Ok(())
    }

    /// Leaves each key's last line only.
    fn rewrite(&mut self) -> Result<()> {
        let path = self.path.clone();
        self.replace(|new| Self::write_last(&path, new))
    }

    /// Leaves nothing but these.
    fn begin_anew<V: Serialize>(&mut self, values: &BTreeMap<K, V>) -> Result<()> {
        let written = |new: &Path| -> Result<u64> {
            let mut text = Vec::new();
            for (key, value) in values {
                serde_json::to_writer(&mut text, &(key, Some(value)))?;
                text.push(b'\n');
            }
            fs::write(new, &text).with_context(|| format!("cannot write {}", new.display()))?;
            Ok(text.len() as u64)
        };
        self.replace(written)
    }

    /// Puts the file that `write` writes, which gives its size, in the place of this one.
    fn replace(&mut self, write: impl FnOnce(&Path) -> Result<u64>) -> Result<()> {
        let new = self.path.with_extension("new");
        let written = write(&new).and_then(|size| {
            fs::rename(&new, &self.path).with_context(|| format!("cannot replace {}", self.path.display()))?;
            Ok(size)
        });
        let size = written.inspect_err(|_| {
            // What of it there is fills a disk that may be full already. One that stays is overwritten by the next.
            let _ = fs::remove_file(&new);
        })?;
        self.file = append(&self.path)?;
        (self.size, self.rewritten) = (size, size);
        Ok(())
    }

    /// As if the disk were full, or were not any more.
    #[cfg(test)]
    pub(super) fn refuse(&mut self, refuse: bool) {
        self.file = if refuse { File::open(&self.path).unwrap() } else { append(&self.path).unwrap() };
    }

    /// Writes each key's last line; the size, bytes.
    fn write_last(path: &Path, new: &Path) -> Result<u64> {
        let mut last: BTreeMap<K, usize> = BTreeMap::new();
        let mut at = 0;
        lines(path, |line, _| {
            if let Ok((key, value)) = serde_json::from_slice::<(K, Option<IgnoredAny>)>(line) {
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
        lines(path, |line, _| {
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

fn append(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("cannot open {}", path.display()))
}

/// Calls `each` with every line, and whether it is a whole one.
fn lines(path: &Path, mut each: impl FnMut(&[u8], bool) -> Result<()>) -> Result<()> {
    let failed = || format!("cannot read {}", path.display());
    let mut file = BufReader::new(File::open(path).with_context(failed)?);
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
        Saved::open(path).unwrap()
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
    fn what_cannot_be_read_is_gone_from_the_file_after_one_start() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        // No line, no key, and a value of another kind.
        fs::write(&path, b"[\"a\",[1]]\n[\"b\",[2]\n[3,[3]]\n[\"c\",{}]\n").unwrap();
        let (saved, values) = open(&path);
        assert!(saved.is_damaged());
        assert_eq!(fs::read(&path).unwrap(), b"[\"a\",[1]]\n");
        let (saved, again) = open(&path);
        assert_eq!((saved.is_damaged(), again), (false, values));
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
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(open(&path).1["a"], value);
    }

    #[test]
    fn it_does_not_grow_without_bound() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        let (mut saved, _) = open(&path);
        for round in 0..400_u32 {
            saved.keep([(&"a".to_owned(), Some(&vec![round; 1000]))]).unwrap();
        }
        assert!(fs::metadata(&path).unwrap().len() < 2 * SLACK);
        assert_eq!(open(&path).1["a"][0], 399);
    }
}
