//! `RUN/heartbeat`: its modification time says that the agent's loop turns. The plugin's STATUS looks at it without asking anybody.

use std::{fs, path::Path, time::Duration};

use tokio::time;

/// The plugin takes 60 s of silence for an agent that is away.
const EVERY: Duration = Duration::from_secs(5);

/// Touches the file for ever.
pub async fn beat(run: &Path) {
    let path = run.join("heartbeat");
    let mut failed = false;
    loop {
        match fs::write(&path, b"") {
            Ok(()) => failed = false,
            Err(error) if !failed => {
                tracing::error!(file = %path.display(), %error, "no heartbeat: STATUS will call this agent away");
                failed = true;
            }
            Err(_) => {}
        }
        time::sleep(EVERY).await;
    }
}
