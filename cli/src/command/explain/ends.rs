//! The two ends of a packet and what it is, as a person writes them.

use std::{net::IpAddr, str::FromStr};

use osmia_maps::{
    catalogue::PodName,
    decode::{address, ip, protocol},
    layout::{Addr, Endpoint},
};

use crate::{
    command::{names::Names, policy::Named},
    failure::Failure,
};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// An end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// By its address.
    Address(Addr),
    /// A pod of this node by namespace and name.
    Pod(Named),
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = address(text) {
            return Ok(Self::Address(address));
        }
        match text.split_once('/') {
            Some((front, _)) if front.parse::<IpAddr>().is_ok() => {
                Err(format!("`{text}` is a range: give one address of it"))
            }
            Some(_) => text.parse().map(Self::Pod),
            None => Err(format!("`{text}` is no address and no NAMESPACE/NAME")),
        }
    }
}

impl End {
    /// Its addresses.
    fn addresses(&self, names: &Names, endpoints: &[(u32, Endpoint)]) -> Result<Vec<Addr>, Failure> {
        let named = match self {
            Self::Address(address) => return Ok(vec![*address]),
            Self::Pod(named) => named,
        };
        let is = |pod: &PodName| pod.namespace == named.namespace && pod.name == named.name;
        let of = endpoints.iter().filter(|(slot, _)| names.pod(*slot).flatten().is_some_and(is));
        let addresses: Vec<Addr> = of.flat_map(|(_, endpoint)| addresses(endpoint)).collect();
        if addresses.is_empty() {
            let why = names.stale().first().map(|why| format!(" ({why})")).unwrap_or_default();
            let Named { namespace, name } = named;
            return Err(Failure::Unknown(format!(
                "no pod of this node is called {namespace}/{name}{why}. `osmia endpoint list` has those there are. A pod of another node \
                 is given by its address (kubectl get pod -n {namespace} {name} -o wide), and is judged on its node as well; one with \
                 hostNetwork is its node: give the node's address"
            )));
        }
        Ok(addresses)
    }
}

fn addresses(endpoint: &Endpoint) -> impl Iterator<Item = Addr> + use<> {
    let (v4, v6) = (endpoint.v4, endpoint.v6);
    (v4 != [0; 4]).then(|| Addr::v4(v4)).into_iter().chain((v6 != [0; 16]).then(|| Addr::v6(v6)))
}

/// The pairs of addresses of one family; a pod has one or two addresses.
pub(super) fn pairs(
    src: &End,
    dst: &End,
    names: &Names,
    endpoints: &[(u32, Endpoint)],
) -> Result<Vec<(Addr, Addr)>, Failure> {
    let (from, to) = (src.addresses(names, endpoints)?, dst.addresses(names, endpoints)?);
    let all = from.iter().flat_map(|a| to.iter().map(move |b| (*a, *b)));
    let pairs: Vec<(Addr, Addr)> = all.filter(|(a, b)| a.is_v4() == b.is_v4()).collect();
    match pairs.is_empty() {
        true => {
            Err(anyhow::anyhow!("the two ends have no addresses of one family: {} and {}", list(&from), list(&to))
                .into())
        }
        false => Ok(pairs),
    }
}

fn list(addresses: &[Addr]) -> String {
    addresses.iter().map(|address| ip(*address).to_string()).collect::<Vec<_>>().join(", ")
}

/// Protocol and port of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Traffic {
    proto: u8,
    /// `None` for protocols without.
    pub(super) port: Option<u16>,
}

impl FromStr for Traffic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (port, name) = match text.split_once('/') {
            Some((port, name)) => (Some(port), name),
            None if text.parse::<u32>().is_ok() => {
                return Err(format!("`{text}` alone may be a port: write {text}/tcp"));
            }
            None => (None, text),
        };
        let proto = protocol::parse(name)?;
        let port = port.map(|port| port.parse().map_err(|_| format!("`{port}` is no port"))).transpose()?;
        match (matches!(proto, TCP | UDP | SCTP), port) {
            (true, None) => Err(format!("{name} has ports: write 80/{name}")),
            (false, Some(_)) => Err(format!("{name} has no ports: write {name}")),
            _ => Ok(Self { proto, port }),
        }
    }
}

impl Traffic {
    /// The protocol between addresses of a family: each has an ICMP of its own.
    pub(super) fn proto(&self, v4: bool) -> u8 {
        match self.proto {
            protocol::ICMP | protocol::ICMPV6 if v4 => protocol::ICMP,
            protocol::ICMP | protocol::ICMPV6 => protocol::ICMPV6,
            proto => proto,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_an_address_or_a_pod() {
        assert_eq!("10.0.0.1".parse(), Ok(End::Address(Addr::v4([10, 0, 0, 1]))));
        assert!(matches!("fd00::1".parse(), Ok(End::Address(_))));
        assert!(matches!("shop/web-0".parse(), Ok(End::Pod(_))));
        for (wrong, why) in [("10.0.0.0/8", "range"), ("web-0", "no address and no NAMESPACE/NAME"), ("a/b/c", "a/b/c")]
        {
            let said = wrong.parse::<End>().unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn traffic_has_a_port_where_its_protocol_does() {
        assert_eq!("80/tcp".parse(), Ok(Traffic { proto: 6, port: Some(80) }));
        assert_eq!("0/UDP".parse(), Ok(Traffic { proto: 17, port: Some(0) }));
        assert_eq!("gre".parse(), Ok(Traffic { proto: 47, port: None }));
        for wrong in ["tcp", "80", "80/icmp", "65536/tcp", "/tcp", "80/", "http/tcp"] {
            assert!(wrong.parse::<Traffic>().is_err(), "{wrong}");
        }
        let icmp: Traffic = "icmp".parse().unwrap();
        assert_eq!((icmp.proto(true), icmp.proto(false)), (1, 58));
    }
}
