//! What policy says of first packets, at every hook where one is judged.

use super::*;
use crate::layout::policy::{CLASS_BITS, PORT_BITS, PROTO_BITS, V_ALLOW};
use crate::layout::route::RouteKind;
use crate::layout::{Asked, Route, Uplink, VerdictKey};
use crate::logic::packet::TunnelKey;
use crate::logic::testing::{allow_loose, verdict};

mod again;
mod errors;
mod fragments;

/// A rule set that allows what a test adds to it.
const SET: u32 = 7;
/// What it says of who is not allowed.
const ISOLATED: u32 = 70;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const EGRESS: Verdict = Verdict::drop(DropReason::PolicyEgress);
const INGRESS: Verdict = Verdict::drop(DropReason::PolicyIngress);

fn row(tables: &mut FakeTables, bits: u32, asked: Asked, flags: u32, cookie: u32) {
    verdict(tables, bits, Asked { set: SET, ..asked }, flags, cookie);
}

/// A node whose rule set allows nothing yet; nobody has it.
fn policed() -> FakeTables {
    let mut tables = node();
    row(&mut tables, CLASS_BITS, Asked::default(), 0, ISOLATED);
    tables
}

fn about(class: u32, proto: u8, port: u16) -> Asked {
    Asked { class, proto, port: port.to_be_bytes(), ..Asked::default() }
}

/// Allows a port to a class.
fn allow(tables: &mut FakeTables, class: u32, proto: u8, port: u16, cookie: u32) {
    row(tables, PORT_BITS, about(class, proto, port), V_ALLOW, cookie);
}

/// Allows fragments without a first one to anybody.
fn allow_fragments(tables: &mut FakeTables, proto: u8, cookie: u32) {
    allow_loose(tables, Asked { set: SET, ..Asked::default() }, proto, cookie);
}

fn egress(tables: &mut FakeTables, slot: u32, set: u32) {
    tables.endpoints.get_mut(&slot).unwrap().egress_rules = set;
}

fn ingress(tables: &mut FakeTables, slot: u32, set: u32) {
    tables.endpoints.get_mut(&slot).unwrap().ingress_rules = set;
}

fn raise(tables: &FakeTables, slot: u32) {
    *tables.epochs.borrow_mut().get_mut(&slot).unwrap() += 1;
}

/// No entry in any table.
fn is_untouched(tables: &FakeTables) -> bool {
    [&tables.flow4, &tables.flow4_new].iter().all(|rows| rows.borrow().is_empty())
        && [&tables.flow6, &tables.flow6_new].iter().all(|rows| rows.borrow().is_empty())
}

fn udp6(src: [u8; 16], dst: [u8; 16], ports: (u16, u16), link: u32) -> FakePacket {
    FakePacket::new(build::ipv6(src, dst, UDP, &build::udp(&src, &dst, ports.0, ports.1, b"data")), link)
}

fn echo(src: [u8; 4], dst: [u8; 4], identifier: u16, link: u32) -> FakePacket {
    let [i0, i1] = identifier.to_be_bytes();
    FakePacket::new(build::ipv4(src, dst, ICMP, &build::icmp(8, 0, [i0, i1, 0, 1], b"data", None)), link)
}

fn a_sends(tables: &FakeTables, mut packet: FakePacket) -> Verdict {
    drive(Hook::FromPod, &mut packet, tables, START)
}

#[test]
fn a_denied_packet_leaves_no_entry_and_a_drop_row_that_names_what_isolates() {
    for (isolate, reason) in
        [(egress as fn(&mut _, _, _), DropReason::PolicyEgress), (ingress, DropReason::PolicyIngress)]
    {
        let mut tables = policed();
        isolate(&mut tables, if reason == DropReason::PolicyEgress { 1 } else { 2 }, SET);
        let (a, b) = (pod6(2), pod6(3));
        for mut packet in
            [tcp(A, B, (1000, 80), SYN, b"", LINK_A), udp6(a, b, (1000, 80), LINK_A), echo(A, B, 80, LINK_A)]
        {
            let mut scratch = Scratch::default();
            assert_eq!(drive_with(Hook::FromPod, &mut packet, &tables, &mut scratch, START), Verdict::drop(reason));
            assert_eq!(scratch.drop.cookie, ISOLATED);
        }
        assert!(is_untouched(&tables));
        assert_eq!(tables.stat(Stat::FlowOpened), 0);
    }
}

