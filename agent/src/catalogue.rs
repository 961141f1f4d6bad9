//! The catalogue's file: its lines, in the order in which the rows they name are written.
//!
//! Invariant: what [`CatalogueFile::append`] took is in the file whole, behind everything before it, and whoever opens it by its name finds it;
//! after a refusal the next lines take the place of what was torn. The file lies in the run folder, in memory as the maps: nothing is synced, since neither outlives the machine.

use std::{
    borrow::Borrow,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use osmia_maps::catalogue::{self, Catalogue, Line};

/// Bytes of lines that are written at a time.
const PIECE: usize = 1 << 20;
/// A file shorter than this is never worth a shorter one, bytes.
const SHORT: u64 = 1 << 20;

/// The open file.
#[derive(Debug)]
pub struct CatalogueFile {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    /// Bytes it had when it said nothing twice.
    shortest: u64,
    /// Whether something may stand behind the whole lines.
    torn: bool,
}

impl CatalogueFile {
    /// Opens what an earlier agent of this boot left, replaced by the shortest file that says the same; an empty one where there is none.
    ///
    /// # Errors
    /// The run folder cannot be read or written. What is there stays.
    pub fn open(run: &Path) -> Result<Self> {
        let path = catalogue::path(run);
        let what = || format!("cannot use {}", path.display());
        let before = match Catalogue::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Catalogue::default(),
            read => read.with_context(what)?,
        };
        let (file, length) = write_anew(&path, &before.lines()).with_context(what)?;
        Ok(Self { path, file, length, shortest: length, torn: false })
    }

    /// What its whole lines add up to.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&mut self) -> io::Result<Catalogue> {
        self.mend()?;
        self.whole()
    }

    /// Adds lines, all or none.
    ///
    /// # Errors
    /// The file system refused; no row that they name may be written then.
    pub fn append<L: Borrow<Line>>(&mut self, lines: impl IntoIterator<Item = L>) -> io::Result<()> {
        self.mend()?;
        self.stay()?;
        self.torn = true;
        let (mut bytes, mut length) = (Vec::new(), self.length);
        for line in lines {
            put(&mut bytes, line.borrow())?;
            if bytes.len() >= PIECE {
                self.file.write_all_at(&bytes, length)?;
                length += bytes.len() as u64;
                bytes.clear();
            }
        }
        self.file.write_all_at(&bytes, length)?;
        self.torn = false;
        self.length = length + bytes.len() as u64;
        Ok(())
    }

    /// Whether most of it is history.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.length > SHORT.max(4 * self.shortest)
    }

    /// Replaces it by the shortest file that says the same.
    ///
    /// # Errors
    /// It cannot be read or written; it stays as it is.
    pub fn shorten(&mut self) -> io::Result<()> {
        let lines = self.whole()?.lines();
        let (file, length) = write_anew(&self.path, &lines)?;
        (self.file, self.length, self.shortest, self.torn) = (file, length, length, false);
        Ok(())
    }

    /// What the open file says, whatever became of its name.
    fn whole(&self) -> io::Result<Catalogue> {
        let mut text = vec![0; usize::try_from(self.length).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut text, 0)?;
        Ok(Catalogue::of(&text))
    }

    /// Its name leads to another file, or nowhere: somebody removed it. It is written again, so that nothing loses its number.
    fn stay(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
        tracing::warn!(path = %self.path.display(), "somebody removed the catalogue: written again");
        self.shorten()
    }

    /// As if the disk were full, or were not any more.
    #[cfg(test)]
    pub(crate) fn refuse(&mut self, refuse: bool) -> io::Result<()> {
        self.file = OpenOptions::new().read(true).write(!refuse).open(&self.path)?;
        Ok(())
    }

    fn mend(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.length)?;
            self.torn = false;
        }
        Ok(())
    }
}

/// Whoever reads meanwhile sees the old file or the new one.
fn write_anew(path: &Path, lines: &[Line]) -> io::Result<(File, u64)> {
    let bytes = text(lines)?;
    let beside = path.with_extension("new");
    let written = || -> io::Result<(File, u64)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&beside)?;
        file.write_all(&bytes)?;
        fs::rename(&beside, path)?;
        Ok((file, bytes.len() as u64))
    };
    written().inspect_err(|_| {
        // What of it there is fills a disk that may be full already. One that stays is overwritten by the next.
        let _ = fs::remove_file(&beside);
    })
}

