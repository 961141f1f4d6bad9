//! bpf-linker, built against the toolchain's own LLVM library: compiler and linker then cannot disagree, and no LLVM package is
//! needed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use osmia_ebpf_build::{Linker, Toolchain, linker_install_root};

use super::Step;
use crate::process::run;
use crate::workspace::Workspace;

/// The step.
pub(super) struct BpfLinker<'a> {
    pub(super) workspace: &'a Workspace,
}

impl Step for BpfLinker<'_> {
    fn name(&self) -> String {
        format!("bpf-linker {}", self.workspace.pin.bpf_linker)
    }

    fn missing(&self) -> Result<Option<String>> {
        let pin = &self.workspace.pin;
        let toolchain = Toolchain::find(pin)?;
        Ok(Linker::find(pin, &toolchain).is_err().then(|| format!("none of Rust {}'s LLVM", toolchain.release)))
    }

    fn install(&self) -> Result<()> {
        let pin = &self.workspace.pin;
        let toolchain = Toolchain::find(pin)?;
        let library = llvm_library(&toolchain.sysroot)?;

        // The build asks for `-lLLVM`; the toolchain ships the library under its full name only.
        let links = self.workspace.target().join("llvm-link");
        fs::create_dir_all(&links).with_context(|| format!("making {}", links.display()))?;
        let link = links.join("libLLVM.so");
        if link.is_symlink() {
            fs::remove_file(&link).with_context(|| format!("replacing {}", link.display()))?;
        }
        symlink(&library, &link).with_context(|| format!("linking {} to {}", link.display(), library.display()))?;

        let mut cargo = self.workspace.cargo("install");
        cargo.args(["bpf-linker", "--version", &pin.bpf_linker, "--locked", "--force", "--root"]);
        cargo.arg(linker_install_root(pin, &toolchain));
        cargo.env("LLVM_PREFIX", &toolchain.sysroot);
        cargo.env("RUSTFLAGS", format!("-L native={}", links.display()));
        // Its build folder is of no further use: cargo makes and removes one of its own.
        cargo.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_ENCODED_RUSTFLAGS");
        run(&mut cargo)
    }

    fn by_hand(&self) -> String {
        let pin = &self.workspace.pin;
        let t = &pin.toolchain;
        format!(
            "S=$(rustc +{t} --print sysroot); L=$(mktemp -d); ln -s \"$S\"/lib/libLLVM.so.*-rust-* \"$L/libLLVM.so\"; \
             LLVM_PREFIX=$S RUSTFLAGS=\"-L native=$L\" cargo +{t} install bpf-linker --version {} --locked",
            pin.bpf_linker
        )
    }
}

/// The toolchain's LLVM, `libLLVM.so.<llvm>-rust-<release>-<channel>`.
fn llvm_library(sysroot: &Path) -> Result<PathBuf> {
    let folder = sysroot.join("lib");
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let is_llvm = |path: &PathBuf| {
        path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("libLLVM.so.") && n.contains("-rust-"))
    };
    match entries.filter_map(|e| Some(e.ok()?.path())).find(is_llvm) {
        Some(library) => Ok(library),
        None => bail!("{} has no libLLVM.so: this toolchain does not ship its LLVM as a library", folder.display()),
    }
}
