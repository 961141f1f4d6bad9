//! What a guest's file system holds: process 1 with its libraries, the kernel's modules, the objects.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::Kernel;
use crate::damage;
use crate::initramfs::Archive;

/// The archive for a guest that runs `kernel` and checks `object` and its damaged twin.
pub(crate) fn archive(kernel: &Kernel, object: &[u8]) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    let init = Path::new(env!("CARGO_BIN_EXE_osmia-kernel-init"));
    archive.copy("init", init)?;
    for library in libraries(init)? {
        archive.copy(library.to_str().context("a library with an odd name")?.trim_start_matches('/'), &library)?;
    }
    for module in &kernel.modules {
        let name = module.file_name().and_then(|name| name.to_str()).context("a module without a name")?;
        archive.copy(&format!("modules/{name}"), module)?;
    }
    archive.file("objects/dataplane", object);
    archive.file("objects/refused", &damage::refused(object)?);
    Ok(archive.finish())
}

/// The loader and the shared libraries of a program. They are taken along, because a static program would have to be built apart:
/// cargo builds one set of flags a run.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("run ldd")?;
    ensure!(output.status.success(), "ldd {} ended with {}", program.display(), output.status);
    let list = String::from_utf8_lossy(&output.stdout);
    ensure!(!list.contains("not found"), "a library is missing:\n{list}");
    Ok(list.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}
