//! A node that loses what a reboot takes: agent, pins, links, pod namespaces, boot id. State on disk stays.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::folder::random;
use crate::node::Node;

impl Node {
    /// Reboots it; no agent runs then. Pods of it are the caller's to drop: their namespaces are bound nowhere any more.
    ///
    /// # Errors
    /// The kernel or the file system refused.
    pub fn reboot(&self) -> Result<()> {
        // Killed, if there is one.
        *self.agent() = None;
        let links = self.space.output(Command::new("ip").args(["-brief", "link"]))?;
        let names = links.lines().filter_map(|line| line.split([' ', '@']).next());
        // One end of the door takes the other along.
        let ours = names.filter(|name| name.starts_with("osm") && *name != "osmia1");
        let batch: String = ours.map(|name| format!("link del {name}\n")).collect();
        self.space.ip(&batch)?;
        let bpffs = &self.paths.bpffs;
        self.space.run(|| {
            unmount(bpffs, UnmountFlags::empty()).context("unmount the pins")?;
            mount("bpf", bpffs, "bpf", MountFlags::empty(), None).context("mount an empty bpffs")?;
            for file in fs::read_dir(&self.paths.netns).context("read the pods' namespaces")?.flatten() {
                unmount(file.path(), UnmountFlags::DETACH)
                    .with_context(|| format!("unbind {}", file.path().display()))?;
            }
            Ok::<_, anyhow::Error>(())
        })??;
        for folder in [&self.paths.netns, &self.paths.run] {
            fs::remove_dir_all(folder).with_context(|| format!("empty {}", folder.display()))?;
            fs::create_dir(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        let id = format!("{:08x}-0000-4000-8000-{:012x}\n", random() as u32, random() >> 16);
        fs::write(&self.paths.boot_id, id).context("change the boot id")
    }
}
