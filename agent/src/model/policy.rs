//! NetworkPolicies, folded: what the API writes as absent, empty or defaulted is one thing here.
//!
//! Invariant: what the API would refuse is kept as [`Peer::Refused`] or [`Ports`] that name nothing, in its place, with the reason in
//! [`PolicyObject::refused`]: its policy still isolates, its other rules allow what they allow, and rules keep their index. A policy of
//! which nobody can tell whom it selects isolates every pod of its namespace, and has no rules.

use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Selector, Sorted, Uid};

/// A NetworkPolicy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PolicyObject {
    /// `metadata.uid`, empty where a manifest has none.
    pub uid: Uid,
    /// `spec.podSelector`.
    pub subject: Selector,
    /// `spec.ingress`; `None`: it does not isolate ingress.
    pub ingress: Option<Arc<[Rule]>>,
    /// `spec.egress`; `None`: it does not isolate egress.
    pub egress: Option<Arc<[Rule]>>,
    /// What the API would refuse, each with the place in the object.
    pub refused: Vec<String>,
}

impl PolicyObject {
    /// Its rules of a direction; `None`: it does not isolate that direction.
    #[must_use]
    pub fn rules(&self, direction: Direction) -> Option<&Arc<[Rule]>> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }
}

/// A direction of an endpoint's rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Direction {
    /// What the endpoint receives.
    Ingress,
    /// What the endpoint sends.
    Egress,
}

/// A rule: these peers with this traffic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// `from` or `to`.
    pub peers: Peers,
    /// `ports`.
    pub ports: Ports,
}

/// Whom a rule speaks of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Peers {
    /// Everything and everybody: the list is absent or empty.
    Anyone,
    /// Any of these.
    Of(Box<[Peer]>),
}

/// One item of `from` or `to`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Peer {
    /// Pods with a network of their own.
    Pods {
        /// Where they are.
        namespaces: Namespaces,
        /// Which of them.
        pods: Selector,
    },
    /// Addresses in the range, but in none of these parts of it.
    Block {
        /// `ipBlock.cidr`, host bits cleared.
        cidr: IpNet,
        /// `ipBlock.except`, host bits cleared.
        except: Sorted<IpNet>,
    },
    /// The API would refuse it: nobody.
    Refused,
}

/// The namespaces of a peer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Namespaces {
    /// The policy's own.
    Own,
    /// Those with such labels.
    Labelled(Selector),
}

/// What traffic a rule speaks of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Ports {
    /// All of it, of every protocol: the list is absent or empty.
    All,
    /// Any of these; one that the API would refuse is not in it.
    Of(Box<[PortItem]>),
}

/// One item of `ports`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PortItem {
    /// Protocol.
    pub protocol: Protocol,
    /// Its ports.
    pub port: Port,
}

/// The protocols that rules name; the value is IANA's protocol number.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    Tcp = 6,
    /// UDP.
    Udp = 17,
    /// SCTP.
    Sctp = 132,
}

/// Ports of a protocol.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Port {
    /// All of them, and what has none.
    All,
    /// First to last, both included.
    Range(u16, u16),
    /// What the destination pod's containers call so.
    Named(Box<str>),
}

/// A named port of a pod's container.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NamedPort {
    /// `name`.
    pub name: Box<str>,
    /// `protocol`.
    pub protocol: Protocol,
    /// `containerPort`.
    pub port: u16,
}
