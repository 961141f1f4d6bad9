//! What an update leads to: rows, pointers and epochs, in the order in which they are to be written.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use osmia_maps::layout::{VerdictKey, VerdictRow};

/// The rule sets of an endpoint; 0: not isolated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Rules {
    /// What it sends.
    pub egress: u32,
    /// What it receives.
    pub ingress: u32,
}

/// The rule set that holds an endpoint shut while several of its pointers change; nothing is allowed by it.
pub const CLOSED: u32 = 1;

/// The cookie of what [`CLOSED`] keeps out.
pub const CLOSED_COOKIE: u32 = 1;

/// What has to be done, in the order of the fields; `old_verdicts` after a barrier.
///
/// A packet between two pods of this node is judged by the rules of both and by the class of both, so that a change of several pointers at
/// once would for a moment show a mixture that neither the old nor the new state is. So whoever has more than one changing is [`CLOSED`]
/// first: between the first and the last write it is never more open than before or after, for packets that are judged at that moment it is
/// shut. Packets of flows that were judged before pass on until the epoch is raised.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Rows of rule sets and classes that nothing points to yet.
    pub verdicts: BTreeMap<VerdictKey, VerdictRow>,
    /// Endpoints that are shut while the pointers below are written.
    pub closing: BTreeSet<u32>,
    /// Class of an address; `None`: as its range says.
    pub peers: BTreeMap<IpAddr, Option<u32>>,
    /// Class of a range; `None`: as the range around it says.
    pub blocks: BTreeMap<IpNet, Option<u32>>,
    /// Rule sets of endpoints: those that changed, and all that were shut. An endpoint that is gone is not among them: its row is.
    pub endpoints: BTreeMap<u32, Rules>,
    /// Endpoints for whom something means something else now.
    pub epochs: BTreeSet<u32>,
    /// Rows of rule sets and classes that nothing points to any more.
    pub old_verdicts: BTreeSet<VerdictKey>,
}

impl Change {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
