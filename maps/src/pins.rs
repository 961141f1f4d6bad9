//! Pin paths. `<root>/<layout>/<map>`, `<root>/<layout>/progs-<start>`, `<root>/<layout>/links/<link>`; the root is `/sys/fs/bpf/osmia` unless a setting says otherwise.

use std::path::{Path, PathBuf};

use osmia_ebpf::layout::{LAYOUT, maps::PROGS};

/// Root of the pins unless told otherwise.
pub const DEFAULT_ROOT: &str = "/sys/fs/bpf/osmia";

/// The pins of one layout below one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    root: PathBuf,
    layout: u32,
}

impl Pins {
    /// The pins of this build's layout.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::of_layout(root, LAYOUT)
    }

    /// The pins of another layout, to migrate from or to name.
    #[must_use]
    pub fn of_layout(root: impl Into<PathBuf>, layout: u32) -> Self {
        Self { root: root.into(), layout }
    }

    /// The root, common to all layouts.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The layout's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.root.join(self.layout.to_string())
    }

    /// Pin of a map by its name in [`osmia_ebpf::layout::maps`].
    #[must_use]
    pub fn map(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Pin of the jump table that the programs of one start of the agent call through; `start` is CLOCK_MONOTONIC in ns. Each start
    /// has its own: programs that are not replaced yet go on with theirs.
    #[must_use]
    pub fn progs(&self, start: u64) -> PathBuf {
        self.folder().join(format!("{PROGS}-{start:016x}"))
    }

    /// The start that a file in [`Self::folder`] is the jump table of.
    #[must_use]
    pub fn progs_start(file_name: &str) -> Option<u64> {
        let hex = file_name.strip_prefix(PROGS)?.strip_prefix('-')?;
        u64::from_str_radix(hex, 16).ok()
    }

    /// Folder of the pinned links.
    #[must_use]
    pub fn links(&self) -> PathBuf {
        self.folder().join("links")
    }

    /// Pin of the link of one of our programs on one device.
    #[must_use]
    pub fn link(&self, program: &str, ifindex: u32) -> PathBuf {
        self.links().join(format!("{program}-{ifindex}"))
    }

    /// The program and the ifindex that a file in [`Self::links`] is named after.
    #[must_use]
    pub fn link_of(file_name: &str) -> Option<(&str, u32)> {
        let (program, ifindex) = file_name.rsplit_once('-')?;
        Some((program, ifindex.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_name(path: &Path) -> &str {
        path.file_name().unwrap().to_str().unwrap()
    }

    #[test]
    fn a_pin_tells_what_it_was_made_for() {
        let pins = Pins::of_layout("/sys/fs/bpf/osmia", 7);
        assert_eq!(pins.map("routes").to_str(), Some("/sys/fs/bpf/osmia/7/routes"));
        assert_eq!(Pins::link_of(file_name(&pins.link("osm_from_pod", 12))), Some(("osm_from_pod", 12)));
        assert_eq!(Pins::progs_start(file_name(&pins.progs(0xabc))), Some(0xabc));
        assert_eq!(Pins::progs_start("progs"), None);
        assert_eq!(Pins::link_of("osm_from_pod"), None);
    }
}
