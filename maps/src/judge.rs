//! What policy says between two addresses, from the pinned maps: the programs' own lookup ([`osmia_ebpf::logic::policy`]) over read-only
//! maps, so that it can not say anything else than they do.
//!
//! Invariant: of a flow's first packet alone, and of policy alone: what guards, routes and timeouts do with it is not asked.

use std::{cell::RefCell, net::IpAddr};

use osmia_ebpf::{
    layout::{
        Addr, Endpoint, Route, RouteKey, VerdictKey, VerdictRow, endpoint::E_PRESENT, policy::OPEN, route::RouteKind,
    },
    logic::{
        Judgement, PolicyTables,
        policy::{self, Free},
    },
};

use crate::{Access, MapError, Pins, Table, decode::ip, tables};

/// Bits of a key that asks for the longest prefix of an address.
const WHOLE: u32 = 128;

/// The maps that are asked, open.
#[derive(Debug)]
pub struct Judge {
    addresses: Table<Addr, u32>,
    endpoints: Table<u32, Endpoint>,
    routes: Table<RouteKey, Route>,
    peers: Table<Addr, u32>,
    blocks: Table<RouteKey, u32>,
    verdicts: Table<VerdictKey, VerdictRow>,
}

/// A flow's first packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Source.
    pub src: Addr,
    /// Destination, of the same family.
    pub dst: Addr,
    /// IP protocol number.
    pub proto: u8,
    /// Destination port; 0 for protocols without.
    pub dport: u16,
    /// This node only forwards it: with the node's own address as source, no socket of the node sent it.
    pub forwarded: bool,
}

/// Whose an address is, seen from this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A pod of this node.
    Endpoint(u32, Endpoint),
    /// In a range of this node's pods, and no pod's.
    Nobody,
    /// This node's own.
    Node,
    /// A pod's of the node with this number.
    RemotePod(u16),
    /// The node's with this number.
    RemoteNode(u16),
    /// A service's: the node's stack translates it.
    Service,
    /// In the cluster's range and nobody's.
    Unowned,
    /// Outside the cluster, as far as routes tell.
    Outside,
}

/// What this node says in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Side {
    /// The endpoint's rule set; 0: not isolated.
    pub rules: u32,
    /// Class of the other end, as the maps have it.
    pub class: u32,
    /// The verdict.
    pub judgement: Judgement,
    /// Whether rules that the endpoint has are not asked ([`Answer::free`] says why).
    pub free: bool,
}

impl Side {
    /// Whether the packet passes.
    #[must_use]
    pub const fn allows(&self) -> bool {
        matches!(self.judgement, Judgement::Allow(_))
    }

    /// The cookie of the row that decided; 0 for none.
    #[must_use]
    pub const fn cookie(&self) -> u32 {
        match self.judgement {
            Judgement::Allow(cookie) | Judgement::Deny(cookie) => cookie,
        }
    }
}

/// What this node says of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Whose the source is.
    pub src: Place,
    /// Whose the destination is.
    pub dst: Place,
    /// What frees the packet from rules.
    pub free: Free,
    /// Of the sender's rules; `None`: it is no pod of this node.
    pub egress: Option<Side>,
    /// Of the receiver's rules; `None`: it is no pod of this node.
    pub ingress: Option<Side>,
}

impl Answer {
    /// Whether this node lets it pass; `None`: this node does not judge it.
    #[must_use]
    pub fn allows(&self) -> Option<bool> {
        let sides = || self.egress.iter().chain(&self.ingress);
        sides().next().map(|_| sides().all(Side::allows))
    }
}

/// The tables of a lookup. The programs' lookup knows no error: the first one is kept.
struct Lookup<'a> {
    judge: &'a Judge,
    failed: RefCell<Option<MapError>>,
}

impl Lookup<'_> {
    fn or_kept<T>(&self, found: Result<Option<T>, MapError>) -> Option<T> {
        found.unwrap_or_else(|error| {
            self.failed.borrow_mut().get_or_insert(error);
            None
        })
    }
}

