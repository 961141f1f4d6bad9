//! A file of lines that is appended to, and now and then replaced by a shorter one that says the same.
//!
//! Invariant: what [`Appended::append`] took is in the file whole, behind everything before it; what comes after a refusal takes the place of
//! what was torn. The shorter file is written by a thread, beside this one: a large cluster's has tens of megabytes, and whoever appends has
//! packets and pods that wait for him. It takes this one's name when its bytes are on disk, with all that was appended meanwhile, and open for
//! what comes next; or not at all. So a crash, of the machine too, leaves the old file or the new one.

mod behind;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
};

use behind::Behind;

/// Bytes that may be out of date before a shorter file is worth it; also, that are waited for after one could not be written.
pub(crate) const SLACK: u64 = 1 << 20;
/// Bytes that are written at a time.
const PIECE: usize = 64 << 10;

/// The open file.
#[derive(Debug)]
pub(crate) struct Appended {
    path: PathBuf,
    file: Arc<File>,
    /// Bytes of whole lines.
    length: u64,
    /// Something may stand behind the whole lines.
    torn: bool,
    /// A shorter file is worth it above so many bytes.
    enough: u64,
    /// The shorter file.
    shorter: Option<Shorter>,
    /// Who syncs what is appended, once that is asked for.
    behind: Option<Behind>,
}

/// A file that is being written.
#[derive(Debug)]
struct Shorter {
    /// How many bytes of the file it is made of: whole lines.
    of: u64,
    thread: JoinHandle<io::Result<File>>,
}

