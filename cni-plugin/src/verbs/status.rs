//! STATUS: cheap, without a lock, and departing from the letter of the specification (T1): containerd hands it on to the kubelet,
//! whose node condition makes *every pod of the node* not ready. So it fails only when pods are in danger or when an ADD could not
//! succeed within its own wait.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use osmia_ebpf::layout::{LAYOUT, maps};

use super::Context;
use crate::client::{Agent, AgentError};
use crate::protocol::{Answer, Failure, Request};
use crate::spec::Version;
use crate::spec::error::code;

/// Name of the heartbeat, beside the socket; the agent touches it at least every 10 s.
const HEARTBEAT: &str = "heartbeat";
/// Longest silence that is taken for a restart: ADD waits that long and longer.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest wait for an answer: STATUS comes every few seconds and must take less than 50 ms.
const ANSWER: Duration = Duration::from_millis(30);

/// Runs STATUS.
///
/// # Errors
/// Code 1 for an old configuration, 50 for an agent that is away for long, 51 without pins of this release.
pub fn status(context: &Context) -> Result<(), Failure> {
    context.document.at_least(Version::V1_1_0, "STATUS")?;
    let meta = context.config.bpffs.join(LAYOUT.to_string()).join(maps::META);
    if !meta.exists() {
        let message = format!("no dataplane of layout {LAYOUT} is pinned: {} is missing", meta.display());
        let advice = "mount bpffs and start osmia-agent of the plugin's release on this node; until then its pods may be cut off";
        return Err(Failure::new(code::LIMITED, message).with_details(advice));
    }
    let silent = silence(&context.config.socket);
    match ask(context) {
        Ok(Answer::Failed(failure)) if matches!(failure.code, code::UNAVAILABLE | code::LIMITED) => Err(failure),
        Ok(_) => Ok(()),
        // A restart, or an agent too busy for the moment.
        Err(_) if silent.is_some_and(|s| s < SILENCE) => Ok(()),
        Err(error) => {
            let since = silent
                .map_or("there is no heartbeat".into(), |s| format!("the last heartbeat is {} s old", s.as_secs()));
            let message = format!("osmia-agent is away, {since}: {error}");
            let advice = "running pods keep their network; start osmia-agent on this node, new pods wait for it";
            Err(Failure::new(code::UNAVAILABLE, message).with_details(advice))
        }
    }
}

/// Age of the heartbeat. One from the future (a clock that was set back) counts by its distance.
fn silence(socket: &Path) -> Option<Duration> {
    let touched = std::fs::metadata(socket.parent()?.join(HEARTBEAT)).ok()?.modified().ok()?;
    Some(SystemTime::now().duration_since(touched).unwrap_or_else(|ahead| ahead.duration()))
}

fn ask(context: &Context) -> Result<Answer, AgentError> {
    let now = Instant::now();
    Agent::connect(&context.config.socket, now, now + ANSWER)?.ask(&Request::Status, None)
}
