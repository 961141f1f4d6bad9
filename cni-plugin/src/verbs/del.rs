//! DEL: by the key alone. Neither the namespace, nor prevResult, nor the configuration of the ADD is needed.
//!
//! Invariant: success means that the agent has done it, or that a durable entry says it must. Whatever fails, the rest is still tried.

use std::time::{Duration, Instant};

use super::{Context, host_netlink};
use crate::client::{Agent, AgentError};
use crate::link::namespace::{Namespace, NamespaceError};
use crate::link::remove;
use crate::protocol::{Answer, AttachmentKey, Failure, Request, host_link_name};
use crate::queue::{Entry, Queue, QueueError};
use crate::run::warn;
use crate::spec::error::code;

/// Longest call; the runtimes' clean-up after a failed ADD has one minute.
const LIMIT: Duration = Duration::from_secs(15);

/// Runs DEL.
///
/// # Errors
/// Only what has to be tried again: the agent refused, or neither agent nor queue took it.
pub fn del(context: &Context, key: &AttachmentKey, netns: Option<&str>) -> Result<(), Failure> {
    // Everything but the own namespace is fine: gone, never there, no namespace at all.
    if let Some(path) = netns
        && let Err(NamespaceError::Own) = Namespace::open(path)
    {
        let message = format!("CNI_NETNS {path:?} is the node's own namespace: nothing was touched");
        let advice = "the path came to name another namespace; repeat DEL with an empty CNI_NETNS";
        return Err(Failure::new(code::OWN_NAMESPACE, message).with_details(advice));
    }
    let deadline = context.deadline(LIMIT);
    let unconfirmed = match ask(context, key, deadline) {
        Ok(Answer::Done) => return Ok(()),
        Ok(Answer::Failed(failure)) => {
            remove_link(key)?;
            return Err(failure);
        }
        Ok(other) => AgentError::unexpected(&other),
        Err(error) => error,
    };
    let taken = queue(context, key, deadline, unconfirmed);
    // After the entry is safe: the pod is off the network at once, the agent frees the rest when it comes.
    let removed = remove_link(key);
    taken?;
    removed.or_else(|failure| {
        // The queued DEL removes it.
        warn(&failure.message);
        Ok(())
    })
}

fn ask(context: &Context, key: &AttachmentKey, deadline: Instant) -> Result<Answer, AgentError> {
    let mut agent = Agent::connect(&context.config.socket, Instant::now(), deadline)?;
    agent.ask(&Request::Delete { key: key.clone(), started_ns: context.started_ns }, None)
}

/// Puts the DEL into the queue, unless the agent is back by the time that the queue is ours.
fn queue(context: &Context, key: &AttachmentKey, deadline: Instant, why: AgentError) -> Result<(), Failure> {
    let failed = |error: &QueueError| {
        let message = format!("DEL of {key} was neither taken by osmia-agent ({why}) nor queued: {error}");
        Failure::new(code::TRY_LATER, message)
    };
    // An agent that drains holds the lock for moments; a hung one must not have used up all the time.
    let until = deadline.max(Instant::now() + Duration::from_secs(2));
    let locked = Queue::in_state(&context.config.state).lock_shared(until).map_err(|e| failed(&e))?;
    if let AgentError::Away { .. } = why {
        match ask(context, key, until) {
            Ok(Answer::Done) => return Ok(()),
            Ok(Answer::Failed(failure)) => return Err(failure),
            Ok(_) | Err(_) => {}
        }
    }
    let path = &context.config.boot_id;
    let boot_id = std::fs::read_to_string(path).map_err(|e| {
        let message = format!("DEL of {key} cannot be queued: reading {}: {e}", path.display());
        Failure::new(code::TRY_LATER, message)
            .with_details("mount /proc, or correct bootId in the network configuration")
    })?;
    let entry = Entry { key: key.clone(), started_ns: context.started_ns, boot_id: boot_id.trim().to_owned() };
    locked.push(&entry).map_err(|e| failed(&e))?;
    warn(&format!("{why}; DEL of {key} waits for it in {}", context.config.state.join("queue").display()));
    Ok(())
}

fn remove_link(key: &AttachmentKey) -> Result<(), Failure> {
    let name = host_link_name(key);
    remove::by_host_name(&mut host_netlink()?, &name).map(|_| ()).map_err(|e| {
        let message = format!("removing {name}, the link of {key}: {e}");
        Failure::new(code::LINK, message).with_details(format!("remove it by `ip link del {name}`"))
    })
}
