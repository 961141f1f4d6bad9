//! The rows and their names. Names are stable: `--results` is read by programs.

use osmia_lab::{Encap, Proto};

/// Who talks to whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Relation {
    PodPodLocal,
    PodPodRemote,
    PodOwnNode,
    OwnNodePod,
    PodOtherNode,
    OtherNodePod,
    PodOutside,
}

impl Relation {
    pub(crate) const ALL: [Self; 7] = [
        Self::PodPodLocal,
        Self::PodPodRemote,
        Self::PodOwnNode,
        Self::OwnNodePod,
        Self::PodOtherNode,
        Self::OtherNodePod,
        Self::PodOutside,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PodPodLocal => "pod-pod-local",
            Self::PodPodRemote => "pod-pod-remote",
            Self::PodOwnNode => "pod-own-node",
            Self::OwnNodePod => "own-node-pod",
            Self::PodOtherNode => "pod-other-node",
            Self::OtherNodePod => "other-node-pod",
            Self::PodOutside => "pod-outside",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::PodPodLocal => "pod to pod, one node",
            Self::PodPodRemote => "pod to pod, across nodes",
            Self::PodOwnNode => "pod to its node",
            Self::OwnNodePod => "node to its pod",
            Self::PodOtherNode => "pod to another node",
            Self::OtherNodePod => "node to another's pod",
            Self::PodOutside => "pod to outside, masqueraded",
        }
    }
}

/// Name of a packet row.
pub(crate) fn packet(encap: Encap, relation: Relation, proto: Proto, v6: bool) -> String {
    format!("{}/{}/{}/{}", encap.name(), relation.name(), proto.name(), if v6 { "v6" } else { "v4" })
}

/// Name of the row of a pair of nodes in the capture.
pub(crate) fn wire(encap: Encap, across: bool) -> String {
    format!("{}/wire/{}", encap.name(), if across { "across-subnets" } else { "same-subnet" })
}

/// Name of the kill row.
pub(crate) fn kill(encap: Encap) -> String {
    format!("{}/kill", encap.name())
}

/// Name of the row of the command line tool.
pub(crate) fn maps(encap: Encap) -> String {
    format!("{}/maps", encap.name())
}

/// All rows of a way, in the order of the table.
pub(crate) fn ids(encap: Encap) -> Vec<String> {
    let mut ids = Vec::new();
    for relation in Relation::ALL {
        for proto in Proto::ALL {
            ids.extend([false, true].map(|v6| packet(encap, relation, proto, v6)));
        }
    }
    ids.push(wire(encap, false));
    if encap == Encap::Auto {
        ids.push(wire(encap, true));
    }
    ids.extend([maps(encap), kill(encap)]);
    ids
}
