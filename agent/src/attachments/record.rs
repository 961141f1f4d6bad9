//! What is known of an attachment, and the lines the journal is made of.

use std::{net::IpAddr, time::Duration};

use osmia_cni::protocol::{Assignment, AttachmentKey, PodRef};
use osmia_maps::layout::{
    Endpoint,
    endpoint::{E_PRESENT, E_READY},
};
use serde::{Deserialize, Serialize};

use crate::{
    compile::{GATEWAY_MAC, policy::Local},
    model::Name,
};

/// An attachment. The host link's name is its identity inside the agent: it follows from the key, and it is all that is known of a link
/// whose record was lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The attachment; `None` for one whose record was lost and whose pod lives (found by its pinned row).
    pub key: Option<AttachmentKey>,
    /// Name of the host-side link.
    pub host_link: String,
    /// Network name of the configuration: the scope of GC.
    pub network: String,
    /// CNI_NETNS as given, for people.
    pub netns: String,
    /// Device and inode of the network namespace.
    pub netns_id: (u64, u64),
    /// The pod; without name: see `unknown`.
    pub pod: PodRef,
    /// Its record was lost, and nothing tells whose it is. One that has no name and is not so is one for which the runtime named none.
    #[serde(default)]
    pub unknown: bool,
    /// Its addresses, at most one a family.
    pub addresses: Vec<IpAddr>,
    /// MTU of both ends, bytes.
    pub mtu: u32,
    /// MAC of the pod's end.
    pub pod_mac: [u8; 6],
    /// Slot in the maps.
    pub slot: u32,
    /// When the ADD's process started, CLOCK_BOOTTIME in ns.
    pub started_ns: u64,
    /// How far it is.
    pub phase: Phase,
}

/// How far an ADD is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// Addresses are reserved; the plugin builds the link.
    Adding,
    /// The link with this ifindex is attached and packets pass.
    Added {
        /// Host-side ifindex.
        ifindex: u32,
    },
}