#[test]
fn no_cookie_of_a_packet_before_stands_in_a_drop_row_of_other_reasons() {
    let mut tables = policed();
    egress(&mut tables, 1, SET);
    let mut scratch = Scratch::default();
    drive_with(Hook::FromPod, &mut udp(A, B, (1, 2), LINK_A), &tables, &mut scratch, START);
    assert_eq!(scratch.drop.cookie, ISOLATED);
    drive_with(Hook::FromPod, &mut udp(B, [10, 0, 1, 200], (1, 2), LINK_B), &tables, &mut scratch, START);
    assert_eq!(scratch.drop.cookie, 0);
}

#[test]
fn both_entries_of_an_allowed_flow_name_the_rules_that_allow_it() {
    let mut tables = policed();
    egress(&mut tables, 1, SET);
    ingress(&mut tables, 2, SET);
    tables.peers.insert(Addr::v4(A), 3);
    tables.peers.insert(Addr::v4(B), 4);
    // Each end is asked about the other.
    allow(&mut tables, 4, TCP, 80, 71);
    assert_eq!(from_a(&tables, SYN, b"", START), INGRESS);
    allow(&mut tables, 3, TCP, 80, 72);
    assert_eq!(from_a(&tables, SYN, b"", START), Verdict::peer(LINK_B));
    for direction in [key(A, B, (1000, 80), TCP), key(B, A, (80, 1000), TCP)] {
        let entry = entry(&tables, &direction, Table::Probation).unwrap();
        assert_eq!((entry.egress_cookie, entry.ingress_cookie), (71, 72));
    }
    // Who is not isolated has no rule that allows.
    egress(&mut tables, 1, 0);
    assert_eq!(a_sends(&tables, tcp(A, B, (1001, 80), SYN, b"", LINK_A)), Verdict::peer(LINK_B));
    let entry = entry(&tables, &key(A, B, (1001, 80), TCP), Table::Probation).unwrap();
    assert_eq!((entry.egress_cookie, entry.ingress_cookie), (0, 72));
}

#[test]
fn it_is_the_destinations_port_that_is_asked_in_both_directions() {
    let mut tables = policed();
    egress(&mut tables, 1, SET);
    ingress(&mut tables, 2, SET);
    allow(&mut tables, 0, UDP, 53, 71);
    assert_eq!(a_sends(&tables, udp(A, B, (1000, 53), LINK_A)), Verdict::peer(LINK_B));
    assert_eq!(a_sends(&tables, udp(A, B, (53, 1000), LINK_A)), EGRESS);
    egress(&mut tables, 1, 0);
    assert_eq!(a_sends(&tables, udp(A, B, (53, 1000), LINK_A)), INGRESS);
    assert_eq!(a_sends(&tables, tcp(A, B, (1000, 53), SYN, b"", LINK_A)), INGRESS, "another protocol");
}

#[test]
fn what_has_no_ports_is_asked_about_port_0() {
    let mut tables = policed();
    ingress(&mut tables, 2, SET);
    row(&mut tables, PROTO_BITS, about(0, ICMP, 0), 0, 71);
    // The identifier is no port, though the flow's key has it for one.
    allow(&mut tables, 0, ICMP, 80, 72);
    assert_eq!(a_sends(&tables, echo(A, B, 80, LINK_A)), INGRESS);
    allow(&mut tables, 0, ICMP, 0, 73);
    assert_eq!(a_sends(&tables, echo(A, B, 80, LINK_A)), Verdict::peer(LINK_B));
    let allowed = entry(&tables, &key(A, B, (80, 81), ICMP), Table::Probation).unwrap();
    assert_eq!(allowed.ingress_cookie, 73);
    // ESP, whose first bytes are no ports.
    let esp = || FakePacket::new(build::ipv4(A, B, 50, &[0, 80, 0, 80, 0, 0, 0, 1]), LINK_A);
    allow(&mut tables, 0, 50, 80, 74);
    assert_eq!(a_sends(&tables, esp()), INGRESS);
    allow(&mut tables, 0, 50, 0, 75);
    assert_eq!(a_sends(&tables, esp()), Verdict::peer(LINK_B));
}

