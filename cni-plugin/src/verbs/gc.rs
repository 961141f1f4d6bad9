//! GC: the agent removes every attachment of this network that the runtime does not list.

use std::time::{Duration, Instant};

use super::Context;
use crate::client::{Agent, AgentError};
use crate::protocol::{Answer, Failure, Request};
use crate::spec::{Version, attachments};

/// Longest wait for an agent that does not listen.
const WAIT: Duration = Duration::from_secs(10);
/// Longest call.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs GC.
///
/// # Errors
/// Code 1 for an old configuration, code 7 without a list (then nothing is removed), code 11 without an agent, and what it says.
pub fn gc(context: &Context) -> Result<(), Failure> {
    context.document.at_least(Version::V1_1_0, "GC")?;
    let valid = attachments::valid(context.document.map())?;
    let request = Request::Collect { network: context.config.name.clone(), valid };
    let answer = Agent::connect(&context.config.socket, Instant::now() + WAIT, context.deadline(LIMIT))
        .and_then(|mut agent| agent.ask(&request, None))
        .map_err(|e| e.into_failure("GC"))?;
    match answer {
        Answer::Done => Ok(()),
        Answer::Failed(failure) => Err(failure),
        other => Err(AgentError::unexpected(&other).into_failure("GC")),
    }
}
