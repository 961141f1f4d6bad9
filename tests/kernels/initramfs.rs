//! The guest's first and only file system: a cpio archive in the format "newc" (kernel, Documentation/driver-api/early-userspace).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive that is being written. Folders come before what is in them.
#[derive(Debug)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    /// An archive with the mount points and the console that process 1 expects.
    pub(crate) fn new() -> Self {
        let mut archive = Self { bytes: Vec::new(), entries: 0, folders: BTreeSet::new() };
        for folder in ["dev", "proc", "sys", "modules", "objects"] {
            archive.folder(folder);
        }
        // Without it process 1 starts with no standard output.
        archive.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
        archive
    }

    /// Adds an executable file, and the folders that lead to it where they are not there yet.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) {
        for (end, _) in name.match_indices('/') {
            self.folder(&name[..end]);
        }
        self.entry(name, FILE, (0, 0), content);
    }

    /// Adds a copy of a file on disk.
    pub(crate) fn copy(&mut self, name: &str, source: &Path) -> Result<()> {
        let content = fs::read(source).with_context(|| format!("read {}", source.display()))?;
        self.file(name, &content);
        Ok(())
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn folder(&mut self, name: &str) {
        if self.folders.insert(name.to_owned()) {
            self.entry(name, DIRECTORY, (0, 0), &[]);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("newc holds files below 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("a short name");
        // inode, mode, uid, gid, links, mtime, size, device of the file (2), device it stands for (2), length of the name, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
