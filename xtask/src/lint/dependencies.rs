//! cargo-deny: licences, sources, versions that must not be there twice, and known vulnerabilities where their database can be
//! fetched.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::process::run;
use crate::say;
use crate::setup;
use crate::workspace::Workspace;

pub(super) fn check(workspace: &Workspace) -> Result<()> {
    let binary = setup::cargo_deny(workspace)?;
    let deny = |verb: &str| {
        // cargo-deny runs cargo, which has to be the pinned one.
        let mut command = workspace.pinned(&binary.to_string_lossy());
        command.arg(verb);
        command
    };
    run(deny("check").args(["--hide-inclusion-graph", "bans", "licenses", "sources"]))?;
    if has_database(deny("fetch").arg("db")) {
        return run(deny("check").arg("advisories"));
    }
    say::line(format_args!(
        "    NOT checked: known vulnerabilities, since the advisory database cannot be fetched from here"
    ));
    Ok(())
}

fn has_database(fetch: &mut Command) -> bool {
    fetch.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}
