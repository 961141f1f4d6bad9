//! The object as the agent embeds it: without DWARF, which only debuggers read.
//!
//! Invariant: BTF, its line information, symbols and relocations stay: the loader, the verifier's log and dumps read those. DWARF is three
//! quarters of the file, and the agent reads all that it embeds when it starts, so that it would stay in its memory.

use std::path::Path;
use std::process::Command;

use crate::{Error, Pin, Toolchain};

/// Writes the built object `from` to `to` without DWARF.
///
/// `workspace` is the folder of the root manifest.
///
/// # Errors
/// The toolchain, or its objcopy, is missing or fails.
pub fn embed(workspace: &Path, from: &Path, to: &Path) -> Result<(), Error> {
    let toolchain = Toolchain::find(&Pin::read(workspace)?)?;
    let objcopy = toolchain.sysroot.join("lib/rustlib").join(&toolchain.host).join("bin/rust-objcopy");
    let failed = |why: String| Error::new(format!("stripping the BPF object with {}: {why}", objcopy.display()));
    // Its LLVM is the compiler's; rustc finds it the same way.
    let mut command = Command::new(&objcopy);
    let out = command.arg("--strip-debug").args([from, to]).env("LD_LIBRARY_PATH", toolchain.sysroot.join("lib"));
    let out = out.output().map_err(|e| failed(e.to_string()))?;
    if !out.status.success() {
        return Err(failed(String::from_utf8_lossy(&out.stderr).trim().to_owned()));
    }
    Ok(())
}
