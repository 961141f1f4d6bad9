//! `osmia-kernel-init`: process 1 of a guest of the kernel matrix.
//!
//! Mounts what BPF needs, inserts the modules, puts every object under `/objects` through load, attachment and test run, and prints
//! one line a check. It never skips: what could not be tried is a failed check. Nothing survives it; it restarts the machine, which
//! ends qemu, and if it dies the kernel panics, which does the same without the last line.

mod attach;
mod boot;
mod features;
#[path = "../line.rs"]
mod line;
mod link;
mod object;
mod reporter;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::attach::Hooks;
use crate::reporter::Reporter;

fn main() {
    let mut reporter = Reporter::default();
    if reporter.check("boot/mounts", boot::mounts()).is_some() {
        reporter.check("boot/release", Ok(rustix::system::uname().release().to_string_lossy().into_owned()));
        run(&mut reporter);
    }
    reporter.done();
    boot::end();
}

fn run(reporter: &mut Reporter) {
    reporter.check("boot/limits", boot::limits());
    for module in entries(reporter, "/modules") {
        reporter.check(&format!("module/{}", name_of(&module)), boot::insert(&module));
    }
    let Some(hooks) = reporter.value("boot/hooks", Hooks::create()) else { return };
    for object in entries(reporter, "/objects") {
        object::check(reporter, &name_of(&object), &object, &hooks);
    }
}

/// The files of a folder of the initramfs, sorted; none is a failed check.
fn entries(reporter: &mut Reporter, folder: &str) -> Vec<PathBuf> {
    let list = || -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(folder).with_context(|| format!("read {folder}"))?;
        let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        paths.sort();
        anyhow::ensure!(!paths.is_empty(), "{folder} of the initramfs is empty");
        Ok(paths)
    };
    reporter.value(&format!("boot{folder}"), list()).unwrap_or_default()
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().replace(char::is_whitespace, "_")
}
