//! The messages. One connection serves one call of the plugin; ADD is `Reserve`, then `Commit` on the same connection.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::AttachmentKey;

/// Version of the messages. Both sides send it; another one is refused.
pub const PROTOCOL: u32 = 1;

/// The pod an attachment belongs to, from CNI_ARGS; all parts may be missing (`ctr`, podman).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PodRef {
    /// K8S_POD_NAMESPACE.
    pub namespace: String,
    /// K8S_POD_NAME.
    pub name: String,
    /// K8S_POD_UID; may differ from the API's for static pods.
    pub uid: String,
}

/// What the plugin asks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Request {
    /// First half of ADD. The pod's network namespace comes beside it as a file descriptor (SCM_RIGHTS).
    Reserve {
        /// The attachment.
        key: AttachmentKey,
        /// Network name of the configuration: the scope of GC.
        network: String,
        /// CNI_NETNS as given.
        netns: String,
        /// The pod, if the runtime told.
        pod: PodRef,
        /// When the plugin process started, CLOCK_BOOTTIME in ns: an ADD that started before a DEL loses to it.
        started_ns: u64,
        /// Milliseconds from now after which the caller has given up and the agent undoes the reservation.
        deadline_ms: u64,
        /// The whole configuration as received, without values that could be credentials: only keys the agent knows.
        config: serde_json::Value,
    },
    /// Second half of ADD: the link is there under the reserved name.
    Commit {
        /// The attachment.
        key: AttachmentKey,
        /// MAC the pod's end really has.
        pod_mac: String,
        /// Ifindex of the host end.
        host_ifindex: u32,
    },
    /// DEL. Answered when no packet of the endpoint passes any more and the journal says so.
    Delete {
        /// The attachment.
        key: AttachmentKey,
        /// As in `Reserve`.
        started_ns: u64,
    },
    /// CHECK: what the agent knows of the attachment; the plugin compares links, addresses, routes itself.
    Check {
        /// The attachment.
        key: AttachmentKey,
    },
    /// STATUS, beyond what the heartbeat file tells.
    Status,
    /// GC: every attachment of this network that is not listed is removed.
    Collect {
        /// Network name.
        network: String,
        /// What is valid.
        valid: Vec<AttachmentKey>,
    },
}

/// What the agent answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To `Reserve`.
    Reserved(Assignment),
    /// To `Commit`, `Delete`, `Collect`, `Status`, and to `Check` where all is well.
    Done,
    /// To `Check`: what the attachment should be.
    Attachment(Assignment),
    /// Refused.
    Failed(Failure),
}

/// What an attachment is to look like.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// Name of the host-side link.
    pub host_link: String,
    /// Addresses of the pod, at most one a family; always /32 or /128.
    pub addresses: Vec<IpAddr>,
    /// MTU of both ends, bytes.
    pub mtu: u32,
    /// MAC of the host end: the pods' gateway, the same for all.
    pub gateway_mac: String,
    /// MAC of the pod's end.
    pub pod_mac: String,
}

/// A refusal, as it goes to the runtime.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// CNI error code (1-99 of the specification, 100+ ours).
    pub code: u32,
    /// One line for an operator. Never says "not found" for a DEL: containerd takes that for success.
    pub message: String,
    /// More of it.
    #[serde(default)]
    pub details: String,
}
