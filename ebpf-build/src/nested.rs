//! The nested cargo: one command line for build and lint of the BPF half.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Linker, Pin, Toolchain};

/// The BPF target of every machine that Osmia runs on; its default linker is bpf-linker.
pub(crate) const TARGET: &str = "bpfel-unknown-none";
/// The bin of package `osmia-ebpf` that is the object.
pub(crate) const BIN: &str = "dataplane";

/// cpu v3 is the newest that 5.10 knows; BTF is what map definitions and the verifier's log are read from. Without the last one LLVM calls a
/// function of byte loops for what is more than 32 zero bytes.
const FLAGS: [&str; 4] =
    ["-Cdebuginfo=2", "-Ctarget-cpu=v3", "-Clink-arg=--btf", "-Clink-arg=--llvm-args=--max-store-memset=128"];

/// Which rows the object's maps have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Those of this build.
    Ours,
    /// Those that the feature `next-layout` makes, for tests of upgrades alone.
    Next,
}

impl Layout {
    /// Shared by every outer profile, so that check, clippy, test and release build `core` once. The next layout has one of its own: the
    /// object's path does not tell the two apart.
    pub(crate) fn target_dir(self, workspace: &Path) -> PathBuf {
        workspace.join("target").join(match self {
            Self::Ours => "ebpf",
            Self::Next => "ebpf-next",
        })
    }

    fn features(self) -> &'static str {
        match self {
            Self::Ours => "bpf",
            Self::Next => "bpf,next-layout",
        }
    }
}

/// `cargo <verb>` for the object with everything but the profile: the caller appends options and runs it.
///
/// # Errors
/// When toolchain or linker are missing or do not fit.
pub fn nested_cargo(workspace: &Path, layout: Layout, verb: &str) -> Result<Command, Error> {
    let pin = Pin::read(workspace)?;
    let toolchain = Toolchain::find(&pin)?;
    let linker = Linker::find(&pin, &toolchain)?;

    let mut cargo = Command::new("rustup");
    cargo.args(["run", &toolchain.name, "cargo", verb]);
    cargo.args(["--package", "osmia-ebpf", "--bin", BIN, "--features", layout.features(), "--target", TARGET]);
    cargo.args(["-Z", "build-std=core", "--target-dir"]).arg(layout.target_dir(workspace));
    cargo.current_dir(workspace);

    for (name, _) in env::vars_os() {
        if name.to_str().is_none_or(is_of_the_outer_build) {
            cargo.env_remove(name);
        }
    }
    let arch = format!("--cfg=bpf_target_arch=\"{}\"", target_arch());
    let flags: Vec<&str> = std::iter::once(arch.as_str()).chain(FLAGS).collect();
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    cargo.env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", linker.path);
    // build-std and the BPF target's inline assembler are unstable; the pin is what makes that safe to rely on. For this build only.
    cargo.env("RUSTC_BOOTSTRAP", "1");
    cargo.env("RUSTUP_AUTO_INSTALL", "0");
    Ok(cargo)
}

/// The outer build's wrappers, flags and settings must not reach the nested one: they are for another target, and a change of
/// them (clippy sets some) would build everything anew.
fn is_of_the_outer_build(name: &str) -> bool {
    const PREFIXES: [&str; 4] = ["RUSTC", "CARGO_BUILD_", "CARGO_TARGET_", "CARGO_PROFILE_"];
    const NAMES: [&str; 4] = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTUP_TOOLCHAIN", "CARGO"];
    PREFIXES.iter().any(|p| name.starts_with(p)) || NAMES.contains(&name)
}

/// The architecture whose kernel will run the object: in a build script the target's, else ours.
fn target_arch() -> String {
    crate::variable("CARGO_CFG_TARGET_ARCH").unwrap_or_else(|| env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_builds_settings_are_told_from_the_users() {
        for name in [
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO",
            "CARGO_TARGET_DIR",
        ] {
            assert!(is_of_the_outer_build(name), "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "CARGO_NET_OFFLINE", "CARGO_MAKEFLAGS"] {
            assert!(!is_of_the_outer_build(name), "{name}");
        }
    }
}
