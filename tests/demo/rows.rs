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

/// Where a client of policy's rows stands, and the family that it speaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Cell {
    /// On another node than the server.
    pub(crate) far: bool,
    pub(crate) v6: bool,
}

/// All cells of a row, in the order of the table.
pub(crate) const CELLS: [Cell; 4] = [
    Cell { far: false, v6: false },
    Cell { far: false, v6: true },
    Cell { far: true, v6: false },
    Cell { far: true, v6: true },
];

/// What a policy is shown to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Story {
    DenyIn,
    DenyOut,
    Label,
    Namespace,
    Range,
    NamedPort,
    PortRange,
    Reply,
    Connection,
    Stream,
}

impl Story {
    /// Policies that are written, judged and removed.
    pub(crate) const WRITTEN: [Self; 8] = [
        Self::DenyIn,
        Self::DenyOut,
        Self::Label,
        Self::Namespace,
        Self::Range,
        Self::NamedPort,
        Self::PortRange,
        Self::Reply,
    ];
    /// Policies that go while connections live.
    pub(crate) const LIVING: [Self; 2] = [Self::Connection, Self::Stream];

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::WRITTEN.into_iter().chain(Self::LIVING)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DenyIn => "deny-ingress",
            Self::DenyOut => "deny-egress",
            Self::Label => "label",
            Self::Namespace => "namespace",
            Self::Range => "cidr-except",
            Self::NamedPort => "named-port",
            Self::PortRange => "port-range",
            Self::Reply => "reply",
            Self::Connection => "connection-cut",
            Self::Stream => "stream-cut",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::DenyIn => "default deny, ingress",
            Self::DenyOut => "default deny, egress",
            Self::Label => "allow by label",
            Self::Namespace => "allow by namespace",
            Self::Range => "allow by CIDR with except",
            Self::NamedPort => "allow a named port",
            Self::PortRange => "allow a port range",
            Self::Reply => "reply of who may send nothing",
            Self::Connection => "connection ends with policy",
            Self::Stream => "server's stream ends with it",
        }
    }
}

/// What the command line tool tells of policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Told {
    Allowed,
    Denied,
    Drop,
    Show,
}

impl Told {
    pub(crate) const ALL: [Self; 4] = [Self::Allowed, Self::Denied, Self::Drop, Self::Show];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "explain-allowed",
            Self::Denied => "explain-denied",
            Self::Drop => "drop",
            Self::Show => "show",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Allowed => "osmia explain, allowed",
            Self::Denied => "osmia explain, denied",
            Self::Drop => "osmia drop --policy",
            Self::Show => "osmia policy show",
        }
    }
}

/// Name of a row of policy.
pub(crate) fn policy(encap: Encap, story: Story, cell: Cell) -> String {
    let (place, family) = (if cell.far { "far" } else { "near" }, if cell.v6 { "v6" } else { "v4" });
    format!("{}/policy/{}/{place}/{family}", encap.name(), story.name())
}

/// Name of the row of what is told of policy.
pub(crate) fn told(encap: Encap, told: Told) -> String {
    format!("{}/policy/{}", encap.name(), told.name())
}

/// All rows of policy.
pub(crate) fn policies(encap: Encap) -> Vec<String> {
    let stories = Story::all().flat_map(|story| CELLS.map(|cell| policy(encap, story, cell)));
    stories.chain(Told::ALL.map(|it| told(encap, it))).collect()
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
    ids.push(maps(encap));
    ids.extend(policies(encap));
    ids.push(kill(encap));
    ids
}
