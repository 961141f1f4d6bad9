//! One agent a folder: whoever shares state, socket or pins with another would undo what that one does.
//!
//! The lock is on the folder itself, since a bpffs holds no plain files. It goes with the process, however it ends.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock, major, minor};
use tokio::time;

const POLL: Duration = Duration::from_millis(20);

/// Takes all of these folders for this process until the files are dropped; one that is named twice is taken once.
///
/// # Errors
/// See [`lock`].
pub(super) async fn lock_all<'a>(
    folders: impl IntoIterator<Item = (&'a str, &'a Path)>,
    patience: Duration,
) -> Result<Vec<File>> {
    let mut taken: Vec<File> = Vec::new();
    for (flag, folder) in folders {
        let id = |about: fs::Metadata| (about.dev(), about.ino());
        let here = id(fs::metadata(folder).with_context(|| format!("cannot look at {}", folder.display()))?);
        if taken.iter().filter_map(|file| file.metadata().ok()).all(|about| id(about) != here) {
            taken.push(lock(flag, folder, patience).await?);
        }
    }
    Ok(taken)
}

/// Takes a folder for this process until the file is dropped; an agent that was killed may take a moment to be gone.
///
/// # Errors
/// Another one has it after `patience`; says which, where that can be seen.
async fn lock(flag: &str, folder: &Path, patience: Duration) -> Result<File> {
    let file = File::open(folder).with_context(|| format!("cannot open {}", folder.display()))?;
    let until = time::Instant::now() + patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if time::Instant::now() < until => time::sleep(POLL).await,
            Err(rustix::io::Errno::WOULDBLOCK) => {
                // The list is read in pieces while others change it: a line may be missed.
                let owner = (0..5)
                    .find_map(|_| owner(&file))
                    .unwrap_or_else(|| "a process that cannot be seen from here".to_owned());
                bail!("another osmia-agent uses {flag} {}: {owner}", folder.display());
            }
            Err(error) => return Err(error).with_context(|| format!("cannot lock {}", folder.display())),
        }
    }
}

/// Number and command line of the process that holds the lock.
fn owner(file: &File) -> Option<String> {
    let about = file.metadata().ok()?;
    let (device, inode) = (about.dev(), about.ino());
    // proc_pid_locks(5): "1: FLOCK ADVISORY WRITE 123 fe:00:4711 0 EOF".
    let place = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            [_, "FLOCK", _, _, pid, at, ..] if at == place => pid.parse::<u32>().ok(),
            _ => None,
        }
    })?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<_> = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    let words: Vec<_> = words.into_iter().map(String::from_utf8_lossy).collect();
    Some(format!("process {pid} ({})", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_folder_has_one_owner_and_the_other_is_told_which() {
        let folder = tempfile::tempdir().unwrap();
        let patience = Duration::from_millis(50);
        let first = lock("--state", folder.path(), patience).await.unwrap();
        let error = lock("--state", folder.path(), patience).await.unwrap_err().to_string();
        let path = folder.path().display().to_string();
        for part in ["another osmia-agent uses --state", &path, &format!("process {} (", std::process::id())] {
            assert!(error.contains(part), "{error}");
        }
        drop(first);
        lock("--state", folder.path(), patience).await.unwrap();
    }

    #[tokio::test]
    async fn one_folder_may_serve_for_two_things() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folders = [("--state", folder.path()), ("--run", folder.path()), ("--bpffs", other.path())];
        assert_eq!(lock_all(folders, Duration::from_millis(50)).await.unwrap().len(), 2);
    }
}
