//! The kernel matrix: every supported kernel loads the object, runs it and attaches it, in a guest under qemu.
//!
//! One boot a kernel. Each guest is given two objects: `dataplane`, the one that `OSMIA_OBJECT` names, whose checks must all hold,
//! and `refused`, a damaged copy of it, whose programs must all be refused, so that a check that cannot fail is noticed on every
//! kernel. Nothing is skipped: a missing kernel, emulator or object is a failure that says what to run.

#![expect(clippy::panic, clippy::expect_used, reason = "a test fails by panic, also in what its functions share")]

mod cache;
mod contents;
mod damage;
mod guest;
mod initramfs;
mod line;
mod report;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cache::Kernel;
use crate::report::Report;

/// A guest takes some 5 s on a quiet machine.
const LIMIT: Duration = Duration::from_secs(150);

#[test]
fn linux_5_10_takes_the_object_and_attaches_it_by_clsact() {
    takes_the_object("5.10", "clsact");
}

#[test]
fn linux_6_1_takes_the_object_and_attaches_it_by_clsact() {
    takes_the_object("6.1", "clsact");
}

#[test]
fn linux_6_12_takes_the_object_and_attaches_it_by_tcx() {
    takes_the_object("6.12", "tcx");
}

fn takes_the_object(series: &str, way: &str) {
    let (kernel, report) = boot(series).unwrap_or_else(|err| panic!("kernel {series}: {err:#}"));

    let complaints = report.complaints("refused/");
    assert!(complaints.is_empty(), "kernel {} failed:\n{complaints}", kernel.release);
    let releases: Vec<_> = report.passed("boot/release").collect();
    assert_eq!(releases, [("boot/release", kernel.release.as_str())], "another kernel was booted");
    let loads = report.passed("dataplane/load/").count();
    assert!(loads > 0, "no program was loaded");
    for hook in report.passed("dataplane/attach/") {
        assert!(hook.1.starts_with(way), "{} was attached by another way: {}", hook.0, hook.1);
    }

    assert_eq!(report.passed("refused/load/").count(), 0, "the verifier took a damaged program: the check cannot fail");
    let refused: Vec<_> = report.failed("refused/load/").collect();
    let told: Vec<_> = report.failed("refused/").collect();
    assert_eq!(refused.len(), loads, "not every damaged program was tried: {told:?}");
    for (name, detail) in refused {
        assert!(detail.contains("the verifier refused"), "{name}: {detail}");
        assert!(!report.log(name).is_empty(), "{name}: {detail}: the verifier's log is missing");
    }
    for (name, detail) in report.passed("dataplane/") {
        eprintln!("{series} {name} {detail}");
    }
}

fn boot(series: &str) -> Result<(Kernel, Report)> {
    let folder = cache::folder();
    let kernel = Kernel::find(&folder, series)?.with_context(|| {
        format!("not in {}: run `cargo xtask setup`, or `{}`", folder.display(), cache::FETCH_COMMAND)
    })?;
    // Left there: with it a person boots the same guest by hand. Another run of the same tests may boot from it meanwhile.
    let initramfs = folder.join(format!("initramfs-{series}"));
    let new = folder.join(format!("initramfs-{series}.{}", std::process::id()));
    fs::write(&new, contents::archive(&kernel, &object()?)?).with_context(|| format!("write {}", new.display()))?;
    fs::rename(&new, &initramfs).with_context(|| format!("rename {} to {}", new.display(), initramfs.display()))?;
    let console = guest::run(guest::qemu(&kernel.image, &initramfs), LIMIT)?;
    let report = Report::read(&console).with_context(|| format!("its console:\n{console}"))?;
    Ok((kernel, report))
}

/// The object under test.
fn object() -> Result<Vec<u8>> {
    let path = env::var_os("OSMIA_OBJECT").map(PathBuf::from).context(
        "OSMIA_OBJECT names no BPF object: run `cargo xtask test`, or build one and set the variable to its path",
    )?;
    fs::read(&path).with_context(|| format!("read the object {}", path.display()))
}