fn text(lines: &[Line]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    lines.iter().try_for_each(|line| put(&mut bytes, line))?;
    Ok(bytes)
}

fn put(bytes: &mut Vec<u8>, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *bytes, line)?;
    bytes.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use osmia_maps::catalogue::{Last, PolicyName};
    use tempfile::TempDir;

    use super::*;

    fn generation(generation: u64) -> Line {
        Line::Generation { generation, last: Last { cookie: 7, ..Last::default() } }
    }

    fn in_force(generation: u64) -> Line {
        let policies = vec![PolicyName { namespace: "a".into(), name: "p".into(), uid: String::new() }];
        Line::InForce { generation, at_ms: generation, took_us: 1, policies }
    }

    fn read(run: &TempDir) -> Catalogue {
        Catalogue::read(&catalogue::path(run.path())).unwrap()
    }

    #[test]
    fn what_was_appended_is_there_at_the_next_start() {
        let run = TempDir::new().unwrap();
        let mut file = CatalogueFile::open(run.path()).unwrap();
        assert_eq!(file.read().unwrap(), Catalogue::default());
        file.append(&[generation(1), in_force(1)]).unwrap();
        file.append(&[generation(2)]).unwrap();
        let mut file = CatalogueFile::open(run.path()).unwrap();
        let before = file.read().unwrap();
        assert_eq!((before.generation, before.policies.len()), (2, 1));
        file.append(&[generation(3)]).unwrap();
        assert_eq!(read(&run), Catalogue { generation: 3, ..before });
    }

    #[test]
    fn lines_follow_what_is_whole_and_never_what_was_torn() {
        let run = TempDir::new().unwrap();
        let mut file = CatalogueFile::open(run.path()).unwrap();
        file.append(&[generation(1)]).unwrap();
        // A disk that was full in the midst of many lines.
        let lines = text(&(4..9).map(generation).collect::<Vec<_>>()).unwrap();
        file.file.write_all_at(&lines, file.length).unwrap();
        file.torn = true;
        file.append(&[generation(2)]).unwrap();
        file.append(&[generation(3)]).unwrap();
        assert_eq!(read(&run).generation, 3);
    }

    #[test]
    fn what_somebody_removes_is_there_again_with_the_next_line() {
        let run = TempDir::new().unwrap();
        let path = catalogue::path(run.path());
        let mut file = CatalogueFile::open(run.path()).unwrap();
        file.append(&[generation(1), in_force(1)]).unwrap();
        let before = read(&run);
        fs::remove_file(&path).unwrap();
        assert_eq!(file.read().unwrap(), before, "nothing is forgotten");
        file.append(&[generation(2)]).unwrap();
        assert_eq!(read(&run), Catalogue { generation: 2, ..before.clone() });
        // Another one in its place.
        fs::write(run.path().join("other"), "").unwrap();
        fs::rename(run.path().join("other"), &path).unwrap();
        file.append(&[generation(3)]).unwrap();
        assert_eq!(read(&run), Catalogue { generation: 3, ..before });
    }

    #[test]
    fn what_cannot_take_the_files_place_does_not_stay_beside_it() {
        let run = TempDir::new().unwrap();
        let path = run.path().join("catalogue");
        fs::create_dir(&path).unwrap();
        assert!(write_anew(&path, &[generation(1)]).is_err());
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_long_file_becomes_one_that_says_the_same() {
        let run = TempDir::new().unwrap();
        let mut file = CatalogueFile::open(run.path()).unwrap();
        let mut count = 0;
        while !file.is_long() {
            count += 1;
            file.append(&[generation(count), in_force(count)]).unwrap();
        }
        let before = read(&run);
        file.shorten().unwrap();
        assert!(file.length < 1000 && !file.is_long(), "{}", file.length);
        assert_eq!(read(&run), before);
        file.append(&[generation(count + 1)]).unwrap();
        assert_eq!(read(&run).generation, count + 1);
    }
}
