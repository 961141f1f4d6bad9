//! The dependency rule: what a package must not see, not even through another.

use anyhow::{Result, bail};

use crate::process::output;
use crate::workspace::Workspace;

/// Package, what must not be in its tree, and why.
const RULES: [(&str, &[&str], &str); 5] = [
    // It asks osmia-ebpf for one number, the layout whose pins STATUS looks for, and takes no feature of it.
    ("osmia-cni", &["aya", "kube", "osmia-maps", "tokio"], "a short-lived static process a call"),
    ("osmia", &["kube", "osmia-agent", "osmia-cni", "tokio"], "reads the pins, agent dead or alive"),
    ("osmia-maps", &["kube", "osmia-agent", "osmia-cni", "tokio"], "a library of agent and CLI"),
    ("osmia-agent", &["osmia", "osmia-tests"], "nothing depends on the agent, and it on no tool"),
    (
        "xtask",
        &["osmia-agent", "osmia-cni", "osmia-ebpf", "osmia-maps", "osmia-tests"],
        "built by any stable, before the pin",
    ),
];

pub(super) fn check(workspace: &Workspace) -> Result<()> {
    let mut broken = String::new();
    for (package, forbidden, why) in RULES {
        let mut tree = workspace.cargo("tree");
        tree.args(["--package", package, "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
        let tree = output(&mut tree)?;
        // The first word of a line is the package's name.
        for name in forbidden.iter().filter(|f| tree.lines().any(|l| l.split(' ').next() == Some(**f))) {
            broken.push_str(&format!(
                "\n  {package} depends on {name}, but is {why}: see `cargo tree -p {package} -i {name}`"
            ));
        }
    }
    if !broken.is_empty() {
        bail!("the dependency rule is broken:{broken}");
    }
    Ok(())
}