impl PolicyTables for Lookup<'_> {
    fn peer(&self, addr: &Addr) -> Option<u32> {
        self.or_kept(self.judge.peers.get(addr))
    }

    fn peer_block(&self, addr: &Addr) -> Option<u32> {
        self.or_kept(self.judge.blocks.get(&whole(addr)))
    }

    fn verdict(&self, key: &VerdictKey) -> Option<VerdictRow> {
        self.or_kept(self.judge.verdicts.get(key))
    }
}

fn whole(addr: &Addr) -> RouteKey {
    RouteKey { bits: WHOLE, addr: addr.0 }
}

impl Judge {
    /// Opens the maps, read-only.
    ///
    /// # Errors
    /// One is missing, not to be opened, or of another shape.
    pub fn open(pins: &Pins) -> Result<Self, MapError> {
        Ok(Self {
            addresses: tables::ENDPOINT_ADDR.open(pins, Access::ReadOnly)?,
            endpoints: tables::ENDPOINTS.open(pins, Access::ReadOnly)?,
            routes: tables::ROUTES.open(pins, Access::ReadOnly)?,
            peers: tables::PEERS.open(pins, Access::ReadOnly)?,
            blocks: tables::PEER_BLOCKS.open(pins, Access::ReadOnly)?,
            verdicts: tables::VERDICTS.open(pins, Access::ReadOnly)?,
        })
    }

    /// Whose an address is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn place(&self, addr: &Addr) -> Result<Place, MapError> {
        if let Some(slot) = self.addresses.get(addr)?
            && let Some(endpoint) = self.endpoints.get(&slot)?
            && endpoint.flags & E_PRESENT != 0
            && owns(&endpoint, addr)
        {
            return Ok(Place::Endpoint(slot, endpoint));
        }
        let route = self.routes.get(&whole(addr))?;
        let kind = route.map(|route| (RouteKind::from_byte(route.kind), route.node));
        Ok(match kind {
            Some((Some(RouteKind::LocalBlock), _)) => Place::Nobody,
            Some((Some(RouteKind::LocalNode), _)) => Place::Node,
            Some((Some(RouteKind::RemoteBlock), node)) => Place::RemotePod(node),
            Some((Some(RouteKind::RemoteNode), node)) => Place::RemoteNode(node),
            Some((Some(RouteKind::Stack), _)) => Place::Service,
            Some((Some(RouteKind::Unowned), _)) => Place::Unowned,
            Some((None, _)) | None => Place::Outside,
        })
    }

    /// What this node says of a packet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn packet(&self, packet: &Packet) -> Result<Answer, MapError> {
        let (src, dst) = (self.place(&packet.src)?, self.place(&packet.dst)?);
        let free = Free {
            itself: matches!((src, dst), (Place::Endpoint(a, _), Place::Endpoint(b, _)) if a == b),
            translated_first: dst == Place::Service,
            node_socket: src == Place::Node && !packet.forwarded,
        };
        let traffic = policy::traffic(packet.proto, packet.dport.to_be_bytes());
        let lookup = Lookup { judge: self, failed: RefCell::new(None) };
        let side = |rules: u32, held: u32, peer: &Addr| Side {
            rules,
            class: policy::class(&lookup, peer),
            judgement: policy::judge(&lookup, held, peer, &traffic),
            free: rules != OPEN && held == OPEN,
        };
        let egress = match src {
            Place::Endpoint(_, of) => Some(side(of.egress_rules, free.egress(of.egress_rules), &packet.dst)),
            _ => None,
        };
        let ingress = match dst {
            Place::Endpoint(_, of) => Some(side(of.ingress_rules, free.ingress(of.ingress_rules), &packet.src)),
            _ => None,
        };
        match lookup.failed.into_inner() {
            Some(error) => Err(error),
            None => Ok(Answer { src, dst, free, egress, ingress }),
        }
    }
}

fn owns(endpoint: &Endpoint, addr: &Addr) -> bool {
    match ip(*addr) {
        IpAddr::V4(v4) => endpoint.v4 == v4.octets(),
        IpAddr::V6(v6) => endpoint.v6 == v6.octets(),
    }
}
