//! Notices as Events (events.k8s.io/v1) at the apiserver.
//!
//! Invariant: at most one an object, reason and node as long as the apiserver keeps it (an hour, by its default), over restarts of the agent
//! too: the Event's name says all three, and one that is there is left as it is. Nobody waits for one to be written: what finds too many
//! before it is dropped.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{sync::mpsc, time};

use super::connection::{Connection, Refused};
use crate::source::notice::Notice;

/// How often one is tried, each time after twice as long.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_secs(1);
/// Longest `note`, `reportingInstance` and part of the policy's name in the Event's, bytes; the API takes 1,024, 128 and 253 in all.
const NOTE: usize = 1000;
const INSTANCE: usize = 128;
const NAME: usize = 200;

/// Writes Events.
pub struct Reporter {
    connection: Arc<Connection>,
    node: String,
}

impl Reporter {
    pub(super) fn new(connection: Arc<Connection>, node: &str) -> Self {
        Self { connection, node: node.to_owned() }
    }

    /// Writes each of them until nobody has any more. One that the apiserver does not take, or that cannot be brought to it for half a
    /// minute, is dropped: the log has what it says.
    pub async fn follow(self, mut notices: mpsc::Receiver<Notice>) {
        let mut said = None;
        while let Some(notice) = notices.recv().await {
            let result = self.write(&notice).await;
            if let Err(why) = &result
                && said.as_ref() != Some(why)
            {
                let policy = notice.policy.to_string();
                tracing::warn!(policy, reason = notice.reason.name(), why, "no Event can be written");
            }
            said = result.err();
        }
    }

    async fn write(&self, notice: &Notice) -> Result<(), String> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", notice.policy.namespace);
        let event = event(notice, &self.node, jiff::Timestamp::now());
        let mut pause = PAUSE;
        for tried in 1.. {
            match self.connection.create(&path, &event).await {
                Err(Refused { again: true, .. }) if tried < TRIES => {
                    time::sleep(pause).await;
                    pause *= 2;
                }
                Err(Refused { why, .. }) => return Err(why),
                Ok(()) => break,
            }
        }
        Ok(())
    }
}

fn event(notice: &Notice, node: &str, now: jiff::Timestamp) -> Value {
    let Notice { reason, policy, note } = notice;
    let mut digest = Sha256::new();
    for part in [node, &policy.uid, reason.name()] {
        digest.update(part);
        digest.update([0]);
    }
    let digest: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    // What is cut off may leave an end that no name may have.
    let name = short(&policy.name, NAME).trim_end_matches(['-', '.']);
    json!({
        "metadata": {"namespace": policy.namespace, "name": format!("{name}.{digest}")},
        "eventTime": format!("{now:.6}"),
        "type": "Warning",
        "reason": reason.name(),
        "action": "Enforce",
        "note": short(&format!("node {node}: {note}"), NOTE),
        "reportingController": "osmia-agent",
        "reportingInstance": short(node, INSTANCE),
        "regarding": {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "namespace": policy.namespace,
            "name": policy.name,
            "uid": policy.uid,
        },
    })
}

fn short(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use osmia_maps::catalogue::PolicyName;

    use super::*;
    use crate::source::notice::Reason;

    fn notice(reason: Reason, uid: &str, note: &str) -> Notice {
        let policy = PolicyName { namespace: "ns".into(), name: "p-".repeat(126) + "p", uid: uid.into() };
        Notice { reason, policy, note: note.into() }
    }

    #[test]
    fn an_event_is_named_by_what_it_is_about_and_fits() {
        let of = |notice: &Notice, node: &str, second: i64| {
            let event = event(notice, node, jiff::Timestamp::from_second(second).unwrap());
            event["metadata"]["name"].as_str().unwrap().to_owned()
        };
        let first = notice(Reason::OverBudget, "u", "x");
        let name = of(&first, "n", 1);
        assert!(name.len() <= 253 && !name.contains("-."), "{name}");
        assert_eq!(of(&Notice { note: "y".into(), ..first.clone() }, "n", 2), name, "the same again");
        let others = [notice(Reason::ChangeFailed, "u", "x"), notice(Reason::OverBudget, "v", "x")];
        assert!(others.iter().all(|other| of(other, "n", 1) != name) && of(&first, "m", 1) != name);

        let long =
            event(&notice(Reason::OverBudget, "u", &"ä".repeat(2000)), &"n".repeat(253), jiff::Timestamp::UNIX_EPOCH);
        assert!(
            long["note"].as_str().unwrap().len() <= 1024 && long["reportingInstance"].as_str().unwrap().len() <= 128
        );
        assert_eq!(long["eventTime"], "1970-01-01T00:00:00.000000Z");
    }
}