#[test]
fn sctp_is_asked_about_its_port() {
    let mut tables = policed();
    egress(&mut tables, 1, SET);
    allow(&mut tables, 0, 132, 80, 71);
    let sctp = |port: u16| {
        let [p0, p1] = port.to_be_bytes();
        FakePacket::new(build::ipv4(A, B, 132, &[0x30, 0x39, p0, p1, 0, 0, 0, 0, 0, 0, 0, 0]), LINK_A)
    };
    assert_eq!(a_sends(&tables, sctp(80)), Verdict::peer(LINK_B));
    assert_eq!(a_sends(&tables, sctp(81)), EGRESS);
}

#[test]
fn a_pod_reaches_itself() {
    let mut tables = policed();
    egress(&mut tables, 1, SET);
    ingress(&mut tables, 1, SET);
    let a = pod6(2);
    assert_eq!(a_sends(&tables, udp(A, A, (1, 2), LINK_A)), Verdict::peer(LINK_A));
    assert_eq!(a_sends(&tables, udp6(a, a, (1, 2), LINK_A)), Verdict::peer(LINK_A));
    // Come back out of the stack from a service of its own.
    let door = tables.config.door_pods;
    assert_eq!(drive(Hook::FromDoor, &mut udp(A, A, (3, 4), door), &tables, START), Verdict::peer(LINK_A));
    assert_eq!(tables.judged.get(), 0);
}

#[test]
fn a_socket_of_the_node_reaches_its_pods_and_keeps_its_flows() {
    let mut tables = policed();
    ingress(&mut tables, 1, SET);
    egress(&mut tables, 1, SET);
    let (node4, door) = (tables.config.node4, tables.config.door_pods);
    let probe = |tables: &FakeTables, mark| {
        let mut packet = udp(node4, A, (1, 2), door);
        packet.mark = mark;
        drive(Hook::FromDoor, &mut packet, tables, START)
    };
    assert_eq!(probe(&tables, tables.config.mark), Verdict::peer(LINK_A));
    for _ in 0..2 {
        raise(&tables, 1);
        assert_eq!(a_sends(&tables, udp(A, node4, (2, 1), LINK_A)), Verdict::STACK, "an answer, judged by its opener");
    }
    raise(&tables, 1);
    assert_eq!(probe(&tables, tables.config.mark), Verdict::peer(LINK_A));
    assert_eq!(a_sends(&tables, udp(A, node4, (2, 3), LINK_A)), EGRESS, "to the node it may not open");
    // The node's address alone is no socket of it.
    let mut forwarded = udp(node4, A, (5, 2), door);
    assert_eq!(drive(Hook::FromDoor, &mut forwarded, &tables, START), INGRESS);
}

#[test]
fn what_the_stack_forwards_does_not_ride_a_flow_of_a_socket_of_the_node() {
    let mut tables = policed();
    let (node4, door) = (tables.config.node4, tables.config.door_pods);
    let to_a = |tables: &FakeTables, mark, flags| {
        let mut packet = tcp(node4, A, (1000, 80), flags, b"", door);
        packet.mark = mark;
        drive(Hook::FromDoor, &mut packet, tables, START)
    };
    let mark = tables.config.mark;
    ingress(&mut tables, 1, SET);
    let answer = |tables: &FakeTables, flags| a_sends(tables, tcp(A, node4, (80, 1000), flags, b"", LINK_A));
    assert_eq!(to_a(&tables, mark, SYN), Verdict::peer(LINK_A));
    assert_eq!(answer(&tables, SYN | ACK), Verdict::STACK);
    assert_eq!(to_a(&tables, mark, ACK), Verdict::peer(LINK_A));
    for raised in [false, true] {
        if raised {
            raise(&tables, 1);
        }
        assert_eq!(to_a(&tables, 0, ACK), INGRESS, "raised {raised}");
        assert_eq!(to_a(&tables, 0, SYN), INGRESS, "raised {raised}");
    }
    assert_eq!(answer(&tables, ACK), Verdict::STACK, "the socket's flow is not touched");
    assert_eq!(to_a(&tables, mark, ACK), Verdict::peer(LINK_A));
    // Nor one whose own direction was pushed out.
    tables.remove_flow4(&key(node4, A, (1000, 80), TCP), Table::Probation);
    assert_eq!(to_a(&tables, 0, ACK), INGRESS);
    assert_eq!(answer(&tables, ACK), Verdict::STACK);
    assert_eq!(to_a(&tables, mark, ACK), Verdict::peer(LINK_A));
}

