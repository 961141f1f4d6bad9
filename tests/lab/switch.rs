//! The one thing that an agent changes outside of its node: `/sys/kernel/rcu_expedited`, which it turns on for milliseconds while programs go
//! on or off a device (`agent/src/program/grace.rs`). One that is killed meanwhile leaves it on until the next start of an agent.
//!
//! So a process that has a lab has a shell beside it that waits for its end, however it comes, and turns off what its agents left. An agent
//! of another lab that holds the switch right then waits a little longer for the kernel, no more.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

const SWITCH: &str = "/sys/kernel/rcu_expedited";
/// Its stdin is a pipe whose other end only this process holds. Agents are killed as it ends, which takes no time that counts.
const WATCH: &str = r#"cat; sleep 0.3; if [ "$(cat "$0")" = 7304045 ]; then echo 0 > "$0"; fi"#;

/// The pipe's end, closed by the kernel when this process ends.
static WATCHED: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// Starts the shell, once a process.
///
/// # Errors
/// It could not be started.
pub(crate) fn watch() -> Result<()> {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    if watched.is_none() {
        *watched = start(Path::new(SWITCH))?.stdin;
    }
    Ok(())
}

fn start(switch: &Path) -> Result<Child> {
    let mut shell = Command::new("sh");
    shell.args(["-c", WATCH]).arg(switch).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C is not for it.
    shell.process_group(0).spawn().context("start the shell that cleans up at the end")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Beside the real one, which other tests' agents turn off as well.
    #[test]
    fn what_an_agent_left_on_goes_off_at_the_end_and_nothing_else() {
        for (left, after) in [("7304045\n", "0\n"), ("1\n", "1\n"), ("0\n", "0\n")] {
            let switch = std::env::temp_dir().join(format!("osm-switch-{:x}", crate::random()));
            fs::write(&switch, left).expect("a file");
            let mut shell = start(&switch).expect("a shell");
            assert_eq!(fs::read_to_string(&switch).expect("the file"), left, "before the end");
            drop(shell.stdin.take());
            shell.wait().expect("its end");
            assert_eq!(fs::read_to_string(&switch).expect("the file"), after);
            fs::remove_file(&switch).expect("the file");
        }
    }
}
