//! Whether the agent lives: it touches a file in its run folder every ten seconds or sooner.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Name of the file.
const FILE: &str = "heartbeat";
/// Silent for longer, and something is wrong: three times the interval.
pub(in crate::command) const LATE: Duration = Duration::from_secs(30);

/// When the agent was last heard of.
#[derive(Debug)]
pub(in crate::command) struct Heartbeat {
    pub(in crate::command) path: PathBuf,
    /// `None`: there is no such file.
    pub(in crate::command) age: Option<Duration>,
}

impl Heartbeat {
    pub(in crate::command) fn read(run: &Path) -> io::Result<Self> {
        let path = run.join(FILE);
        let age = match path.metadata().and_then(|file| file.modified()) {
            // A clock that was set back gives an age of zero.
            Ok(touched) => Some(SystemTime::now().duration_since(touched).unwrap_or(Duration::ZERO)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { path, age })
    }
}
