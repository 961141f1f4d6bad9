//! What the kernel says of a pin: kind, sizes and memory of a map; the program and the device of a link.

use std::{
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _},
};

use aya::{maps::MapType, util::KernelVersion};
use rustix::fd::BorrowedFd;

use crate::{Access, LayoutError, MapError, Pins, sys, table};

/// A map as the kernel describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Number of the map, as `bpftool map` shows it.
    pub id: u32,
    /// Kind, as `bpftool map` names it.
    pub kind: &'static str,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Rows it takes.
    pub max: u32,
    /// Bytes of kernel memory; `None` where the kernel does not tell.
    pub memory: Option<u64>,
    /// A full one makes room by itself.
    pub evicts: bool,
}

impl Facts {
    /// Of a map by name.
    ///
    /// # Errors
    /// It is missing or not to be opened.
    pub fn of(pins: &Pins, name: &str) -> Result<Self, MapError> {
        let path = pins.map(name);
        let map = table::open(&path, Access::ReadOnly)?;
        let info = table::info(&map, &path)?;
        // A kind this aya does not know is none of ours.
        let map_type = info.map_type().unwrap_or(MapType::Unspecified);
        Ok(Self {
            id: info.id(),
            kind: kind(map_type),
            key_size: info.key_size(),
            value_size: info.value_size(),
            max: info.max_entries(),
            memory: memory(map.fd().as_fd()),
            evicts: matches!(map_type, MapType::LruHash | MapType::LruPerCpuHash),
        })
    }
}

fn kind(map_type: MapType) -> &'static str {
    match map_type {
        MapType::Array => "array",
        MapType::PerCpuArray => "percpu_array",
        MapType::Hash => "hash",
        MapType::LruHash => "lru_hash",
        MapType::PerCpuHash => "percpu_hash",
        MapType::LruPerCpuHash => "lru_percpu_hash",
        MapType::LpmTrie => "lpm_trie",
        MapType::ProgramArray => "prog_array",
        MapType::RingBuf => "ringbuf",
        _ => "other",
    }
}

/// `memlock` of the descriptor's fdinfo: real use since 6.4, an estimate before.
fn memory(map: BorrowedFd<'_>) -> Option<u64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
}

/// A pinned link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PinnedLink {
    /// Program it was pinned for.
    pub program: String,
    /// Device it was pinned for.
    pub ifindex: u32,
    /// What the kernel says: `None` if it cannot be asked.
    pub state: Option<LinkState>,
}

/// Whether a link works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// Attached, with this program number.
    Attached(u32),
    /// The device is gone; packets no longer pass.
    Detached,
}

/// Whether this kernel has tcx links (6.6). Without them programs are filters of a clsact qdisc, which leave no pins.
#[must_use]
pub fn has_tcx() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0))
}

impl Pins {
    /// The pinned links by program and device. Empty where nothing is pinned; also on kernels before 6.6, whose filters leave no pins.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn pinned_links(&self) -> Result<Vec<PinnedLink>, LayoutError> {
        let folder = self.links();
        let wrap = |source| LayoutError::Io { root: folder.clone(), source };
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(wrap(error)),
        };
        let mut links = Vec::new();
        for entry in entries {
            let name = entry.map_err(wrap)?.file_name();
            let Some((program, ifindex)) = name.to_str().and_then(Self::link_of) else { continue };
            let state = sys::pinned_link_info(&self.link(program, ifindex)).ok().map(|info| match info.ifindex {
                0 => LinkState::Detached,
                _ => LinkState::Attached(info.program),
            });
            links.push(PinnedLink { program: program.to_owned(), ifindex, state });
        }
        links.sort_by(|a, b| (a.ifindex, &a.program).cmp(&(b.ifindex, &b.program)));
        Ok(links)
    }
}
