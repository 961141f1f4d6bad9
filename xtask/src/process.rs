//! Running programs: a failure says which command line failed and how.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs it with our stdout and stderr; anything but exit code 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("starting `{}`", text(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", text(command));
    }
    Ok(())
}

/// Runs it with our stderr and gives its stdout.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let out = out.with_context(|| format!("starting `{}`", text(command)))?;
    if !out.status.success() {
        bail!("`{}` failed: {}", text(command), out.status);
    }
    String::from_utf8(out.stdout).with_context(|| format!("output of `{}`", text(command)))
}

/// The command line as a person would type it.
pub(crate) fn text(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Whether we are root: may install packages, make namespaces, load programs.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // The owner of /proc/self is the effective user; the call for it would be the only unsafe code here.
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}
