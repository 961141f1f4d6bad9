//! cnitool as a process.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use osmia_lab::{Ended, Space, random};

use crate::host::Host;

/// cnitool on a host. It remembers results below `/var/lib/cni`, so it gets a `/var/lib` that is the node's alone.
pub(crate) struct Cnitool<'a> {
    host: &'a Host,
    program: PathBuf,
}

/// A namespace, as an operator makes one for cnitool.
pub(crate) struct Netns {
    pub(crate) space: Space,
    pub(crate) path: PathBuf,
}

impl<'a> Cnitool<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        let target = env::var_os("OSMIA_TARGET_DIR").expect("OSMIA_TARGET_DIR names the folder with tools/cnitool");
        let program = PathBuf::from(target).join("tools/cnitool");
        assert!(program.exists(), "{} is not there: `cargo xtask setup` builds it", program.display());
        host.node().space.output(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/var/lib"])).unwrap();
        Self { host, program }
    }

    pub(crate) fn netns(&self) -> Netns {
        let name = format!("osm-{:08x}", random() as u32);
        let path = self.host.node().paths.netns.join(&name);
        Netns { space: Space::pod(name, &self.host.node().space, &path).unwrap(), path }
    }

    /// Removes what it remembers of the attachment in `netns`.
    pub(crate) fn forget(&self, netns: &Netns) {
        let path = netns.path.to_str().unwrap().to_owned();
        let script =
            r#"for f in /var/lib/cni/results/*; do if grep -q "$1" "$f"; then rm "$f"; exit; fi; done; exit 1"#;
        self.host.node().space.output(Command::new("sh").args(["-c", script, "sh", &path])).unwrap();
    }

    /// One call.
    pub(crate) fn call(&self, verb: &str, netns: &Path) -> Ended {
        let mut command = Command::new(&self.program);
        command.args([verb, "osmia"]).arg(netns);
        command.env("NETCONFPATH", self.host.conflists()).env("CNI_PATH", self.host.plugins());
        self.host.node().space.feed(&mut command, "").unwrap()
    }

    /// One call that has to succeed; gives its stdout.
    pub(crate) fn succeed(&self, verb: &str, netns: &Path) -> String {
        let out = self.call(verb, netns);
        assert!(out.status.success(), "cnitool {verb}: {}", out.text());
        out.stdout
    }

    /// One call that has to fail; gives what it says.
    pub(crate) fn fail(&self, verb: &str, netns: &Path) -> String {
        let out = self.call(verb, netns);
        assert!(!out.status.success(), "cnitool {verb} succeeded: {}", out.text());
        out.text()
    }
}
