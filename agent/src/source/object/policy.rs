//! NetworkPolicy (networking.k8s.io/v1).
//!
//! Where the API would refuse a peer or a port the rest of the object counts: an object in a folder never went through the API, and a
//! policy that is left out whole would open its pods.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde::Deserialize;

use super::{Metadata, selector::RawSelector};
use crate::model::policy::{Namespaces, Peer, Peers, PolicyObject, Port, PortItem, Ports, Protocol, Rule};

#[derive(Deserialize)]
pub(super) struct Raw {
    pub(super) metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    pod_selector: Option<RawSelector>,
    #[serde(default)]
    policy_types: Option<Vec<String>>,
    #[serde(default)]
    ingress: Option<Vec<RawIngress>>,
    #[serde(default)]
    egress: Option<Vec<RawEgress>>,
}

#[derive(Deserialize)]
struct RawIngress {
    #[serde(default)]
    from: Option<Vec<RawPeer>>,
    #[serde(default)]
    ports: Option<Vec<RawPort>>,
}

#[derive(Deserialize)]
struct RawEgress {
    #[serde(default)]
    to: Option<Vec<RawPeer>>,
    #[serde(default)]
    ports: Option<Vec<RawPort>>,
}

/// A rule of either direction.
type RawRule = (Option<Vec<RawPeer>>, Option<Vec<RawPort>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPeer {
    #[serde(default)]
    pod_selector: Option<RawSelector>,
    #[serde(default)]
    namespace_selector: Option<RawSelector>,
    #[serde(default)]
    ip_block: Option<RawBlock>,
}

#[derive(Deserialize)]
struct RawBlock {
    cidr: String,
    #[serde(default)]
    except: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPort {
    #[serde(default)]
    protocol: Option<String>,
    #[serde(default)]
    port: Option<IntOrString>,
    #[serde(default)]
    end_port: Option<i64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum IntOrString {
    Int(i64),
    String(String),
}

/// The protocol of a port; absent is TCP. `None` for one that the API does not know.
pub(super) fn protocol(name: Option<&str>) -> Option<Protocol> {
    match name {
        None | Some("TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some("SCTP") => Some(Protocol::Sctp),
        Some(_) => None,
    }
}

impl Raw {
    /// # Errors
    /// Whom it selects cannot be told.
    pub(super) fn fold(self) -> Result<PolicyObject, String> {
        let spec = self.spec.unwrap_or_default();
        let subject = spec.pod_selector.unwrap_or_default().fold().map_err(|why| format!("spec.podSelector: {why}"))?;
        let types = spec.policy_types.unwrap_or_default();
        if let Some(other) = types.iter().find(|t| !matches!(t.as_str(), "Ingress" | "Egress")) {
            return Err(format!("spec.policyTypes: {other:?} is neither Ingress nor Egress"));
        }
        let egress_is_there = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
        let has = |name: &str, default: bool| if types.is_empty() { default } else { types.iter().any(|t| t == name) };
        let (ingress, egress) = (has("Ingress", true), has("Egress", egress_is_there));
        let mut refused = Vec::new();
        let mut fold_all = |name: &str, peers: &str, rules: Vec<RawRule>| {
            let rules = rules.into_iter().enumerate();
            rules.map(|(i, rule)| fold(rule, &format!("spec.{name}[{i}]"), peers, &mut refused)).collect()
        };
        let from = spec.ingress.unwrap_or_default().into_iter().map(|rule| (rule.from, rule.ports)).collect();
        let to = spec.egress.unwrap_or_default().into_iter().map(|rule| (rule.to, rule.ports)).collect();
        let ingress = ingress.then(|| fold_all("ingress", "from", from));
        let egress = egress.then(|| fold_all("egress", "to", to));
        Ok(PolicyObject { uid: self.metadata.uid.unwrap_or_default(), subject, ingress, egress, refused })
    }
}

fn fold((peers, ports): RawRule, place: &str, field: &str, refused: &mut Vec<String>) -> Rule {
    let peers = match peers {
        None => Peers::Anyone,
        Some(list) if list.is_empty() => Peers::Anyone,
        Some(list) => {
            let items = list.into_iter().enumerate().map(|(i, peer)| {
                peer.fold().unwrap_or_else(|why| {
                    refused.push(format!("{place}.{field}[{i}]: {why}"));
                    Peer::Refused
                })
            });
            Peers::Of(items.collect())
        }
    };
    let ports = match ports {
        None => Ports::All,
        Some(list) if list.is_empty() => Ports::All,
        Some(list) => {
            let items = list.into_iter().enumerate().filter_map(|(i, port)| {
                port.fold().map_err(|why| refused.push(format!("{place}.ports[{i}]: {why}"))).ok()
            });
            Ports::Of(items.collect())
        }
    };
    Rule { peers, ports }
}

impl RawPeer {
    fn fold(self) -> Result<Peer, String> {
        match (self.ip_block, self.namespace_selector, self.pod_selector) {
            (Some(block), None, None) => block.fold(),
            (Some(_), ..) => Err("ipBlock stands beside a selector".to_owned()),
            (None, None, None) => Err("none of ipBlock, namespaceSelector, podSelector".to_owned()),
            (None, namespaces, pods) => {
                let namespaces = match namespaces {
                    None => Namespaces::Own,
                    Some(selector) => Namespaces::Labelled(selector.fold()?),
                };
                Ok(Peer::Pods { namespaces, pods: pods.unwrap_or_default().fold()? })
            }
        }
    }
}

impl RawBlock {
    fn fold(self) -> Result<Peer, String> {
        let range = |text: &str| match text.parse::<IpNet>() {
            // In the tables IPv4 lies there; the API speaks of either family by its own text.
            Ok(IpNet::V6(range)) if range.prefix_len() >= 96 && range.addr().to_ipv4_mapped().is_some() => {
                Err(format!("{text:?} is an IPv4 range in IPv6's form"))
            }
            range => range.map_err(|_| format!("{text:?} is no CIDR")),
        };
        let cidr = range(&self.cidr)?.trunc();
        let mut except = BTreeSet::new();
        for text in self.except.unwrap_or_default() {
            let part = range(&text)?.trunc();
            if !cidr.contains(&part) {
                return Err(format!("except {part} is not inside {cidr}"));
            }
            except.insert(part);
        }
        Ok(Peer::Block { cidr, except })
    }
}

impl RawPort {
    fn fold(self) -> Result<PortItem, String> {
        let name = self.protocol.as_deref();
        let protocol = protocol(name)
            .ok_or_else(|| format!("protocol {:?} is none of TCP, UDP, SCTP", name.unwrap_or_default()))?;
        let number = |n: i64| {
            let port = u16::try_from(n).ok().filter(|port| *port != 0);
            port.ok_or_else(|| format!("port {n} is not from 1 to 65535"))
        };
        let port = match (self.port, self.end_port) {
            (None, None) => Port::All,
            (None, Some(_)) => return Err("endPort without port".to_owned()),
            (Some(IntOrString::String(_)), Some(_)) => return Err("endPort beside a named port".to_owned()),
            (Some(IntOrString::String(name)), None) => Port::Named(name),
            (Some(IntOrString::Int(only)), None) => Port::Range(number(only)?, number(only)?),
            (Some(IntOrString::Int(first)), Some(last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first {
                    return Err(format!("endPort {last} is below port {first}"));
                }
                Port::Range(first, last)
            }
        };
        Ok(PortItem { protocol, port })
    }
}
