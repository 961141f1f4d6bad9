//! Questions: a packet from somewhere to somewhere, of which one end at least is a pod of this node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use osmia_lab::packet::{Ip, flags};
use osmia_maps::layout::flow::ZONE_LOOSE;
use osmia_maps::layout::{FlowKey4, FlowKey6};
use osmia_oracle::{Protocol, stories};

use super::plane;

/// What the packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carried {
    /// A packet to a port.
    To(Protocol, u16),
    /// An echo request.
    Echo,
    /// A later fragment whose first nobody saw.
    Loose(Protocol),
}

/// One end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct End {
    pub(crate) address: IpAddr,
    /// The pod of this node that has it.
    pub(crate) pod: Option<u32>,
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Question {
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) carried: Carried,
}

/// Ports that the stories' rules tell apart.
const TO: [(Protocol, [u16; 4]); 3] = [
    (Protocol::Tcp, [80, 81, 443, 8080]),
    (Protocol::Udp, [53, 80, 8080, 65535]),
    (Protocol::Sctp, [80, 1, 443, 8080]),
];

/// Every question about the pods of this node: between two of them, to and from everybody else.
pub(crate) fn all(added: &BTreeSet<u32>) -> Vec<Question> {
    let here = |pod: u32| stories::local_addresses(pod).map(|address| End { address, pod: Some(pod) });
    let pods: Vec<End> = added.iter().flat_map(|pod| here(*pod)).collect();
    let locals: BTreeSet<IpAddr> = (0..stories::LOCALS).flat_map(stories::local_addresses).collect();
    let others = stories::addresses().into_iter().filter(|address| !locals.contains(address));
    let others: Vec<End> = others.map(|address| End { address, pod: None }).collect();
    let mut ends = Vec::new();
    for pod in &pods {
        ends.extend(pods.iter().map(|peer| (*pod, *peer)));
        ends.extend(others.iter().flat_map(|other| [(*pod, *other), (*other, *pod)]));
    }
    ends.retain(|(from, to)| from.address.is_ipv4() == to.address.is_ipv4());
    let carried = TO.iter().flat_map(|(protocol, ports)| ports.map(|port| Carried::To(*protocol, port)));
    let loose = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].map(Carried::Loose);
    let carried: Vec<Carried> = carried.chain(loose).chain([Carried::Echo]).collect();
    let asked = |(from, to): &(End, End)| {
        let (from, to) = (*from, *to);
        let of = move |carried: &Carried| Question { from, to, carried: *carried };
        carried.iter().map(of).collect::<Vec<_>>()
    };
    // A fragment out of the cluster lacks the ports that would be rewritten, whatever policy says.
    let has_a_way = |question: &Question| !question.is_outbound() || !matches!(question.carried, Carried::Loose(_));
    ends.iter().flat_map(asked).filter(has_a_way).collect()
}

/// IANA's number.
pub(crate) const fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
        Protocol::Other => 1,
    }
}

/// The key of a flow's direction, of either family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Key {
    V4(FlowKey4),
    V6(FlowKey6),
}

impl Question {
    /// Whether it leaves the cluster, with the node's address.
    pub(crate) fn is_outbound(&self) -> bool {
        self.to.pod.is_none() && !plane::REMOTE.iter().any(|pod| pod.parse() == Ok(self.to.address))
    }

    /// Whether it is about a flow that has answers with ports.
    pub(crate) const fn has_answers(&self) -> bool {
        matches!(self.carried, Carried::To(Protocol::Tcp | Protocol::Udp, _))
    }

    /// Its first packet from this source port, or with this identifier.
    pub(crate) fn packet(&self, mine: u16) -> Vec<u8> {
        let ip = Ip::new(self.from.address, self.to.address);
        match self.carried {
            Carried::To(Protocol::Tcp, port) => ip.tcp(mine, port, flags::SYN, 1, 0),
            Carried::To(Protocol::Udp, port) => ip.udp(mine, port, b"question"),
            Carried::To(protocol, port) => {
                let ports = [mine.to_be_bytes(), port.to_be_bytes()].concat();
                ip.packet(number(protocol), &[&ports[..], &[0; 8]].concat())
            }
            Carried::Echo => ip.echo(mine, 1, b"question"),
            Carried::Loose(protocol) => loose(ip, number(protocol)),
        }
    }

    /// A later packet of the opener.
    pub(crate) fn more(&self, mine: u16) -> Vec<u8> {
        match self.carried {
            Carried::To(Protocol::Tcp, port) => {
                Ip::new(self.from.address, self.to.address).tcp(mine, port, flags::ACK, 2, 2)
            }
            _ => self.packet(mine),
        }
    }

    /// An answer, to whoever asked as far as the answering end knows.
    pub(crate) fn answer(&self, to: IpAddr, port: u16) -> Vec<u8> {
        let ip = Ip::new(self.to.address, to);
        match self.carried {
            Carried::To(Protocol::Tcp, own) => ip.tcp(own, port, flags::SYN | flags::ACK, 1, 2),
            Carried::To(_, own) => ip.udp(own, port, b"answer"),
            Carried::Echo | Carried::Loose(_) => panic!("{self:?} has no answers here"),
        }
    }

    /// The key of its packets.
    pub(crate) fn key(&self, mine: u16) -> Key {
        let (sport, dport, proto, zone) = match self.carried {
            Carried::To(protocol, port) => (mine, port, number(protocol), 0),
            Carried::Echo => (mine, mine.wrapping_add(1), if self.from.address.is_ipv4() { 1 } else { 58 }, 0),
            Carried::Loose(protocol) => (0, 0, number(protocol), ZONE_LOOSE),
        };
        let (sport, dport) = (sport.to_be_bytes(), dport.to_be_bytes());
        match (self.from.address, self.to.address) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                Key::V4(FlowKey4 { src: src.octets(), dst: dst.octets(), sport, dport, proto, zone, zero: [0; 2] })
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                Key::V6(FlowKey6 { src: src.octets(), dst: dst.octets(), sport, dport, proto, zone, zero: [0; 2] })
            }
            (from, to) => panic!("{from} and {to} are of two families"),
        }
    }
}

/// The last fragment of a datagram, 80 bytes into it.
fn loose(ip: Ip, proto: u8) -> Vec<u8> {
    let payload = [7; 32];
    if ip.source.is_ipv6() {
        // RFC 8200 4.5.
        return ip.packet(44, &[&[proto, 0, 0, 80, 0, 0, 0, 9][..], &payload].concat());
    }
    let mut packet = ip.packet(proto, &payload);
    packet[4..8].copy_from_slice(&[0x12, 0x34, 0, 10]);
    packet[10..12].fill(0);
    let sum = osmia_lab::packet::checksum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum);
    packet
}
