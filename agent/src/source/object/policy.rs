//! NetworkPolicy (networking.k8s.io/v1).
//!
//! Where the API would refuse a peer, a port, a type or the selector the rest of the object counts: an object in a folder never went through
//! the API, and a policy that is left out whole would open its pods. An unknown type isolates both ways; a policy of which nobody can tell whom
//! it selects isolates every pod of its namespace, and allows nothing.

use std::sync::Arc;

use ipnet::IpNet;
use serde::Deserialize;

use super::{Metadata, selector::RawSelector};
use crate::model::{
    Selector,
    policy::{Namespaces, Peer, Peers, PolicyObject, Port, PortItem, Ports, Protocol, Rule},
};

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
    /// Whom it selects or what it isolates may be what the API would refuse: then it isolates whomever it may have meant.
    pub(super) fn fold(self) -> PolicyObject {
        let spec = self.spec.unwrap_or_default();
        let mut refused = Vec::new();
        let subject = spec.pod_selector.unwrap_or_default().fold();
        let types = spec.policy_types.unwrap_or_default();
        for (i, other) in types.iter().enumerate().filter(|(_, t)| !matches!(t.as_str(), "Ingress" | "Egress")) {
            refused.push(format!("spec.policyTypes[{i}]: {other:?} is neither Ingress nor Egress"));
        }
        let egress_is_there = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
        let both = !refused.is_empty();
        let has = |name: &str, default: bool| match types.is_empty() {
            true => default,
            false => both || types.iter().any(|t| t == name),
        };
        let (ingress, egress) = (has("Ingress", true), has("Egress", egress_is_there));
        let mut fold_all = |name: &str, peers: &str, rules: Vec<RawRule>| {
            let rules = rules.into_iter().enumerate();
            rules.map(|(i, rule)| fold(rule, &format!("spec.{name}[{i}]"), peers, &mut refused)).collect()
        };
        let from = spec.ingress.unwrap_or_default().into_iter().map(|rule| (rule.from, rule.ports)).collect();
        let to = spec.egress.unwrap_or_default().into_iter().map(|rule| (rule.to, rule.ports)).collect();
        let mut ingress: Option<Arc<[Rule]>> = ingress.then(|| fold_all("ingress", "from", from));
        let mut egress: Option<Arc<[Rule]>> = egress.then(|| fold_all("egress", "to", to));
        let subject = subject.unwrap_or_else(|why| {
            refused.push(format!("spec.podSelector: {why}"));
            // Nothing is allowed to pods that it may not have meant.
            [&mut ingress, &mut egress].into_iter().flatten().for_each(|rules| *rules = Arc::default());
            Selector::default()
        });
        PolicyObject { uid: self.metadata.uid.unwrap_or_default().into(), subject, ingress, egress, refused }
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
        let mut except = Vec::new();
        for text in self.except.unwrap_or_default() {
            let part = range(&text)?.trunc();
            if !cidr.contains(&part) {
                return Err(format!("except {part} is not inside {cidr}"));
            }
            except.push(part);
        }
        Ok(Peer::Block { cidr, except: except.into_iter().collect() })
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
            (Some(IntOrString::String(name)), None) => Port::Named(name.into()),
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::Labels;

    fn folded(spec: Value) -> PolicyObject {
        let raw: Raw = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        raw.fold()
    }

    #[test]
    fn a_type_that_nobody_knows_isolates_both_ways() {
        let rule = json!([{}]);
        let policy = folded(json!({"policyTypes": ["Ingress", "egress"], "ingress": rule, "egress": rule}));
        assert_eq!(policy.refused, ["spec.policyTypes[1]: \"egress\" is neither Ingress nor Egress"]);
        let rules = |rules: Option<Arc<[Rule]>>| rules.map(|rules| rules.len());
        assert_eq!((rules(policy.ingress), rules(policy.egress)), (Some(1), Some(1)), "its rules still allow");
        let policy = folded(json!({"policyTypes": ["Both"]}));
        assert_eq!((rules(policy.ingress), rules(policy.egress)), (Some(0), Some(0)));
    }

    #[test]
    fn a_policy_of_which_nobody_can_tell_whom_it_selects_isolates_its_namespace_and_allows_nothing() {
        let selector = json!({"matchExpressions": [{"key": "app", "operator": "Is", "values": ["web"]}]});
        let policy = folded(json!({"podSelector": selector, "ingress": [{}], "policyTypes": ["Ingress"]}));
        assert!(policy.subject.matches(&Labels::default()), "every pod");
        assert_eq!(policy.ingress.as_deref(), Some(&[][..]));
        assert_eq!(policy.egress, None, "it says nothing of what they send");
        let [why] = policy.refused.as_slice() else { panic!("{:?}", policy.refused) };
        assert!(why.starts_with("spec.podSelector: operator \"Is\" of key \"app\""), "{why}");
    }
}