impl Record {
    /// One of pod ns/`id` that a test goes on from.
    #[cfg(test)]
    pub(crate) fn example(id: &str, phase: Phase) -> Self {
        let key = AttachmentKey::new(id, "eth0").unwrap();
        Self {
            host_link: osmia_cni::protocol::host_link_name(&key),
            key: Some(key),
            network: "osmia".into(),
            netns: String::new(),
            netns_id: (4, 5),
            pod: PodRef { namespace: "ns".into(), name: id.into(), uid: "u1".into() },
            unknown: false,
            addresses: vec!["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()],
            mtu: 1500,
            pod_mac: [2; 6],
            slot: 1,
            started_ns: 1,
            phase,
        }
    }

    /// The ifindex of a committed one.
    #[must_use]
    pub fn ifindex(&self) -> Option<u32> {
        match self.phase {
            Phase::Adding => None,
            Phase::Added { ifindex } => Some(ifindex),
        }
    }

    /// Whether both have the same slot or a common address: then one of the two is over.
    pub(super) fn shares(&self, other: &Self) -> bool {
        self.slot == other.slot || self.addresses.iter().any(|ip| other.addresses.contains(ip))
    }

    /// What the plugin is told.
    #[must_use]
    pub fn assignment(&self) -> Assignment {
        Assignment {
            host_link: self.host_link.clone(),
            addresses: self.addresses.clone(),
            mtu: self.mtu,
            gateway_mac: format_mac(GATEWAY_MAC),
            pod_mac: format_mac(self.pod_mac),
        }
    }

    /// The row of a committed one with this ifindex.
    #[must_use]
    pub fn endpoint(&self, ifindex: u32) -> Endpoint {
        let v4 = self.addresses.iter().find_map(|ip| if let IpAddr::V4(a) = ip { Some(a.octets()) } else { None });
        let v6 = self.addresses.iter().find_map(|ip| if let IpAddr::V6(a) = ip { Some(a.octets()) } else { None });
        Endpoint {
            ifindex,
            flags: E_PRESENT | E_READY,
            v4: v4.unwrap_or_default(),
            v6: v6.unwrap_or_default(),
            mac: self.pod_mac,
            ..Endpoint::default()
        }
    }

    /// The pod, where the runtime named one. One that is unknown has a name that no pod has, in a namespace that nobody tells of: it is isolated.
    #[must_use]
    pub fn pod_key(&self) -> Option<Name> {
        let PodRef { namespace, name, .. } = &self.pod;
        (self.unknown || !name.is_empty()).then(|| Name::new(namespace, name))
    }

    /// Whether the runtime may have named a pod that is not known any more.
    pub(super) fn lost_its_name(&self) -> bool {
        self.key.is_none() && self.pod.name.is_empty()
    }

    /// The endpoint as policy knows it.
    #[must_use]
    pub fn local(&self) -> Local {
        Local { pod: self.pod_key(), uid: self.pod.uid.clone(), addresses: self.addresses.clone() }
    }

    /// For messages: the key, or the link where the key was lost.
    #[must_use]
    pub fn name(&self) -> String {
        self.key.as_ref().map_or_else(|| self.host_link.clone(), ToString::to_string)
    }
}

/// Text of a MAC.
#[must_use]
pub fn format_mac(mac: [u8; 6]) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

/// A MAC of its text.
#[must_use]
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> = text.split(':').map(|part| u8::from_str_radix(part, 16)).collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

/// MAC of a pod's end: locally administered, from the address, so that it is the same wherever it is looked at.
#[must_use]
pub fn pod_mac(addresses: &[IpAddr]) -> [u8; 6] {
    let mut hash = crc32fast::Hasher::new();
    match addresses.first() {
        // 02:6f + the address: readable, and unique on the node.
        Some(IpAddr::V4(a)) => {
            let [a, b, c, d] = a.octets();
            return [0x02, 0x70, a, b, c, d];
        }
        Some(IpAddr::V6(a)) => hash.update(&a.octets()),
        None => {}
    }
    let [a, b, c, d] = hash.finalize().to_be_bytes();
    [0x02, 0x71, a, b, c, d]
}

/// A DEL that happened: it refuses ADDs of the same key that started before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tombstone {
    /// When the DEL's process started, CLOCK_BOOTTIME in ns.
    pub started_ns: u64,
    /// Until when it is kept, CLOCK_BOOTTIME.
    pub until: Duration,
}

/// A line of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Line {
    /// The lines that follow are of this boot: times and ifindexes of another one mean nothing.
    Boot {
        /// `/proc/sys/kernel/random/boot_id`.
        id: String,
    },
    /// An ADD got this, and nothing was made yet; or the whole state of one, after a compaction.
    Put(Record),
    /// The ADD is complete.
    Commit {
        /// Which.
        host_link: String,
        /// Host-side ifindex.
        ifindex: u32,
        /// MAC the pod's end really has.
        pod_mac: [u8; 6],
    },
    /// Removed: rows are gone, links go.
    Gone {
        /// Which.
        host_link: String,
        /// If a DEL did it.
        tombstone: Option<Tombstone>,
        /// Its addresses rest until then, CLOCK_BOOTTIME.
        rest: Vec<(IpAddr, Duration)>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_is_local_unicast_and_survives_its_text() {
        for ips in [vec!["10.1.2.3".parse().unwrap()], vec!["fd00::1".parse().unwrap()]] {
            let mac = pod_mac(&ips);
            assert_eq!(mac[0] & 3, 2);
            assert_ne!(mac, GATEWAY_MAC);
            assert_eq!(parse_mac(&format_mac(mac)), Some(mac));
        }
        for bad in ["", "02:70", "02:70:00:00:00:00:00", "02:70:zz:00:00:00", "x"] {
            assert_eq!(parse_mac(bad), None, "{bad}");
        }
    }
}
