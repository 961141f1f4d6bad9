//! Pod: node, addresses, labels, named ports, and whether it has a network of its own.

use std::{net::IpAddr, sync::Arc};

use serde::Deserialize;

use super::{Metadata, policy};
use crate::model::{NamedPort, PodObject};

#[derive(Deserialize)]
pub(super) struct Raw {
    pub(super) metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default)]
    host_network: Option<bool>,
    #[serde(default)]
    containers: Option<Vec<Container>>,
    #[serde(default)]
    init_containers: Option<Vec<Container>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default)]
    restart_policy: Option<String>,
    #[serde(default)]
    ports: Option<Vec<ContainerPort>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    protocol: Option<String>,
    container_port: u16,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    phase: Option<String>,
    #[serde(default, rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(default, rename = "podIPs")]
    pod_ips: Option<Vec<PodIp>>,
}

#[derive(Deserialize)]
struct PodIp {
    ip: IpAddr,
}

impl Raw {
    pub(super) fn fold(self) -> Result<PodObject, String> {
        let spec = self.spec.unwrap_or_default();
        let status = self.status.unwrap_or_default();
        let mut ips: Vec<IpAddr> = status.pod_ips.unwrap_or_default().into_iter().map(|ip| ip.ip).collect();
        if let (true, Some(ip)) = (ips.is_empty(), status.pod_ip.filter(|ip| !ip.is_empty())) {
            ips.push(ip.parse().map_err(|_| format!("status.podIP {ip:?} is no IP address"))?);
        }
        // Sidecars go on running beside the containers: their ports are the pod's too.
        let sidecars = spec.init_containers.unwrap_or_default().into_iter();
        let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
        let containers = spec.containers.unwrap_or_default().into_iter().chain(sidecars);
        let mut ports: Vec<NamedPort> =
            containers.flat_map(|c| c.ports.unwrap_or_default()).filter_map(ContainerPort::named).collect();
        ports.sort_unstable();
        ports.dedup();
        let mirrored = self.metadata.annotations.and_then(|annotations| annotations.mirror);
        Ok(PodObject {
            uid: mirrored.or(self.metadata.uid).unwrap_or_default().into(),
            node: spec.node_name.unwrap_or_default().into(),
            host_network: spec.host_network.unwrap_or_default(),
            ips: ips.into(),
            completed: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            created: self.metadata.creation_timestamp.map(jiff::Timestamp::as_second),
            labels: Arc::new(self.metadata.labels.unwrap_or_default()),
            ports: ports.into(),
        })
    }
}

impl ContainerPort {
    fn named(self) -> Option<NamedPort> {
        let name = self.name.filter(|name| !name.is_empty())?;
        let protocol = policy::protocol(self.protocol.as_deref())?;
        Some(NamedPort { name: name.into(), protocol, port: self.container_port })
    }
}
