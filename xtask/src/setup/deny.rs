//! cargo-deny, for `lint` alone.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::Step;
use crate::process::run;
use crate::workspace::Workspace;

/// The step.
pub(super) struct CargoDeny<'a> {
    pub(super) workspace: &'a Workspace,
}

impl CargoDeny<'_> {
    fn arguments(&self) -> [&str; 5] {
        ["install", "cargo-deny", "--version", &self.workspace.pin.cargo_deny, "--locked"]
    }
}

impl Step for CargoDeny<'_> {
    fn name(&self) -> String {
        format!("cargo-deny {}", self.workspace.pin.cargo_deny)
    }

    fn missing(&self) -> Result<Option<String>> {
        Ok(find(self.workspace).is_none().then(|| "not installed".to_owned()))
    }

    fn install(&self) -> Result<()> {
        let [verb, rest @ ..] = self.arguments();
        run(self
            .workspace
            .cargo(verb)
            .args(rest)
            .arg("--root")
            .arg(root(self.workspace))
            .env_remove("CARGO_TARGET_DIR"))
    }

    fn by_hand(&self) -> String {
        format!("cargo +{} {}", self.workspace.pin.toolchain, self.arguments().join(" "))
    }
}

/// The pinned version: in our own folder, else on `PATH`.
fn find(workspace: &Workspace) -> Option<PathBuf> {
    let version = format!("cargo-deny {}", workspace.pin.cargo_deny);
    [root(workspace).join("bin").join("cargo-deny"), PathBuf::from("cargo-deny")].into_iter().find(|path| {
        Command::new(path)
            .arg("--version")
            .output()
            .is_ok_and(|out| String::from_utf8_lossy(&out.stdout).trim() == version)
    })
}

/// Where set-up installs it; the name has the version, so that a new pin installs a new one.
fn root(workspace: &Workspace) -> PathBuf {
    osmia_ebpf_build::tool_folder(&format!("cargo-deny-{}", workspace.pin.cargo_deny))
}

/// The binary, for `lint`.
pub(crate) fn binary(workspace: &Workspace) -> Result<PathBuf> {
    let by_hand = CargoDeny { workspace }.by_hand();
    find(workspace).with_context(|| format!("cargo-deny {} is missing: {by_hand}", workspace.pin.cargo_deny))
}
