//! The cgroups that runc makes: the only thing of a container that is the machine's and not a namespace's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::random;

const PREFIX: &str = "osm-rt-";

/// A containerd namespace, after which runc names its cgroups. It carries our process id, so that those of a killed run are told
/// from those of a living one.
pub(crate) fn containerd_namespace() -> String {
    format!("{PREFIX}{}-{:04x}", process::id(), random() as u16)
}

/// Removes the cgroups of a containerd namespace once their processes are gone, and those of runs that ended without.
pub(crate) fn remove(namespace: &str) {
    let start = Instant::now();
    loop {
        let left = groups().into_iter().filter(|group| is_of(group, namespace) && !remove_tree(group)).count();
        if left == 0 || start.elapsed() > Duration::from_secs(3) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn is_of(group: &Path, namespace: &str) -> bool {
    let name = group.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
    name == namespace || owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
}

/// Ours in the one hierarchy of version 2, or in each of version 1.
fn groups() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = [vec![root.to_owned()], folders(root)].concat();
    let inside = hierarchies.iter().flat_map(|h| folders(h));
    inside.filter(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with(PREFIX))).collect()
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

/// False while a process is inside.
fn remove_tree(group: &Path) -> bool {
    folders(group).iter().for_each(|inner| {
        remove_tree(inner);
    });
    fs::remove_dir(group).is_ok() || !group.exists()
}
