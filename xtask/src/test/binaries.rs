//! The test binaries of the workspace, as cargo reports them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::output;
use crate::setup::kernels::FETCHER;
use crate::workspace::Workspace;

/// The package of the tests that go through the binaries.
const ROOT_PACKAGE: &str = "osmia-tests";

/// The packages whose `[[test]]` targets need root: the agent's ask its library, which no other package may depend on.
const NEED_ROOT: [&str; 2] = [ROOT_PACKAGE, "osmia-agent"];

/// The `[[test]]` target that boots the kernels of the matrix.
pub(super) const KERNELS: &str = "osmia-tests test kernels";

/// The `[[test]]` target that upgrades to an agent of the next layout.
const UPGRADES: &str = "osmia-tests test faults";

/// One program of tests.
pub(super) struct TestBinary {
    /// What a person calls it: package and target.
    pub(super) label: String,
    pub(super) path: PathBuf,
    /// Folder of its package, where cargo would run it.
    pub(super) folder: PathBuf,
    /// Makes namespaces, loads programs.
    pub(super) needs_root: bool,
}

impl TestBinary {
    /// Whether it boots the kernels of the matrix.
    pub(super) fn needs_kernels(&self) -> bool {
        self.label == KERNELS
    }

    /// Whether it starts an agent of the next layout.
    pub(super) fn needs_next_agent(&self) -> bool {
        self.label == UPGRADES
    }
}

/// What a build gave.
pub(super) struct Binaries {
    /// Those that need root come last; else sorted by label.
    pub(super) tests: Vec<TestBinary>,
    /// The program that fetches the kernels.
    pub(super) kernel_fetcher: PathBuf,
}

/// Builds all of them in one go, so that features are the same for all and nothing is built twice.
pub(super) fn build(workspace: &Workspace) -> Result<Binaries> {
    let mut cargo = workspace.cargo("test");
    cargo.args(["--quiet", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    let messages = output(&mut cargo)?;
    let (mut tests, mut kernel_fetcher) = (Vec::new(), None);
    for line in messages.lines().filter(|l| l.starts_with('{')) {
        let message: Value = serde_json::from_str(line).context("reading what cargo reports")?;
        tests.extend(test_binary(&message));
        kernel_fetcher = kernel_fetcher.or_else(|| program(&message, FETCHER));
    }
    tests.sort_by(|a, b| (a.needs_root, &a.label).cmp(&(b.needs_root, &b.label)));
    let kernel_fetcher = kernel_fetcher.with_context(|| format!("{ROOT_PACKAGE} has no program {FETCHER}"))?;
    Ok(Binaries { tests, kernel_fetcher })
}

/// The path, if the message is on this program itself.
fn program(message: &Value, name: &str) -> Option<PathBuf> {
    let is_test = message.pointer("/profile/test")?.as_bool()?;
    let is_it = message.pointer("/target/name")?.as_str()? == name;
    (is_it && !is_test).then_some(message.get("executable")?.as_str()?.into())
}

/// `None` for a message on anything else.
fn test_binary(message: &Value) -> Option<TestBinary> {
    let is_test = message.pointer("/profile/test")?.as_bool()?;
    let path = message.get("executable")?.as_str()?;
    let kind = message.pointer("/target/kind/0")?.as_str()?;
    let target = message.pointer("/target/name")?.as_str()?;
    let folder = Path::new(message.get("manifest_path")?.as_str()?).parent()?;
    // `path+file:///…/agent#osmia-agent@0.1.0`, or without the name where it is the folder's.
    let id = message.get("package_id")?.as_str()?;
    let (source, name) = id.split_once('#')?;
    let package = name.split_once('@').map_or_else(|| source.rsplit('/').next().unwrap_or(source), |(name, _)| name);
    is_test.then(|| TestBinary {
        label: format!("{package} {kind} {target}"),
        path: path.into(),
        folder: folder.to_owned(),
        needs_root: NEED_ROOT.contains(&package) && kind == "test",
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(id: &str, kind: &str, test: bool) -> Value {
        json!({"reason": "compiler-artifact", "package_id": id, "manifest_path": "/r/tests/Cargo.toml",
               "target": {"kind": [kind], "name": "packet"}, "profile": {"test": test}, "executable": "/t/packet-1"})
    }

    #[test]
    fn integration_tests_of_tests_and_agent_need_root() {
        let of = |id, kind| test_binary(&message(id, kind, true)).map(|b| (b.label, b.needs_root));
        assert_eq!(
            of("path+file:///r/tests#osmia-tests@0.1.0", "test"),
            Some(("osmia-tests test packet".into(), true))
        );
        assert_eq!(
            of("path+file:///r/agent#osmia-agent@0.1.0", "test"),
            Some(("osmia-agent test packet".into(), true))
        );
        assert_eq!(of("path+file:///r/tests#osmia-tests@0.1.0", "lib"), Some(("osmia-tests lib packet".into(), false)));
        assert_eq!(of("path+file:///r/xtask#0.1.0", "bin"), Some(("xtask bin packet".into(), false)));
    }

    #[test]
    fn what_is_no_test_is_passed_over() {
        assert!(test_binary(&message("path+file:///r/xtask#0.1.0", "bin", false)).is_none());
        assert!(test_binary(&json!({"reason": "build-finished", "success": true})).is_none());
    }
}
