//! `osmia-kernel-fetch`: puts the kernels of the matrix into the target folder.
//!
//! Needs apt-get, dpkg and xz, no root, and installs nothing: packages are downloaded through a private apt state, with the mirror
//! that the machine's own apt uses, and unpacked. A kernel that is there already is left alone.

mod apt;
#[path = "../cache.rs"]
mod cache;
mod module;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::apt::{Apt, Series};
use crate::cache::Kernel;

/// The oldest supported kernel (its verifier is the strictest), one of the last without tcx, and one with everything. Bullseye's
/// security archive is not asked: it lists kernels that are gone.
const MATRIX: [Series; 3] = [
    Series { name: "5.10", suite: "bullseye", security: false },
    Series { name: "6.1", suite: "bookworm", security: true },
    Series { name: "6.12", suite: "bookworm", security: true },
];

/// What the checks in the guest need and Debian builds as modules; what they depend on is found by itself.
const MODULES: [&str; 4] = ["veth", "sch_ingress", "cls_bpf", "vxlan"];

fn main() -> Result<()> {
    let folder = cache::folder();
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let folder = folder.canonicalize().with_context(|| format!("resolve {}", folder.display()))?;

    // Two of us: the second waits and then finds all there. What a killed one left is removed.
    let lock = fs::File::create(folder.join("lock")).context("create the lock")?;
    lock.lock().context("wait for another fetch")?;
    let mut missing = Vec::new();
    for series in MATRIX {
        match Kernel::find(&folder, series.name)? {
            Some(kernel) => {
                let (image, modules) = (kernel.image.display(), kernel.modules.len());
                eprintln!("kernel {}: {} is there, {image} and {modules} modules", series.name, kernel.release);
            }
            None => missing.push(series),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }

    let start = Instant::now();
    let work = folder.join("work");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))?;
    }
    fs::create_dir_all(&work).with_context(|| format!("create {}", work.display()))?;
    let outcome = fetch(&folder, &work, &missing);
    let cleaned = fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()));
    outcome?;
    cleaned?;
    eprintln!("kernels: {} fetched in {:.0} s", missing.len(), start.elapsed().as_secs_f64());
    Ok(())
}

fn fetch(folder: &Path, work: &Path, missing: &[Series]) -> Result<()> {
    eprintln!("kernels: reading package lists");
    let apt = Apt::new(&work.join("apt"), missing)?;
    for &series in missing {
        let package = apt.download(series, work)?;
        eprintln!("kernel {}: {}", series.name, package.display());
        let release = unpack(&package, &work.join(series.name))?;
        install(folder, &work.join(series.name), series, &release)?;
        eprintln!("kernel {}: {release} ready", series.name);
    }
    Ok(())
}

/// Unpacks the package and tells the release it carries.
fn unpack(package: &Path, root: &Path) -> Result<String> {
    run(Command::new("dpkg").arg("-x").arg(package).arg(root))?;
    let boot = root.join("boot");
    for entry in fs::read_dir(&boot).with_context(|| format!("read {}", boot.display()))? {
        let name = entry?.file_name();
        if let Some(release) = name.to_str().and_then(|name| name.strip_prefix("vmlinuz-")) {
            return Ok(release.to_owned());
        }
    }
    bail!("{} holds no boot/vmlinuz-*", package.display());
}

/// Collects what a guest needs and puts it in place in one rename.
fn install(folder: &Path, root: &Path, series: Series, release: &str) -> Result<()> {
    let staged = root.join("staged");
    let modules = staged.join("modules");
    fs::create_dir_all(&modules).with_context(|| format!("create {}", modules.display()))?;
    let tree = root.join("lib/modules").join(release).join("kernel");
    for (index, source) in module::ordered(&tree, &MODULES)?.iter().enumerate() {
        fs::copy(&source.path, modules.join(format!("{index:02}-{}.ko", source.name)))
            .with_context(|| format!("copy {}", source.path.display()))?;
    }
    fs::copy(root.join("boot").join(format!("vmlinuz-{release}")), staged.join("vmlinuz"))
        .context("copy the kernel image")?;
    fs::write(staged.join("release"), format!("{release}\n")).context("write the release")?;
    let home = folder.join(series.name);
    fs::rename(&staged, &home).with_context(|| format!("put {} in place", home.display()))
}

/// Runs a command; what it printed is part of the error.
fn run(command: &mut Command) -> Result<String> {
    let program = PathBuf::from(command.get_program());
    let output = command
        .output()
        .with_context(|| format!("run {}: install Debian's apt, dpkg and xz-utils", program.display()))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
