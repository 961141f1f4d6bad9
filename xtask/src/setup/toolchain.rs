//! The pinned toolchain with its components, and the standard library that the plugin is linked with.

use anyhow::{Context, Result};

use super::Step;
use crate::build::plugin_target;
use crate::process::run;
use crate::workspace::{Workspace, clean};

/// Beside rustc, cargo and the standard library. rust-src is what `core` for BPF is built from.
const COMPONENTS: [&str; 3] = ["rust-src", "clippy", "rustfmt"];

/// The step.
pub(super) struct PinnedToolchain<'a> {
    pub(super) workspace: &'a Workspace,
}

impl PinnedToolchain<'_> {
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["toolchain", "install", &self.workspace.pin.toolchain, "--profile", "minimal"];
        arguments.extend(COMPONENTS.iter().flat_map(|c| ["-c", c]));
        let target = plugin_target();
        arguments.extend(["-t", &target]);
        // rustup is the user's: set-up does not replace it.
        arguments.push("--no-self-update");
        arguments.into_iter().map(str::to_owned).collect()
    }
}

impl Step for PinnedToolchain<'_> {
    fn name(&self) -> String {
        format!("toolchain {}", self.workspace.pin.toolchain)
    }

    fn missing(&self) -> Result<Option<String>> {
        let mut list = clean("rustup");
        list.args(["component", "list", "--installed", "--toolchain", &self.workspace.pin.toolchain]);
        let out = list.output().context("running rustup, which Rust's own site installs")?;
        if !out.status.success() {
            return Ok(Some("not installed".to_owned()));
        }
        let text = String::from_utf8_lossy(&out.stdout);
        // Components of one machine are listed with its name behind theirs.
        let there =
            |c: &&str| text.lines().any(|l| l.strip_prefix(c).is_some_and(|r| r.is_empty() || r.starts_with('-')));
        let library = format!("rust-std-{}", plugin_target());
        let absent: Vec<&str> = COMPONENTS.into_iter().chain([library.as_str()]).filter(|c| !there(c)).collect();
        Ok((!absent.is_empty()).then(|| format!("lacks {}", absent.join(" "))))
    }

    fn install(&self) -> Result<()> {
        run(clean("rustup").args(self.arguments()))
    }

    fn by_hand(&self) -> String {
        format!("rustup {}", self.arguments().join(" "))
    }
}
