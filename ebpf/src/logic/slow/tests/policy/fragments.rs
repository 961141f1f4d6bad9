//! Fragments under policy: a later one has the ports of its first, and one whose first was not seen no more than its protocol's leave.

use super::*;
use crate::layout::flow::ZONE_LOOSE;

/// `field`: flags and offset; the builder's identification is always the same.
fn piece(src: [u8; 4], dst: [u8; 4], proto: u8, field: u16, payload: &[u8], link: u32) -> FakePacket {
    FakePacket::new(build::ipv4_with(src, dst, proto, field, &[], payload), link)
}

fn first(port: u16) -> FakePacket {
    piece(A, B, UDP, 0x2000, &build::udp(&A, &B, 1000, port, &[7; 64]), LINK_A)
}

/// Offset of 80 bytes, the last one.
fn later(proto: u8) -> FakePacket {
    piece(A, B, proto, 10, &[7; 64], LINK_A)
}

fn to_b() -> FakeTables {
    let mut tables = policed();
    ingress(&mut tables, 2, SET);
    tables
}

fn loose_key(src: [u8; 4], dst: [u8; 4], proto: u8) -> FlowKey4 {
    FlowKey4 { zone: ZONE_LOOSE, ..key(src, dst, (0, 0), proto) }
}

#[test]
fn later_fragments_have_their_firsts_verdict() {
    let mut tables = to_b();
    allow(&mut tables, 0, UDP, 53, 71);
    assert_eq!(a_sends(&tables, first(53)), Verdict::peer(LINK_B));
    assert_eq!(a_sends(&tables, later(UDP)), Verdict::peer(LINK_B));
    assert_eq!((tables.stat(Stat::FragmentFollowed), tables.stat(Stat::FragmentLoose)), (1, 0));
    assert_eq!(entry(&tables, &key(A, B, (1000, 53), UDP), Table::Probation).unwrap().packets, 2);

    tables.verdicts.remove(&VerdictKey { bits: PORT_BITS, asked: Asked { set: SET, ..about(0, UDP, 53) } });
    raise(&tables, 2);
    assert_eq!(a_sends(&tables, later(UDP)), INGRESS, "judged again by its first one's ports");
    allow(&mut tables, 0, UDP, 0, 72);
    assert_eq!(a_sends(&tables, later(UDP)), INGRESS, "and so for good");
}

#[test]
fn a_first_fragment_that_is_denied_gives_its_ports_to_nobody() {
    let mut tables = to_b();
    allow(&mut tables, 0, UDP, 53, 71);
    assert_eq!(a_sends(&tables, first(54)), INGRESS);
    assert!(tables.fragments.borrow().is_empty());
    assert_eq!(a_sends(&tables, later(UDP)), INGRESS, "no port of UDP is allowed to loose ones here");
}

#[test]
fn a_later_fragment_without_its_first_passes_where_any_port_of_its_protocol_is_allowed() {
    let mut tables = to_b();
    let mut scratch = Scratch::default();
    assert_eq!(drive_with(Hook::FromPod, &mut later(UDP), &tables, &mut scratch, START), INGRESS);
    assert_eq!(scratch.drop.cookie, ISOLATED);
    // Not by a row of port 0, which is a port like any other.
    allow(&mut tables, 0, UDP, 0, 71);
    assert_eq!(a_sends(&tables, later(UDP)), INGRESS);
    allow_fragments(&mut tables, UDP, 72);
    assert_eq!(a_sends(&tables, later(UDP)), Verdict::peer(LINK_B));
    assert_eq!(tables.stat(Stat::FragmentLoose), 1);
    assert_eq!(entry(&tables, &loose_key(A, B, UDP), Table::Probation).unwrap().ingress_cookie, 72);
    for proto in [TCP, 132] {
        assert_eq!(a_sends(&tables, later(proto)), INGRESS, "protocol {proto}");
    }
    row(&mut tables, CLASS_BITS, Asked::default(), V_ALLOW, 73);
    assert_eq!(a_sends(&tables, later(TCP)), Verdict::peer(LINK_B), "all traffic");
}

#[test]
fn a_loose_fragment_opens_nothing_but_to_its_like() {
    let mut tables = to_b();
    egress(&mut tables, 2, SET + 1);
    for proto in [TCP, UDP, 132] {
        allow_fragments(&mut tables, proto, 71);
    }
    for proto in [TCP, UDP, 132] {
        assert_eq!(a_sends(&tables, later(proto)), Verdict::peer(LINK_B), "protocol {proto}");
    }
    let is_denied = |packet: FakePacket, link, denied, what: &str| {
        let mut packet = packet;
        packet.ifindex = link;
        assert_eq!(drive(Hook::FromPod, &mut packet, &tables, START), denied, "{what}");
    };
    let tcp_of = |flags| tcp(A, B, (0, 0), flags, b"data", LINK_A);
    for (packet, what) in [
        (udp(A, B, (0, 0), LINK_A), "a datagram of port 0"),
        (tcp_of(SYN), "an opener of port 0"),
        (tcp_of(ACK), "a segment of port 0"),
        (piece(A, B, 132, 0, &[0; 12], LINK_A), "SCTP of port 0"),
        (piece(A, B, UDP, 0x2000, &build::udp(&A, &B, 0, 0, &[7; 64]), LINK_A), "a first fragment of port 0"),
    ] {
        is_denied(packet, LINK_A, INGRESS, what);
    }
    // Nor to answers that are none.
    for (packet, what) in [
        (udp(B, A, (0, 0), LINK_B), "an answer of port 0"),
        (tcp(B, A, (0, 0), SYN | ACK, b"", LINK_B), "a TCP answer of port 0"),
        (tcp(B, A, (0, 0), RST, b"", LINK_B), "a reset of port 0"),
    ] {
        is_denied(packet, LINK_B, EGRESS, what);
    }
    // ICMP and GRE have no ports of which any could be allowed.
    for proto in [ICMP, 47] {
        let whole = piece(A, B, proto, 0, &[13, 0, 0, 0, 0, 0, 0, 0], LINK_A);
        is_denied(later(proto), LINK_A, INGRESS, "a fragment without ports");
        is_denied(whole, LINK_A, INGRESS, "a whole packet without ports");
    }
}

