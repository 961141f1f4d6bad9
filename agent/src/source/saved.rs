//! What a source said last, on disk: a restart that cannot ask again comes up from it.
//!
//! Invariant: a file of lines `[key, value or null]`, the last line of a key counts. It is replaced by a shorter one when half of it is out of
//! date, without holding its values in memory. A crash leaves at worst its last line torn, which is dropped; other lines that cannot be read
//! stay until it is replaced. What is appended is synced where that is asked for, behind who asks: the power can take the rest.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead, BufReader, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::appended::{Appended, Part};

/// The file. `K` is what a value is known by.
pub(super) struct Saved<K> {
    path: PathBuf,
    file: Appended,
    /// Lines of it cannot be read.
    is_damaged: bool,
    key: PhantomData<K>,
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
        let failed = || format!("cannot use {}", path.display());
        let mut file = Appended::open(path).with_context(failed)?;
        let mut values = BTreeMap::new();
        let (mut damaged, mut size, mut torn) = (0, 0, false);
        lines(file.whole(), |line, is_whole| {
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
        })
        .with_context(failed)?;
        // What is torn would take the next line with it.
        file.cut(size).with_context(failed)?;
        let is_damaged = damaged > 0;
        if is_damaged {
            file.make_worth_it();
        }
        if is_damaged || torn {
            tracing::warn!(file = %path.display(), lines = damaged, torn, "lines of the last known state cannot be read");
        }
        Ok((Self { path: path.to_owned(), file, is_damaged, key: PhantomData }, values))
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
        let lines = |out: &mut dyn Write| {
            values.into_iter().try_for_each(|value| {
                serde_json::to_writer(&mut *out, &value)?;
                out.write_all(b"\n")
            })
        };
        self.file.append(lines).with_context(|| format!("cannot write {}", self.path.display()))?;
        match self.file.shorten(last::<K>) {
            Ok(replaced) => self.is_damaged &= !replaced,
            Err(error) => tracing::warn!(
                path = %self.path.display(),
                %error,
                "the last known state is kept, but takes more room than it needs"
            ),
        }
        Ok(())
    }

    /// Takes away what cannot be read, at once. Whoever lives by what is there has said before what that means; so has who keeps anything in a
    /// file that is damaged still, since the next shorter one is without it too.
    ///
    /// # Errors
    /// The file cannot be written; what was there stays.
    pub(super) fn mend(&mut self) -> Result<()> {
        if self.is_damaged {
            self.file.shorten_now(last::<K>).with_context(|| format!("cannot replace {}", self.path.display()))?;
            self.is_damaged = false;
        }
        Ok(())
    }
}

impl<K> Saved<K> {
    /// What is kept by now is on the disk soon. Nobody waits for it.
    pub(super) fn sync_soon(&mut self) {
        self.file.sync_soon();
    }

    /// Whether a sync was asked for some time.
    #[cfg(test)]
    pub(super) fn is_synced(&self) -> bool {
        self.file.is_synced()
    }

    /// Leaves nothing. Needs no room on the disk.
    ///
    /// # Errors
    /// It cannot be written; what was there stays.
    pub(super) fn empty(&mut self) -> Result<()> {
        let emptied = self.file.empty().or_else(|error| {
            // The next start makes another; nobody keeps anything in this one any more.
            fs::remove_file(&self.path).map_err(|_| error)
        });
        emptied.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.is_damaged = false;
        Ok(())
    }

    /// As if the disk were full, or were not any more.
    #[cfg(test)]
    pub(super) fn refuse(&mut self, refuse: bool) {
        self.file.refuse(refuse);
    }
}

/// Writes each key's last line.
fn last<K: DeserializeOwned + Ord>(whole: Part, out: &mut dyn Write) -> io::Result<()> {
    let mut last: BTreeMap<K, usize> = BTreeMap::new();
    let mut at = 0;
    lines(whole.clone(), |line, _| {
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
    let mut at = 0;
    lines(whole, |line, _| {
        if wanted.next_if_eq(&at).is_some() {
            out.write_all(line)?;
            out.write_all(b"\n")?;
        }
        at += 1;
        Ok(())
    })
}

/// Of one line, without its end.
fn parse<K: DeserializeOwned>(line: &[u8]) -> serde_json::Result<(K, Option<Box<RawValue>>)> {
    serde_json::from_slice(line)
}

/// Calls `each` with every line, and whether it is a whole one.
fn lines(part: Part, mut each: impl FnMut(&[u8], bool) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufReader::new(part);
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 {
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
    fn a_damaged_file_without_room_for_another_is_not_tried_at_each_change() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, b"nonsense\n").unwrap();
        let (mut saved, _) = open(&path);
        let full = dir.path().join("file.new");
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        let mut keep = || {
            saved.keep([(&"a".to_owned(), Some(&vec![1; 1000]))]).unwrap();
            saved.file.wait();
            saved.is_damaged()
        };
        assert!(keep() && keep() && !full.is_symlink(), "it was tried");
        for _ in 0..100 {
            assert!(keep(), "there is room again, but what is not tried does not find it");
        }
        while keep() {}
        assert_eq!(open(&path).1, Values::from([("a".to_owned(), vec![1; 1000])]));
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
        let mut longest = 0;
        for round in 0..1000 {
            saved.keep([(&"a".to_owned(), Some(&vec![round; 1000]))]).unwrap();
            saved.file.wait();
            let length = fs::metadata(path).unwrap().len();
            if length < longest {
                return round;
            }
            longest = length;
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
        while !saved.file.is_shortening() {
            saved.keep([(&"a".to_owned(), Some(&vec![0; 1000]))]).unwrap();
        }
        saved.keep([(&names[0], Some(&vec![2])), (&names[1], None), (&names[2], Some(&vec![2]))]).unwrap();
        let last = keep_until_short(&mut saved, &path);
        let wanted = [("a", vec![last; 1000]), ("b", vec![2]), ("d", vec![2])];
        let wanted: Values = wanted.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!(open(&path).1, wanted);
    }
}
