//! Node: addresses and pod ranges.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

use super::Metadata;
use crate::model::NodeObject;

#[derive(Deserialize)]
pub(super) struct Raw {
    pub(super) metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
struct Spec {
    #[serde(default, rename = "podCIDR")]
    pod_cidr: Option<String>,
    #[serde(default, rename = "podCIDRs")]
    pod_cidrs: Option<Vec<IpNet>>,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    addresses: Option<Vec<Address>>,
}

/// `type` and `address`; only InternalIP has to be an address (a Hostname is none).
#[derive(Deserialize)]
#[serde(try_from = "RawAddress")]
struct Address(Option<IpAddr>);

#[derive(Deserialize)]
struct RawAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

impl TryFrom<RawAddress> for Address {
    type Error = String;

    fn try_from(raw: RawAddress) -> Result<Self, String> {
        if raw.kind != "InternalIP" {
            return Ok(Self(None));
        }
        match raw.address.parse() {
            Ok(ip) => Ok(Self(Some(ip))),
            Err(_) => Err(format!("InternalIP {:?} is no IP address", raw.address)),
        }
    }
}

impl Raw {
    pub(super) fn fold(self) -> Result<NodeObject, String> {
        let spec = self.spec.unwrap_or_default();
        let mut pod_cidrs = spec.pod_cidrs.unwrap_or_default();
        if let (true, Some(cidr)) = (pod_cidrs.is_empty(), spec.pod_cidr.filter(|cidr| !cidr.is_empty())) {
            pod_cidrs.push(cidr.parse().map_err(|_| format!("spec.podCIDR {cidr:?} is no range"))?);
        }
        let addresses = self.status.and_then(|status| status.addresses).unwrap_or_default();
        Ok(NodeObject {
            uid: self.metadata.uid.unwrap_or_default(),
            internal_ips: addresses.into_iter().filter_map(|address| address.0).collect(),
            pod_cidrs: pod_cidrs.iter().map(IpNet::trunc).collect(),
        })
    }
}
