//! The decision on a flow: who sends, who receives, what policy says of both, which way each direction goes.
//!
//! Made from the opener's two ends and the way it came in alone, so that a flow can be decided again from a reply. Invariant: an endpoint's
//! epoch is read before its row, and stored: what was decided from an older row is stamped stale.

use super::super::arrival::{Kind, Via};
use super::super::parse::UDP;
use super::super::policy::{self, Free};
use super::super::route::{self, Way};
use super::super::slow::Run;
use super::super::{Judgement, Packet, Tables};
use crate::layout::endpoint::{E_READY, E_SLOW_PATH};
use crate::layout::flow::{F_NO_HOP, F_NODE_SOCKET, F_OPENER, F_OPPOSITE_OUT, FlowAction};
use crate::layout::node::N_TUNNEL;
use crate::layout::route::RouteKind;
use crate::layout::{Addr, Asked, DropReason, Endpoint, FlowEntry};

/// What is asked: the opener's key, as far as a decision depends on it, and its way in.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Question {
    /// Source of the opener's packets.
    pub src: Addr,
    /// Destination of the opener's packets.
    pub dst: Addr,
    /// Way in of the opener's packets.
    pub via: Via,
    /// Their destination port, network order.
    pub dport: [u8; 2],
    /// Their protocol.
    pub proto: u8,
    /// 1: IPv6.
    pub v6: u8,
    /// Zero.
    pub zero: [u8; 4],
}

/// One end of a flow.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct End {
    /// Slot of the endpoint if it is on this node, else 0.
    slot: u32,
    /// The slot's epoch, read before the endpoint; slot 0 has the route generation as its epoch.
    epoch: u32,
    /// Rule set of the endpoint for this flow, 0 for none.
    rules: u32,
    /// 1: the stack translates first (a service), and what comes back is judged.
    unjudged: u32,
    /// The way to this end.
    way: Way,
}

impl End {
    /// Not a pod of this node.
    #[inline(always)]
    const fn elsewhere(way: Way, route_gen: u32) -> Self {
        Self { slot: 0, epoch: route_gen, rules: 0, unjudged: 0, way }
    }
}

/// What was found of an end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Nothing of ours.
    Foreign,
    /// It stands in the scratch.
    Known,
    /// It stands in the scratch but for its way: the kernel's routes have to be asked.
    Outside,
}

