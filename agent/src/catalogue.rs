//! The catalogue's file: its lines, in the order in which the rows they name are written.
//!
//! Invariant: what [`CatalogueFile::append`] took is in the file whole, behind everything before it, and whoever opens it by its name finds it.
//! The file lies in the run folder, in memory as the maps: neither outlives the machine.

use std::{
    borrow::Borrow,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use osmia_maps::catalogue::{self, Catalogue, Index, Line};

use crate::appended::{Appended, Part};

/// The open file.
#[derive(Debug)]
pub struct CatalogueFile {
    path: PathBuf,
    file: Appended,
}

impl CatalogueFile {
    /// Opens what an earlier agent of this boot left, replaced by the shortest file that says the same; an empty one where there is none.
    ///
    /// # Errors
    /// The run folder cannot be read or written. What is there stays.
    pub fn open(run: &Path) -> Result<Self> {
        let path = catalogue::path(run);
        let opened = Appended::open(&path).and_then(|mut file| file.shorten_now(shortest).map(|()| file));
        let file = opened.with_context(|| format!("cannot use {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// What its whole lines add up to.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self) -> io::Result<Catalogue> {
        read(self.file.whole())
    }

    /// Adds lines, all or none.
    ///
    /// # Errors
    /// The file system refused; no row that they name may be written then.
    pub fn append<L: Borrow<Line>>(&mut self, lines: impl IntoIterator<Item = L>) -> io::Result<()> {
        self.stay()?;
        self.file.append(|out| lines.into_iter().try_for_each(|line| put(out, line.borrow())))
    }

    /// Replaces it by the shortest file that says the same, where most of it is history: a call begins with that, a later one ends it.
    ///
    /// # Errors
    /// It cannot be read or written; it stays as it is.
    pub fn shorten(&mut self) -> io::Result<()> {
        self.file.shorten(lines_that_count).map(drop)
    }

    /// Its name leads to another file, or nowhere: somebody removed it. It is written again, so that nothing loses its number.
    fn stay(&mut self) -> io::Result<()> {
        if self.file.has_its_name()? {
            return Ok(());
        }
        tracing::warn!(path = %self.path.display(), "somebody removed the catalogue: written again");
        self.file.shorten_now(lines_that_count)
    }

    /// As if the disk were full, or were not any more.
    #[cfg(test)]
    pub(crate) fn refuse(&mut self, refuse: bool) {
        self.file.refuse(refuse);
    }
}

/// What an earlier agent left, up to what cannot be read.
fn shortest(whole: Part, out: &mut dyn Write) -> io::Result<()> {
    read(whole)?.lines().try_for_each(|line| put(out, &line))
}

/// What this one wrote: its lines are whole, and hundreds of megabytes where policies are many. Of them no more is in memory than their places.
fn lines_that_count(whole: Part, out: &mut dyn Write) -> io::Result<()> {
    let length = whole.len() as u64;
    Index::of(whole.into_file()?, length)?.write_shortest(out)
}

fn read(mut part: Part) -> io::Result<Catalogue> {
    let mut text = Vec::with_capacity(part.len());
    part.read_to_end(&mut text)?;
    Ok(Catalogue::of(&text))
}

fn put(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use std::fs;

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
    fn a_long_file_becomes_one_that_says_the_same() {
        let run = TempDir::new().unwrap();
        let mut file = CatalogueFile::open(run.path()).unwrap();
        let mut count = 0;
        while !file.file.is_shortening() {
            count += 1;
            file.append(&[generation(count), in_force(count)]).unwrap();
            file.shorten().unwrap();
        }
        file.append(&[generation(count + 1)]).unwrap();
        let before = read(&run);
        file.file.wait();
        file.shorten().unwrap();
        let length = fs::metadata(catalogue::path(run.path())).unwrap().len();
        assert!(length < 1000 && !file.file.is_shortening(), "{length}");
        assert_eq!(read(&run), before);
        file.append(&[generation(count + 2)]).unwrap();
        assert_eq!(read(&run).generation, count + 2);
    }
}
