//! The object as it ships: without DWARF, which only debuggers read.
//!
//! Invariant: BTF, its line information, symbols and relocations stay: the loader, the verifier's log and dumps read those. DWARF is three
//! quarters of the file, and the agent reads all that it embeds when it starts, so that it would stay in its memory. Tests load this one too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::Duration;

use crate::{Error, Toolchain};

/// After it what is beside the object is of a build that was killed.
const REST: Duration = Duration::from_secs(600);

/// Writes what the compiler made to `to` without DWARF.
///
/// # Errors
/// The toolchain's objcopy is missing or fails.
pub(crate) fn strip(toolchain: &Toolchain, compiled: &Path, to: &Path) -> Result<(), Error> {
    let objcopy = objcopy(toolchain)?;
    let failed = |why: String| Error::new(format!("stripping the BPF object with {}: {why}", objcopy.display()));
    // Two cargos may be at it; whoever reads meanwhile sees a whole one.
    let new = to.with_extension(process::id().to_string());
    remove_rests(to);
    // Its LLVM is the compiler's; rustc finds it the same way.
    let mut command = Command::new(&objcopy);
    command.arg("--strip-debug").args([compiled, &new]).env("LD_LIBRARY_PATH", toolchain.sysroot.join("lib"));
    let out = command.output().map_err(|e| failed(e.to_string()))?;
    if !out.status.success() {
        return Err(failed(String::from_utf8_lossy(&out.stderr).trim().to_owned()));
    }
    fs::rename(&new, to).map_err(|e| failed(format!("renaming {} to {}: {e}", new.display(), to.display())))
}

/// What builds that were killed left beside it: nobody writes to a file for so long.
fn remove_rests(to: &Path) {
    let is_rest = |path: &Path| {
        let is_ours = path.file_stem() == to.file_name();
        let by_process =
            path.extension().and_then(|text| text.to_str()).is_some_and(|text| text.parse::<u32>().is_ok());
        let written = path.metadata().and_then(|file| file.modified());
        let age = written.ok().and_then(|at| at.elapsed().ok());
        is_ours && by_process && age.is_some_and(|age| age > REST)
    };
    let beside = to.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    for path in beside.map(|file| file.path()).filter(|path| is_rest(path)) {
        // Another build may be at it too.
        let _ = fs::remove_file(path);
    }
}

/// The toolchain's own.
fn objcopy(toolchain: &Toolchain) -> Result<PathBuf, Error> {
    let path = toolchain.sysroot.join("lib/rustlib").join(&toolchain.host).join("bin/rust-objcopy");
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::new(format!(
        "toolchain {} has no rust-objcopy, which takes out of the BPF object what only debuggers read ({} is missing): toolchains that rustup \
         installs have it, one that was linked (`rustup toolchain link`) may be without; EBPF_TOOLCHAIN names another, EBPF_OBJECT an object \
         that is built already",
        toolchain.name,
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_killed_builds_left_is_removed_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("osm-shipped-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let old = SystemTime::now() - 2 * REST;
        for (name, at) in [
            ("dataplane", old),
            ("dataplane.1", old),
            ("dataplane.2", SystemTime::now()),
            ("dataplane.d", old),
            ("other.3", old),
        ] {
            File::create(folder.join(name)).unwrap().set_modified(at).unwrap();
        }
        remove_rests(&folder.join("dataplane"));
        let left = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut left: Vec<String> = left.collect();
        fs::remove_dir_all(&folder).unwrap();
        left.sort();
        assert_eq!(left, ["dataplane", "dataplane.2", "dataplane.d", "other.3"]);
    }

    #[test]
    fn a_toolchain_without_objcopy_is_told_in_words() {
        let toolchain = Toolchain {
            name: "mine".into(),
            sysroot: "/nowhere".into(),
            release: "1.99.1".into(),
            host: "x86_64-unknown-linux-gnu".into(),
        };
        let why = strip(&toolchain, Path::new("a"), Path::new("b")).unwrap_err().to_string();
        assert!(why.contains("toolchain mine has no rust-objcopy") && why.contains("EBPF_TOOLCHAIN"), "{why}");
    }
}