impl<P: Packet, T: Tables> Run<'_, P, T> {
    /// Decides the flow of `scratch.question`; fills `scratch.forward` and `scratch.reverse` but for counters and times, and
    /// `scratch.uplink` if the opener's packets leave the cluster with an address of that one. `false`: nothing of ours.
    #[inline(always)]
    pub(in crate::logic) fn decided(&mut self) -> Result<bool, DropReason> {
        let route_gen = self.tables.epoch(0);
        let from = self.source(route_gen)?;
        let to = if from == Found::Foreign { Found::Foreign } else { self.destination(route_gen, from)? };
        if to == Found::Foreign {
            return Ok(false);
        }
        if from == Found::Outside || to == Found::Outside {
            let (src, dst) = (self.scratch.question.src, self.scratch.question.dst);
            let (a, b) = if to == Found::Outside { (&src, &dst) } else { (&dst, &src) };
            let way = route::outside(self.packet, self.tables, self.config, a, b, self.scratch.question.via.kind())?;
            if to == Found::Outside {
                self.scratch.to.way = way;
            } else {
                // Who opens from outside gets its answers by the kernel's routes, unchanged.
                self.scratch.from.way = way;
            }
        }
        self.judged()?;
        self.write(route_gen);
        Ok(true)
    }

    /// Policy, of both ends; the cookies stand in the scratch's entries then.
    #[inline(always)]
    fn judged(&mut self) -> Result<(), DropReason> {
        let scratch = &mut *self.scratch;
        let question = &scratch.question;
        let traffic = Asked { part: scratch.loose as u8, ..policy::traffic(question.proto, question.dport) };
        let free = Free {
            itself: scratch.from.slot != 0 && scratch.from.slot == scratch.to.slot,
            translated_first: scratch.to.unjudged != 0,
            node_socket: question.via.is_node_socket(),
        };
        match policy::judge(self.tables, free.egress(scratch.from.rules), &question.dst, &traffic) {
            Judgement::Allow(cookie) => scratch.forward.egress_cookie = cookie,
            Judgement::Deny(cookie) => {
                scratch.drop.cookie = cookie;
                return Err(DropReason::PolicyEgress);
            }
        }
        match policy::judge(self.tables, free.ingress(scratch.to.rules), &question.src, &traffic) {
            Judgement::Allow(cookie) => scratch.forward.ingress_cookie = cookie,
            Judgement::Deny(cookie) => {
                scratch.drop.cookie = cookie;
                return Err(DropReason::PolicyIngress);
            }
        }
        Ok(())
    }

    /// Both entries, from the two ends.
    #[inline(always)]
    fn write(&mut self, route_gen: u32) {
        let scratch = &mut *self.scratch;
        let via = &scratch.question.via;
        let (from, to) = (&scratch.from, &scratch.to);
        let (egress_cookie, ingress_cookie) = (scratch.forward.egress_cookie, scratch.forward.ingress_cookie);
        let flags = if via.is_node_socket() { F_NODE_SOCKET } else { 0 };

        let forward = &mut scratch.forward;
        *forward = FlowEntry { route_gen, egress_cookie, ingress_cookie, ..FlowEntry::default() };
        to.way.write(forward);
        forward.hook = via.hook;
        forward.from_node = from.way.back_node;
        // One hop between a pod and another node or the world; none on this node, nor on arrival, nor for what the stack sends.
        let hop = via.kind() == Kind::Pod && to.way.leaves();
        forward.flags = flags | F_OPENER | if hop { 0 } else { F_NO_HOP };
        forward.src_slot = from.slot;
        forward.src_epoch = from.epoch;
        forward.dst_slot = to.slot;
        forward.dst_epoch = to.epoch;

        let reverse = &mut scratch.reverse;
        *reverse = FlowEntry { route_gen, egress_cookie, ingress_cookie, ..FlowEntry::default() };
        from.way.write(reverse);
        reverse.hook = to.way.back;
        reverse.from_node = to.way.back_node;
        let hop = to.way.is(FlowAction::Peer) && from.way.leaves();
        reverse.flags = flags | if hop { 0 } else { F_NO_HOP };
        let out = to.way.is(FlowAction::Pass) && to.way.target == via.out_of();
        if via.kind() == Kind::Out {
            reverse.flags |= F_OPPOSITE_OUT;
            reverse.target = via.out_of();
            if out {
                // Of a host outside: rp_filter wants it on the uplink it came in on, where the stack goes on with it.
                reverse.action = FlowAction::Pass as u8;
            }
        }
        reverse.src_slot = to.slot;
        reverse.src_epoch = to.epoch;
        reverse.dst_slot = from.slot;
        reverse.dst_epoch = from.epoch;

        let outside = (via.kind() == Kind::Pod && to.way.is(FlowAction::Uplink)) || (via.kind() == Kind::Out && out);
        scratch.uplink = if outside { to.way.target } else { 0 };
    }

    /// The sender, into `scratch.from`: whether it may be who it says, its egress rules, and the way back to it. `back_node` of that way is
    /// the node whose tunnel it arrives from.
    #[inline(always)]
    fn source(&mut self, route_gen: u32) -> Result<Found, DropReason> {
        let tables = self.tables;
        let question = &self.scratch.question;
        let (kind, hook) = (question.via.kind(), question.via.hook);
        let slot = match kind {
            Kind::Pod => tables.slot_by_ifindex(hook).ok_or(DropReason::UnknownLink)?,
            Kind::Door | Kind::Out => tables.slot_by_addr(&question.src).unwrap_or(0),
            Kind::Uplink | Kind::Tunnel => 0,
        };
        if slot != 0 {
            // Of a pod of this node: from its link, or come back out of the stack and judged as it leaves the pod.
            let epoch = tables.epoch(slot);
            let endpoint = tables.endpoint(slot).ok_or(DropReason::UnknownLink)?;
            guard(endpoint, &question.src, question.v6 != 0)?;
            if kind == Kind::Pod && endpoint.flags & E_SLOW_PATH != 0 {
                if self.is_for_a_tunnel() {
                    return Err(DropReason::TunnelFromPod);
                }
                // Up its own link, which the stack's route to it leads to; what the stack makes of it is judged where it leaves the stack.
                return Ok(Found::Foreign);
            }
            let way = if kind == Kind::Pod { Way::peer(hook) } else { Way::stack() };
            self.scratch.from = End { slot, epoch, rules: endpoint.egress_rules, unjudged: 0, way };
            return Ok(Found::Known);
        }
        self.scratch.from = End::elsewhere(Way::stack(), route_gen);
        match kind {
            Kind::Door => return Ok(Found::Known),
            Kind::Out => return Ok(Found::Foreign),
            _ => {}
        }
        let question = &self.scratch.question;
        if question.src.is_of_a_link() {
            return Err(DropReason::Martian);
        }
        let place = route::place(tables, &question.src);
        match place.kind {
            Some(RouteKind::RemoteBlock | RouteKind::RemoteNode) => {
                let node = tables.node(place.node).ok_or(DropReason::NoNode)?;
                let tunnel = kind == Kind::Tunnel;
                let foreign = !question.via.outer.is_none() && node.tunnel != question.via.outer;
                if (tunnel && foreign) || (!tunnel && node.flags & N_TUNNEL != 0) {
                    return Err(DropReason::TunnelSpoof);
                }
                let way = Way::node(place.node, node);
                self.scratch.from.way = Way { back_node: if tunnel { place.node } else { 0 }, ..way };
                Ok(Found::Known)
            }
            _ if kind == Kind::Tunnel => Err(DropReason::TunnelSpoof),
            Some(RouteKind::Unowned) => Err(DropReason::Unowned),
            Some(_) => Err(DropReason::Martian),
            None => Ok(Found::Outside),
        }
    }

    /// Whether it has the tunnel's port and is for no pod. A node is believed by its tunnel address, and what leaves for anything but a pod
    /// carries this node's: also an address that no row names may be a node's.
    #[inline(always)]
    fn is_for_a_tunnel(&self) -> bool {
        let question = &self.scratch.question;
        if question.proto != UDP || question.dport != self.config.tunnel_port {
            return false;
        }
        let kind = route::place(self.tables, &question.dst).kind;
        !matches!(kind, Some(RouteKind::LocalBlock | RouteKind::RemoteBlock))
    }

    /// The receiver, into `scratch.to`: where it is, its ingress rules, and the way to it.
    #[inline(always)]
    fn destination(&mut self, route_gen: u32, from: Found) -> Result<Found, DropReason> {
        let tables = self.tables;
        let question = &self.scratch.question;
        let kind = question.via.kind();
        let place = route::place(tables, &question.dst);
        if self.scratch.from.slot != 0 && self.is_for_a_tunnel() {
            return Err(DropReason::TunnelFromPod);
        }
        let mut unjudged = 0;
        let way = match place.kind {
            Some(RouteKind::LocalBlock) => {
                if kind == Kind::Out {
                    return Ok(Found::Foreign);
                }
                let slot = tables.slot_by_addr(&question.dst).ok_or(DropReason::NoEndpoint)?;
                let epoch = tables.epoch(slot);
                let endpoint = tables.endpoint(slot).ok_or(DropReason::NoEndpoint)?;
                // The slot may have got another pod between the two reads.
                if !owns(endpoint, &question.dst, question.v6 != 0) {
                    return Err(DropReason::NoEndpoint);
                }
                if endpoint.flags & E_READY == 0 {
                    return Err(DropReason::NotReady);
                }
                // What is at the door has been through the stack, which has no other way to this pod.
                let slow = endpoint.flags & E_SLOW_PATH != 0 && kind != Kind::Door;
                let way = if slow { Way::stack() } else { Way::peer(endpoint.ifindex) };
                self.scratch.to = End { slot, epoch, rules: endpoint.ingress_rules, unjudged: 0, way };
                return Ok(Found::Known);
            }
            // The node's own business: what an old entry made look like an answer is not.
            Some(RouteKind::LocalNode) if kind == Kind::Uplink && from == Found::Outside => return Ok(Found::Foreign),
            Some(RouteKind::LocalNode) if matches!(kind, Kind::Pod | Kind::Uplink | Kind::Tunnel) => Way::stack(),
            // This node is no way from one node to another.
            _ if matches!(kind, Kind::Uplink | Kind::Tunnel) => return Ok(Found::Foreign),
            Some(RouteKind::RemoteBlock | RouteKind::RemoteNode) => {
                let way = Way::node(place.node, tables.node(place.node).ok_or(DropReason::NoNode)?);
                if kind == Kind::Out && way.is(FlowAction::Native) { Way::pass(0) } else { way }
            }
            Some(RouteKind::Unowned) => return Err(DropReason::Unowned),
            Some(RouteKind::Stack) if kind == Kind::Pod => {
                unjudged = 1;
                Way::stack()
            }
            // A service that the stack did not translate either: as the host outside that it is sent to.
            None | Some(RouteKind::Stack) if kind == Kind::Out => Way::pass(question.via.out_of()),
            Some(_) if kind == Kind::Out => return Ok(Found::Foreign),
            None if kind == Kind::Pod => {
                self.scratch.to = End::elsewhere(Way::stack(), route_gen);
                return Ok(Found::Outside);
            }
            Some(_) | None => return Err(DropReason::Door),
        };
        self.scratch.to = End { unjudged, ..End::elsewhere(way, route_gen) };
        Ok(Found::Known)
    }
}

#[inline(always)]
fn owns(endpoint: &Endpoint, addr: &Addr, v6: bool) -> bool {
    let own = if v6 { Addr::v6(endpoint.v6) } else { Addr::v4(endpoint.v4) };
    own == *addr
}

/// The source guard: a pod sends from its own addresses, once it is committed.
///
/// # Errors
/// The reason to drop what it sent.
#[inline(always)]
pub fn guard(endpoint: &Endpoint, src: &Addr, v6: bool) -> Result<(), DropReason> {
    if endpoint.flags & E_READY == 0 {
        return Err(DropReason::NotReady);
    }
    let own = if v6 { Addr::v6(endpoint.v6) } else { Addr::v4(endpoint.v4) };
    // First: the row's word for "none" is an address that a pod can send from.
    if own == Addr::NONE || own == Addr::v4([0; 4]) {
        return Err(DropReason::Family);
    }
    if own == *src { Ok(()) } else { Err(DropReason::SourceGuard) }
}