/// Some bytes of the file, whatever becomes of its name and of what is behind them.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Appended {
    /// Opens the file, or makes an empty one.
    ///
    /// # Errors
    /// It cannot be read and written.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        let length = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            length,
            torn: false,
            enough: SLACK,
            shorter: None,
            behind: None,
        })
    }

    /// Only so many bytes of it are whole lines.
    ///
    /// # Errors
    /// The rest cannot be taken away.
    pub(crate) fn cut(&mut self, length: u64) -> io::Result<()> {
        self.torn |= length < self.length;
        self.length = length;
        self.mend()
    }

    /// Its whole lines.
    pub(crate) fn whole(&self) -> Part {
        self.part(0)
    }

    fn part(&self, at: u64) -> Part {
        Part { file: Arc::clone(&self.file), at, end: self.length }
    }

    /// Whether its name leads to it, and not to another file or nowhere.
    ///
    /// # Errors
    /// Its folder cannot be looked at.
    pub(crate) fn has_its_name(&self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Appends the lines that `write` writes, all or none.
    ///
    /// # Errors
    /// They cannot be written. What of them may be in the file goes before anything else is appended.
    pub(crate) fn append(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        self.mend()?;
        self.torn = true;
        match written(&self.file, write) {
            Ok(length) => {
                self.length = length;
                self.torn = false;
                Ok(())
            }
            Err(error) => {
                // At once, since it takes room on a disk that may be full. If that fails too the next time comes to it.
                let _ = self.mend();
                Err(error)
            }
        }
    }

    /// What is in the file by now is on the disk soon. Nobody waits for it, but who closes the file.
    pub(crate) fn sync_soon(&mut self) {
        if self.behind.is_none() {
            match Behind::start(&self.path) {
                Ok(behind) => self.behind = Some(behind),
                Err(error) => {
                    tracing::error!(path = %self.path.display(), %error, "no thread syncs it: the power can take what is written last");
                }
            }
        }
        if let Some(behind) = &self.behind {
            behind.sync(&self.file);
        }
    }

    /// Takes away what is behind the whole lines: it would take the next one with it.
    fn mend(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.length)?;
            self.torn = false;
        }
        Ok(())
    }

    /// A shorter file is worth it, however long this one is.
    pub(crate) fn make_worth_it(&mut self) {
        self.enough = 0;
    }

    /// Puts the shorter file in the place of this one if it is written; if none is on its way and one is worth it, a thread begins with it:
    /// `write` is given what it is to be made of. Whether another file has the place now.
    ///
    /// # Errors
    /// It cannot be written; this one stays. Not tried again before it is longer by [`SLACK`].
    pub(crate) fn shorten(
        &mut self,
        write: impl FnOnce(Part, &mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> io::Result<bool> {
        match self.shorter.take() {
            Some(shorter) if shorter.thread.is_finished() => self.adopt(shorter).map(|()| true),
            None if self.length > self.enough => {
                self.shorter = Some(self.begin(write)?);
                Ok(false)
            }
            shorter => {
                self.shorter = shorter;
                Ok(false)
            }
        }
    }

    /// Puts a shorter file in the place of this one before it returns.
    ///
    /// # Errors
    /// It cannot be written; this one stays.
    pub(crate) fn shorten_now(
        &mut self,
        write: impl FnOnce(Part, &mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let shorter = match self.shorter.take() {
            Some(shorter) => shorter,
            None => self.begin(write)?,
        };
        self.adopt(shorter)
    }

    fn begin(
        &mut self,
        write: impl FnOnce(Part, &mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Shorter> {
        let (whole, new) = (self.whole(), self.beside());
        let write = move || {
            let shorter = || {
                File::create(&new)?;
                let file = open(&new)?;
                written(&file, |out| write(whole, out))?;
                // Else the name could lead to what never reached the disk, when the power goes.
                file.sync_data()?;
                Ok(file)
            };
            shorter().inspect_err(|_| remove(&new))
        };
        let thread = thread::Builder::new().name("shorten".into()).spawn(write);
        let thread = thread.inspect_err(|_| self.enough = self.length + SLACK)?;
        Ok(Shorter { of: self.length, thread })
    }

    fn adopt(&mut self, Shorter { of, thread }: Shorter) -> io::Result<()> {
        let new = self.beside();
        let file = thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that shortens it panicked")));
        let adopted = file.and_then(|file| {
            let length = file.metadata()?.len();
            let rest = io::copy(&mut self.part(of), &mut &file)?;
            fs::rename(&new, &self.path)?;
            Ok((file, length, rest))
        });
        let (file, length, rest) = adopted.inspect_err(|_| {
            remove(&new);
            self.enough = self.length + SLACK;
        })?;
        // What came meanwhile may be out of date already.
        self.enough = 2 * length + SLACK;
        (self.file, self.length, self.torn) = (Arc::new(file), length + rest, false);
        self.sync_name();
        Ok(())
    }

    /// Nobody waits for it: until then the name leads to the old file when the power goes.
    fn sync_name(&self) {
        let (path, file) = (self.path.clone(), Arc::clone(&self.file));
        let sync = move || {
            // What came meanwhile may be on the disk in the old file.
            if let Err(error) = file.sync_data().and_then(|()| sync_folder(&path)) {
                tracing::warn!(path = %path.display(), %error, "it cannot be synced with its folder");
            }
        };
        if let Err(error) = thread::Builder::new().name("sync".into()).spawn(sync) {
            tracing::warn!(path = %self.path.display(), %error, "no thread syncs its folder");
        }
    }

    /// Leaves nothing. Needs no room on the disk.
    ///
    /// # Errors
    /// It cannot be written; what was there stays.
    pub(crate) fn empty(&mut self) -> io::Result<()> {
        // It would bring back what is gone.
        self.discard();
        self.file.set_len(0)?;
        (self.length, self.torn, self.enough) = (0, false, SLACK);
        Ok(())
    }

    fn beside(&self) -> PathBuf {
        self.path.with_extension("new")
    }

    /// Waits for the shorter file that is being written, which nobody wants any more.
    fn discard(&mut self) {
        let Some(Shorter { thread, .. }) = self.shorter.take() else { return };
        // What the thread says is of no use any more.
        let _ = thread.join();
        remove(&self.beside());
    }

    /// As if the disk were full, or were not any more.
    #[cfg(test)]
    pub(crate) fn refuse(&mut self, refuse: bool) {
        self.file = Arc::new(if refuse { File::open(&self.path) } else { open(&self.path) }.unwrap());
    }

    /// Whether a sync was asked for some time.
    #[cfg(test)]
    pub(crate) fn is_synced(&self) -> bool {
        self.behind.is_some()
    }

    /// Whether a shorter file is on its way, or written.
    #[cfg(test)]
    pub(crate) fn is_shortening(&self) -> bool {
        self.shorter.is_some()
    }

    /// Waits until the shorter file, if one is on its way, is written.
    #[cfg(test)]
    pub(crate) fn wait(&self) {
        while self.shorter.as_ref().is_some_and(|shorter| !shorter.thread.is_finished()) {
            thread::yield_now();
        }
    }
}

impl Drop for Appended {
    fn drop(&mut self) {
        // Whoever opens the file next finds nobody who writes beside it.
        self.discard();
    }
}

impl Part {
    /// The file, of which this is the beginning.
    ///
    /// # Errors
    /// No more files may be open.
    pub(crate) fn into_file(self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Bytes that are not read yet.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.end - self.at).unwrap_or(usize::MAX)
    }
}

impl Read for Part {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.len().min(buffer.len());
        let read = self.file.read_at(buffer.get_mut(..left).unwrap_or_default(), self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).read(true).append(true).open(path)
}

/// Appends what `write` writes; how long the file is then.
fn written(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<u64> {
    let mut out = BufWriter::with_capacity(PIECE, file);
    write(&mut out)?;
    out.flush()?;
    Ok(file.metadata()?.len())
}

/// What is left of a shorter file fills a disk that may be full already. One that stays is overwritten by the next.
fn remove(new: &Path) {
    let _ = fs::remove_file(new);
}

/// Brings the name of a file to the disk.
///
/// # Errors
/// The disk is broken.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
