//! bpf-linker: where it is, and whether it is of the toolchain's LLVM.
//!
//! `cargo xtask setup` installs it into a folder of its own under the user's cache ([`install_root`]), whose name carries both
//! versions: a new pin finds no linker there and one is built, and nobody's `~/.cargo/bin` is overwritten. One that is on `PATH`
//! or in cargo's bin folder is taken as well if it fits.
//!
//! A linker that was linked to the toolchain's own LLVM needs the library `libLLVM.so.<llvm>-rust-<release>-<channel>`; that
//! name in the binary is the proof that the two belong together.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Pin, Toolchain, variable};

const NAME: &str = "bpf-linker";

/// A linker that fits.
#[derive(Debug, Clone)]
pub struct Linker {
    /// The binary.
    pub path: PathBuf,
}

impl Linker {
    /// `EBPF_LINKER`, else the first that fits of: our own folder, `PATH`, cargo's bin folder.
    ///
    /// # Errors
    /// When none fits; the text says what was wrong with those found and has the command that installs one.
    pub fn find(pin: &Pin, toolchain: &Toolchain) -> Result<Self, Error> {
        if let Some(path) = variable("EBPF_LINKER") {
            let path = PathBuf::from(path);
            version(&path).map_err(|e| Error::new(format!("EBPF_LINKER names {}: {e}", path.display())))?;
            return Ok(Self { path });
        }
        let mut refused = String::new();
        for path in candidates(pin, toolchain) {
            match fits(&path, pin, toolchain) {
                Ok(()) => return Ok(Self { path }),
                Err(why) => refused.push_str(&format!("\n  {}: {why}", path.display())),
            }
        }
        let found = if refused.is_empty() { "none found".to_owned() } else { format!("found but refused:{refused}") };
        Err(Error::new(format!(
            "no {NAME} {} of {}'s LLVM ({found}); run `cargo xtask setup`, which builds it",
            pin.bpf_linker, toolchain.name
        )))
    }
}

/// Where set-up installs the linker (`cargo install --root`); the binary is in `bin` below.
#[must_use]
pub fn install_root(pin: &Pin, toolchain: &Toolchain) -> PathBuf {
    tool_folder(&format!("{NAME}-{}-rust-{}", pin.bpf_linker, toolchain.release))
}

/// A folder for a tool that set-up installs: below `$XDG_CACHE_HOME/osmia`, by default `~/.cache/osmia`. Unlike `target` it
/// serves every checkout and survives a clean clone. The name carries the versions that the tool depends on.
#[must_use]
pub fn tool_folder(name: &str) -> PathBuf {
    let home = || PathBuf::from(variable("HOME").unwrap_or_else(|| "/".to_owned())).join(".cache");
    variable("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("osmia").join(name)
}

/// Every linker there is, ours first.
fn candidates(pin: &Pin, toolchain: &Toolchain) -> Vec<PathBuf> {
    let cargo_home =
        variable("CARGO_HOME").map(PathBuf::from).or_else(|| variable("HOME").map(|h| Path::new(&h).join(".cargo")));
    let mut folders = vec![install_root(pin, toolchain).join("bin")];
    folders.extend(env::var_os("PATH").iter().flat_map(env::split_paths));
    folders.extend(cargo_home.map(|h| h.join("bin")));
    let mut found: Vec<PathBuf> = Vec::new();
    for path in folders.into_iter().map(|f| f.join(NAME)) {
        if path.is_file() && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// The error says why not.
fn fits(path: &Path, pin: &Pin, toolchain: &Toolchain) -> Result<(), String> {
    let version = version(path)?;
    if version != pin.bpf_linker {
        return Err(format!("is version {version}"));
    }
    let bytes = fs::read(path).map_err(|e| e.to_string())?;
    if !needs_llvm_of(&bytes, &toolchain.release) {
        return Err(format!("was not built against the LLVM of Rust {}", toolchain.release));
    }
    Ok(())
}

/// Whether the binary names the LLVM library of this Rust release.
fn needs_llvm_of(binary: &[u8], release: &str) -> bool {
    let suffix = format!("-rust-{release}-");
    let Some(library) = binary.windows(9).position(|w| w == b"libLLVM.s") else { return false };
    // The name is one C string of the dynamic section: nothing after its end counts.
    let name = binary.get(library..).unwrap_or_default().split(|b| *b == 0).next().unwrap_or_default();
    name.windows(suffix.len()).any(|w| w == suffix.as_bytes())
}

fn version(path: &Path) -> Result<String, String> {
    let out = Command::new(path).arg("--version").output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        return Err(format!("does not run: {}", String::from_utf8_lossy(&out.stderr).trim()));
    }
    text.trim().strip_prefix("bpf-linker ").map(str::to_owned).ok_or_else(|| format!("says `{}`", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llvm_is_told_by_the_library_it_needs() {
        let linked = b"\x7fELF\0libz.so.1\0libLLVM.so.23.1-rust-1.99.1-stable\0libc.so.6\0";
        assert!(needs_llvm_of(linked, "1.99.1"));
        assert!(!needs_llvm_of(linked, "1.99"));
        assert!(!needs_llvm_of(linked, "1.98.0"));
        assert!(!needs_llvm_of(b"libLLVM.so.22.1\0-rust-1.99.1-stable\0", "1.99.1"));
        assert!(!needs_llvm_of(b"static", "1.99.1"));
    }
}
