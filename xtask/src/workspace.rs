//! The checkout, its pins, and cargo as everything but xtask itself is built with: of the pinned toolchain, in an environment
//! without the traces of the cargo that started xtask.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use osmia_ebpf_build::Pin;

/// A checkout of the repository.
pub(crate) struct Workspace {
    /// Folder of the root manifest.
    pub(crate) root: PathBuf,
    /// Versions that belong together.
    pub(crate) pin: Pin,
}

impl Workspace {
    /// The checkout that this xtask was built from.
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let root = root.canonicalize().with_context(|| format!("{} is gone: build xtask anew", root.display()))?;
        let pin = Pin::read(&root)?;
        Ok(Self { root, pin })
    }

    /// cargo's target folder.
    pub(crate) fn target(&self) -> PathBuf {
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.root.join("target"), |dir| self.root.join(dir))
    }

    /// `cargo <verb>` of the pin, in the root folder.
    pub(crate) fn cargo(&self, verb: &str) -> Command {
        let mut cargo = self.pinned("cargo");
        cargo.arg(verb);
        cargo
    }

    /// A tool of the pinned toolchain.
    pub(crate) fn pinned(&self, tool: &str) -> Command {
        let mut command = clean("rustup");
        command.args(["run", &self.pin.toolchain, tool]).current_dir(&self.root);
        command
    }
}

/// A command without what the `cargo run` that started xtask left in the environment: it names the outer toolchain and its
/// libraries, which a cargo of another version must not see.
pub(crate) fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let outer = name.to_str().is_some_and(|n| {
            n.starts_with("CARGO_PKG_")
                || n.starts_with("CARGO_MANIFEST_")
                || ["CARGO", "RUSTUP_TOOLCHAIN", "RUST_RECURSION_COUNT", "LD_LIBRARY_PATH"].contains(&n)
        });
        if outer {
            command.env_remove(name);
        }
    }
    // A missing toolchain is set-up's business, with its own message; never a download in the middle of a build.
    command.env("RUSTUP_AUTO_INSTALL", "0");
    command
}
