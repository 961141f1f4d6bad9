//! The power goes: of a disk stays what was on it at that moment, whatever was written to its files.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use osmia_agent::{
    model::{Event, Kind},
    source::folder::Folder,
};
use tempfile::TempDir;

use crate::space;

/// Less than after which a kernel writes by itself what nobody asked it to (30 s).
const PATIENCE: Duration = Duration::from_secs(15);

/// A disk in a file, which is mounted beside it while this lives.
struct Disk<'a> {
    folder: &'a Path,
    name: &'static str,
}

impl<'a> Disk<'a> {
    fn mount(folder: &'a Path, name: &'static str) -> Self {
        let new = Self { folder, name };
        fs::create_dir_all(new.root()).unwrap();
        // It would bring all to the disk every 5 s.
        run(Command::new("mount").args(["-o", "loop,commit=600"]).args([new.image(), new.root()]));
        new
    }

    fn image(&self) -> std::path::PathBuf {
        self.folder.join(self.name)
    }

    fn root(&self) -> std::path::PathBuf {
        self.folder.join(format!("{}.mounted", self.name))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        run(Command::new("umount").arg(self.root()));
    }
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success() || thread::panicking(), "{command:?}: {status}");
}

#[test]
fn a_policy_that_was_in_force_is_known_after_the_power_went_though_its_source_is_away() {
    let test = || {
        space::enter();
        let dir = TempDir::new().unwrap();
        fs::File::create(dir.path().join("disk")).unwrap().set_len(16 << 20).unwrap();
        run(Command::new("mkfs.ext4").arg("-q").arg(dir.path().join("disk")));
        let disk = Disk::mount(dir.path(), "disk");
        let manifests = dir.path().join("manifests");
        fs::create_dir(&manifests).unwrap();
        let (mut folder, _) = Folder::open(&manifests, &disk.root()).unwrap();
        let policy = "kind: NetworkPolicy\nmetadata: {namespace: a, name: deny}\n";
        fs::write(manifests.join("deny.yaml"), policy).unwrap();
        let is_told = |events: &[Event]| events.iter().any(|event| matches!(event, Event::Policy(..)));
        assert!(is_told(&folder.scan()));
        let start = Instant::now();
        loop {
            fs::copy(disk.image(), dir.path().join("after")).unwrap();
            let after = Disk::mount(dir.path(), "after");
            let (_, events) = Folder::open(&dir.path().join("away"), &after.root()).unwrap();
            if is_told(&events) && events.contains(&Event::Remembered(Kind::Policy)) {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{events:?}");
            thread::sleep(Duration::from_millis(200));
        }
    };
    thread::spawn(test).join().unwrap();
}