#[test]
fn what_the_node_answers_to_a_pod_without_a_socket_passes() {
    let mut tables = policed();
    ingress(&mut tables, 1, SET);
    let (node4, door) = (tables.config.node4, tables.config.door_pods);
    assert_eq!(a_sends(&tables, tcp(A, node4, (1000, 80), SYN, b"", LINK_A)), Verdict::STACK);
    let mut reset = tcp(node4, A, (80, 1000), RST | ACK, b"", door);
    assert_eq!(drive(Hook::FromDoor, &mut reset, &tables, START), Verdict::peer(LINK_A));
}

#[test]
fn an_address_of_the_host_that_no_row_names_is_judged_as_any_address_outside() {
    let mut tables = policed();
    egress(&mut tables, 1, SET);
    let send = |tables: &FakeTables| {
        let mut packet = udp(A, OUTSIDE, (1000, 53), LINK_A);
        packet.fib = Fib::NotForwarded;
        drive(Hook::FromPod, &mut packet, tables, START)
    };
    assert_eq!(send(&tables), EGRESS);
    allow(&mut tables, 0, UDP, 53, 71);
    assert_eq!(send(&tables), Verdict::STACK);
}

#[test]
fn what_the_stack_translates_first_is_judged_when_it_comes_back() {
    let mut tables = policed();
    let service = [10, 96, 0, 10];
    let route = Route { kind: RouteKind::Stack as u8, zero: 0, node: 0 };
    tables.routes.push((96 + 16, Addr::v4([10, 96, 0, 0]), route));
    egress(&mut tables, 1, SET);
    assert_eq!(a_sends(&tables, udp(A, service, (1000, 53), LINK_A)), Verdict::STACK);
    let door = tables.config.door_pods;
    let back = |tables: &FakeTables, port| drive(Hook::FromDoor, &mut udp(A, B, (1000, port), door), tables, START);
    assert_eq!(back(&tables, 5353), EGRESS);
    allow(&mut tables, 0, UDP, 5353, 71);
    assert_eq!(back(&tables, 5353), Verdict::peer(LINK_B));
    ingress(&mut tables, 2, SET + 1);
    raise(&tables, 2);
    assert_eq!(back(&tables, 5353), INGRESS);
}

#[test]
fn what_the_stack_sends_out_for_a_pod_is_judged_on_its_way() {
    let mut tables = policed();
    tables.uplinks.insert(UPLINK, Uplink { v4: tables.config.node4, mtu: 1500, ..Uplink::default() });
    remote(&mut tables, 0);
    let route = Route { kind: RouteKind::Stack as u8, zero: 0, node: 0 };
    tables.routes.push((96 + 16, Addr::v4([10, 96, 0, 0]), route));
    egress(&mut tables, 1, SET);
    // The last one: a service of which the stack knows no pods.
    let everywhere = [OUTSIDE, REMOTE, [192, 168, 0, 2], [10, 96, 0, 10]];
    let out = |tables: &FakeTables, dst| drive(Hook::ToUplink, &mut udp(A, dst, (1000, 53), UPLINK), tables, START);
    for dst in everywhere {
        assert_eq!(out(&tables, dst), EGRESS, "{dst:?}");
    }
    allow(&mut tables, 0, UDP, 53, 71);
    for dst in everywhere {
        assert_eq!(out(&tables, dst), Verdict::NEXT, "{dst:?}");
    }
}

