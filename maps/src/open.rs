//! Whether what is pinned may be read: the file system, the folder's number and the meta row must all say so.

use std::{fs, io, path::Path};

use osmia_ebpf::layout::{LAYOUT, Meta, meta};

use crate::{Access, LayoutError, Pins, tables};

/// `BPF_FS_MAGIC`, linux/magic.h.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Whether a path is on a bpffs.
///
/// # Errors
/// The path cannot be looked at.
pub fn is_bpffs(path: &Path) -> io::Result<bool> {
    // The field's type differs by architecture; the magic fits all of them.
    Ok(rustix::fs::statfs(path)?.f_type as u64 == BPF_FS_MAGIC)
}

/// Layouts that have a folder below the root, ascending; empty also where the root is missing.
///
/// # Errors
/// The root cannot be listed.
pub fn layouts(root: &Path) -> Result<Vec<u32>, LayoutError> {
    let wrap = |source| LayoutError::Io { root: root.to_owned(), source };
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrap(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(wrap)?.file_name();
        found.extend(name.to_str().and_then(|n| n.parse::<u32>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

impl Pins {
    /// Reads the meta row and refuses what is not of this build's layout. Whoever decodes anything calls this first.
    ///
    /// # Errors
    /// See [`LayoutError`].
    pub fn check(&self) -> Result<Meta, LayoutError> {
        let root = self.root();
        let found = layouts(root)?;
        if !found.contains(&LAYOUT) {
            // Of a root that is missing its parent tells whether a bpffs is there at all.
            let there = if root.exists() { root } else { root.parent().unwrap_or(root) };
            let io = |source| LayoutError::Io { root: there.to_owned(), source };
            return Err(match found.is_empty() {
                true if !is_bpffs(there).map_err(io)? => LayoutError::NotBpffs { root: root.to_owned() },
                true => LayoutError::Nothing { root: root.to_owned() },
                false => LayoutError::Other { root: root.to_owned(), found, expected: LAYOUT },
            });
        }
        // Ours is not filled yet, or already given up, and another is in force.
        let others: Vec<u32> = found.into_iter().filter(|&layout| layout != LAYOUT).collect();
        let in_force = |layout: u32| {
            let row = tables::META.open_foreign(&Self::of_layout(root, layout)).and_then(|table| table.get(&0));
            row.is_ok_and(|row| row.is_some_and(|row| row.magic == meta::MAGIC))
        };
        if !in_force(LAYOUT) && others.iter().any(|&layout| in_force(layout)) {
            return Err(LayoutError::Other { root: root.to_owned(), found: others, expected: LAYOUT });
        }
        let row = tables::META.open(self, Access::ReadOnly)?.get(&0)?.unwrap_or(Meta {
            magic: [0; 8],
            layout: 0,
            ..Default::default()
        });
        if row.magic != meta::MAGIC || row.layout != LAYOUT {
            let says = match row.magic {
                meta::MAGIC => format!("layout {}", row.layout),
                [0, 0, 0, 0, 0, 0, 0, 0] => "nothing yet (an agent's first start was cut short)".to_owned(),
                other => format!("{:?}", String::from_utf8_lossy(&other)),
            };
            return Err(LayoutError::Meta { folder: self.folder(), says, expected: LAYOUT });
        }
        Ok(row)
    }
}
