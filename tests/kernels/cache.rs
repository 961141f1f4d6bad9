//! The kernels of the matrix and the folder in which they wait.
//!
//! Owns the layout of `<target>/kernels/<series>/`: `vmlinuz`, `release` (what `uname -r` says in the guest) and `modules/NN-name.ko`,
//! uncompressed, in the order in which they must be inserted. `osmia-kernel-fetch` writes a folder in one rename, so a folder that
//! exists is whole; the tests only read.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// What to run when a kernel is missing.
pub(crate) const FETCH_COMMAND: &str = "cargo run -p osmia-tests --bin osmia-kernel-fetch";

/// A kernel on disk, ready to boot.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// The compressed image.
    pub(crate) image: PathBuf,
    /// What `uname -r` says in it.
    pub(crate) release: String,
    /// Modules, in the order in which they must be inserted.
    pub(crate) modules: Vec<PathBuf>,
}

/// The folder that holds all kernels: `kernels` in the folder that `OSMIA_TARGET_DIR` names (set by xtask), else in cargo's
/// target folder.
pub(crate) fn folder() -> PathBuf {
    let target = env::var_os("OSMIA_TARGET_DIR").or_else(|| env::var_os("CARGO_TARGET_DIR"));
    target.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from).join("kernels")
}

impl Kernel {
    /// The kernel of `series` in `folder`; `None` if it was not fetched. An unreadable or incomplete one is an error.
    pub(crate) fn find(folder: &Path, series: &str) -> Result<Option<Self>> {
        let home = folder.join(series);
        if !home.exists() {
            return Ok(None);
        }
        let broken = || {
            format!("kernel {series} in {} is damaged: remove that folder and run `{FETCH_COMMAND}`", home.display())
        };
        let image = home.join("vmlinuz");
        let release = fs::read_to_string(home.join("release")).with_context(broken)?.trim().to_owned();
        let mut modules = fs::read_dir(home.join("modules"))
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>())
            .with_context(broken)?;
        modules.sort();
        if modules.is_empty() || !image.is_file() {
            bail!(broken());
        }
        Ok(Some(Self { image, release, modules }))
    }
}