#[test]
fn a_pod_is_judged_on_its_way_to_other_nodes_to_its_own_and_to_the_world() {
    let mut tables = policed();
    tables.uplinks.insert(UPLINK, Uplink { v4: tables.config.node4, mtu: 1500, ..Uplink::default() });
    remote(&mut tables, 0);
    egress(&mut tables, 1, SET);
    let node4 = tables.config.node4;
    let send = |tables: &FakeTables, dst| {
        let mut packet = udp(A, dst, (1000, 53), LINK_A);
        packet.fib = Fib::Out { ifindex: UPLINK, next_hop: Addr::v4([192, 168, 0, 254]) };
        drive(Hook::FromPod, &mut packet, tables, START)
    };
    let everywhere = [REMOTE, [192, 168, 0, 2], node4, OUTSIDE];
    for dst in everywhere {
        assert_eq!(send(&tables, dst), EGRESS, "{dst:?}");
    }
    assert!(is_untouched(&tables));
    tables.peer_blocks.push((96, Addr::v4([0; 4]), 3));
    allow(&mut tables, 3, UDP, 53, 71);
    for dst in everywhere {
        assert_ne!(send(&tables, dst).kind(), crate::logic::verdict::Kind::Drop, "{dst:?}");
    }
}

#[test]
fn what_arrives_from_elsewhere_is_judged_by_the_receiver() {
    for tunnel in [false, true] {
        let mut tables = policed();
        remote(&mut tables, if tunnel { N_TUNNEL } else { 0 });
        ingress(&mut tables, 1, SET);
        let arrive = |tables: &FakeTables, src| {
            let mut packet = udp(src, A, (1000, 53), UPLINK);
            // The answers' way, to whom none of ours leads.
            packet.fib = Fib::Out { ifindex: UPLINK, next_hop: Addr::v4([192, 168, 0, 254]) };
            if !tunnel {
                return drive(Hook::FromUplink, &mut packet, tables, START);
            }
            packet.tunnel_key = Some(TunnelKey { vni: 1, remote: Addr::v4([192, 168, 0, 2]) });
            packet.ifindex = tables.config.tunnel_dev;
            drive(Hook::FromTunnelDevice, &mut packet, tables, START)
        };
        tables.uplinks.insert(UPLINK, Uplink { v4: tables.config.node4, mtu: 1500, ..Uplink::default() });
        let sources = if tunnel { vec![REMOTE] } else { vec![REMOTE, [192, 168, 0, 2], OUTSIDE] };
        for src in &sources {
            assert_eq!(arrive(&tables, *src), INGRESS, "{src:?}");
            tables.peers.insert(Addr::v4(*src), 3);
        }
        assert!(is_untouched(&tables));
        allow(&mut tables, 3, UDP, 53, 71);
        for src in sources {
            assert_eq!(arrive(&tables, src), Verdict::peer(LINK_A), "{src:?}");
        }
    }
}

#[test]
fn of_a_flow_that_is_known_nothing_is_asked() {
    let mut tables = policed();
    ingress(&mut tables, 2, SET);
    allow(&mut tables, 0, TCP, 80, 71);
    handshake(&tables);
    let asked = tables.judged.get();
    for data in [b"1", b"2", b"3"] {
        from_a(&tables, ACK, data, START);
        from_b(&tables, ACK, data, START);
    }
    assert_eq!((tables.judged.get(), asked), (1, 1));
}

#[test]
fn a_verdict_that_is_overtaken_by_a_change_is_asked_again_at_the_next_packet() {
    for (slot, isolate) in [(1, egress as fn(&mut _, _, _)), (2, ingress)] {
        let mut tables = policed();
        isolate(&mut tables, slot, SET);
        allow(&mut tables, 0, UDP, 53, 71);
        tables.changing.set(slot);
        assert_eq!(a_sends(&tables, udp(A, B, (1000, 53), LINK_A)), Verdict::peer(LINK_B));
        tables.changing.set(0);
        tables.verdicts.remove(&VerdictKey { bits: PORT_BITS, asked: Asked { set: SET, ..about(0, UDP, 53) } });
        let denied = if slot == 1 { EGRESS } else { INGRESS };
        assert_eq!(a_sends(&tables, udp(A, B, (1000, 53), LINK_A)), denied);
    }
}