#[test]
fn a_flow_of_port_0_is_no_leave_for_loose_fragments() {
    let mut tables = to_b();
    allow(&mut tables, 0, UDP, 0, 71);
    egress(&mut tables, 2, SET + 1);
    assert_eq!(a_sends(&tables, udp(A, B, (0, 0), LINK_A)), Verdict::peer(LINK_B));
    assert_eq!(a_sends(&tables, later(UDP)), INGRESS);
    assert_eq!(a_sends(&tables, piece(B, A, UDP, 10, &[7; 64], LINK_B)), EGRESS, "nor an answer");
}

#[test]
fn loose_fragments_end_with_their_leave_in_either_direction() {
    for answers in [false, true] {
        let mut tables = to_b();
        egress(&mut tables, 2, SET + 1);
        allow_fragments(&mut tables, UDP, 71);
        let answer = || piece(B, A, UDP, 10, &[7; 64], LINK_B);
        assert_eq!(a_sends(&tables, answer()), EGRESS);
        assert_eq!(a_sends(&tables, later(UDP)), Verdict::peer(LINK_B));
        assert_eq!(a_sends(&tables, answer()), Verdict::peer(LINK_A), "an answer may come in pieces out of order too");
        raise(&tables, 2);
        assert_eq!(
            a_sends(&tables, if answers { answer() } else { later(UDP) }).kind(),
            crate::logic::verdict::Kind::Peer
        );
        tables.verdicts.clear();
        raise(&tables, 2);
        assert_eq!(a_sends(&tables, if answers { answer() } else { later(UDP) }), INGRESS);
        egress(&mut tables, 2, 0);
        assert_eq!(a_sends(&tables, answer()), INGRESS, "none of B's own");
        assert_eq!(a_sends(&tables, later(UDP)), INGRESS);
    }
}

#[test]
fn a_loose_fragment_of_ipv6_is_judged_the_same_way() {
    let mut tables = to_b();
    let (a, b) = (pod6(2), pod6(3));
    let piece = |next: u8, offset: u16, payload: &[u8]| {
        let [o0, o1] = offset.to_be_bytes();
        FakePacket::new(build::ipv6(a, b, 44, &[&[next, 0, o0, o1, 0, 0, 0, 9][..], payload].concat()), LINK_A)
    };
    assert_eq!(a_sends(&tables, piece(UDP, 80, &[7; 8])), INGRESS);
    allow_fragments(&mut tables, UDP, 71);
    assert_eq!(a_sends(&tables, piece(UDP, 80, &[7; 8])), Verdict::peer(LINK_B));
    assert_eq!(a_sends(&tables, udp6(a, b, (0, 0), LINK_A)), INGRESS);
    // What comes in front of UDP in the first one may stand here: nobody knows that it is UDP.
    assert_eq!(a_sends(&tables, piece(60, 80, &[7; 8])), INGRESS);
    // An atomic fragment is a whole packet.
    assert_eq!(a_sends(&tables, piece(UDP, 0, &build::udp(&a, &b, 1000, 53, b""))), INGRESS);
}

#[test]
fn a_loose_fragment_to_the_world_is_judged_before_it_lacks_its_ports() {
    let mut tables = policed();
    tables.uplinks.insert(UPLINK, Uplink { v4: tables.config.node4, mtu: 1500, ..Uplink::default() });
    egress(&mut tables, 1, SET);
    let send = |tables: &FakeTables| {
        let mut packet = piece(A, OUTSIDE, UDP, 10, &[7; 64], LINK_A);
        packet.fib = Fib::Out { ifindex: UPLINK, next_hop: Addr::v4([192, 168, 0, 254]) };
        drive(Hook::FromPod, &mut packet, tables, START)
    };
    assert_eq!(send(&tables), EGRESS);
    allow_fragments(&mut tables, UDP, 71);
    assert_eq!(send(&tables), Verdict::drop(DropReason::FragNoFirst));
    assert!(is_untouched(&tables));
}

#[test]
fn a_loose_fragment_out_of_the_stack_is_judged_too() {
    let mut tables = to_b();
    egress(&mut tables, 1, SET + 1);
    let door = tables.config.door_pods;
    let arrive =
        |tables: &FakeTables, src| drive(Hook::FromDoor, &mut piece(src, B, UDP, 10, &[7; 64], door), tables, START);
    assert_eq!((arrive(&tables, OUTSIDE), arrive(&tables, A)), (INGRESS, EGRESS));
    allow_fragments(&mut tables, UDP, 71);
    assert_eq!((arrive(&tables, OUTSIDE), arrive(&tables, A)), (Verdict::peer(LINK_B), EGRESS));
    let out = drive(Hook::ToUplink, &mut piece(A, OUTSIDE, UDP, 10, &[7; 64], UPLINK), &tables, START);
    assert_eq!(out, EGRESS);
}
