//! The short way and the long one give the same answer, and leave the same rows.

use proptest::prelude::*;

use crate::layout::flow::{F_REPLIED, T_ESTABLISHED, T_FIN, T_FIN_PEER};
use crate::layout::{Addr, DropReason, FlowEntry, FlowKey4, Stat};
use crate::logic::packet::TunnelKey;
use crate::logic::parse::{ACK, FIN, RST, SYN};
use crate::logic::tables::{Entry, Table, Tables};
use crate::logic::testing::{FakePacket, FakeTables, build, drive, drive_from, node_row, pod6};
use crate::logic::verdict::Kind;
use crate::logic::{Hook, Stage, Verdict, pod};

const A: [u8; 4] = [10, 0, 1, 2];
const B: [u8; 4] = [10, 0, 1, 3];
const REMOTE: [u8; 4] = [10, 0, 2, 5];
const LINK_A: u32 = 12;
const LINK_B: u32 = 13;
const SECOND: u32 = 64;
const START: u32 = 10_000;

fn node() -> FakeTables {
    let mut tables = FakeTables::node();
    tables.pod(1, LINK_A, 2);
    tables.pod(2, LINK_B, 3);
    tables.nodes.insert(2, node_row(Addr::v4([192, 168, 0, 2]), 0));
    tables
}

fn tcp(from_a: bool, flags: u8) -> FakePacket {
    let (src, dst, ports, link) = if from_a { (A, B, (1000, 80), LINK_A) } else { (B, A, (80, 1000), LINK_B) };
    FakePacket::new(build::ipv4(src, dst, 6, &build::tcp(&src, &dst, ports.0, ports.1, flags, b"x")), link)
}

fn udp(src: [u8; 4], dst: [u8; 4], ports: (u16, u16), link: u32) -> FakePacket {
    FakePacket::new(build::ipv4(src, dst, 17, &build::udp(&src, &dst, ports.0, ports.1, b"data")), link)
}

fn entry(tables: &FakeTables, from_a: bool) -> FlowEntry {
    let (src, dst, sport, dport) = if from_a { (A, B, 1000_u16, 80_u16) } else { (B, A, 80, 1000) };
    let key =
        FlowKey4 { src, dst, sport: sport.to_be_bytes(), dport: dport.to_be_bytes(), proto: 6, ..FlowKey4::default() };
    tables.flow4(&key, Table::Probation).unwrap().get(|e| *e)
}

/// What the fast program alone says.
fn fast(tables: &FakeTables, from_a: bool, flags: u8) -> Verdict {
    pod::from(&mut tcp(from_a, flags), tables, START)
}

#[test]
fn only_the_first_packet_of_a_connection_takes_the_long_way() {
    let tables = node();
    assert_eq!(fast(&tables, true, SYN).kind(), Kind::Jump);
    drive(Hook::FromPod, &mut tcp(true, SYN), &tables, START);
    for (from_a, flags) in [
        (false, SYN | ACK),
        (true, ACK),
        (true, ACK),
        (false, ACK),
        (true, ACK),
        (true, ACK | FIN),
        (false, ACK | FIN),
        (true, ACK),
        (false, RST),
    ] {
        let to = if from_a { LINK_B } else { LINK_A };
        assert_eq!(fast(&tables, from_a, flags), Verdict::peer(to), "{from_a} {flags:#x}");
    }
    let (there, back) = (entry(&tables, true), entry(&tables, false));
    assert_eq!((there.packets, back.packets), (6, 4));
    assert!(there.flags & F_REPLIED != 0 && there.replied == START);
    for entry in [there, back] {
        assert_eq!(entry.tcp & (T_ESTABLISHED | T_FIN | T_FIN_PEER), T_ESTABLISHED | T_FIN | T_FIN_PEER);
    }
}

#[test]
fn a_length_that_does_not_hold_its_headers_is_malformed_in_a_known_flow_as_well() {
    let tables = node();
    let packet = || udp(A, B, (5, 6), LINK_A);
    assert_eq!(drive(Hook::FromPod, &mut packet(), &tables, START), Verdict::peer(LINK_B));
    for length in [0, 19, 20, 27] {
        let mut cut = packet();
        cut.bytes[17] = length;
        assert_eq!(drive(Hook::FromPod, &mut cut, &tables, START), Verdict::drop(DropReason::Malformed), "{length}");
    }
    let (a, b) = (pod6(2), pod6(3));
    let packet = || FakePacket::new(build::ipv6(a, b, 17, &build::udp(&a, &b, 5, 6, b"data")), LINK_A);
    assert_eq!(drive(Hook::FromPod, &mut packet(), &tables, START), Verdict::peer(LINK_B));
    for length in [0, 7] {
        let mut cut = packet();
        cut.bytes[19] = length;
        assert_eq!(drive(Hook::FromPod, &mut cut, &tables, START), Verdict::drop(DropReason::Malformed), "{length}");
    }
}

#[test]
fn a_stranger_inside_a_tunnel_neither_counts_in_a_flow_nor_keeps_it_alive() {
    let tables = node();
    let from = |host: [u8; 4], now| {
        let mut packet = udp(REMOTE, A, (1, 2), 52);
        packet.tunnel_key = Some(TunnelKey { vni: 1, remote: Addr::v4(host) });
        drive(Hook::FromTunnelDevice, &mut packet, &tables, now)
    };
    assert_eq!(from([192, 168, 0, 2], START), Verdict::peer(LINK_A));
    assert_eq!(from([192, 168, 0, 9], START + SECOND), Verdict::drop(DropReason::TunnelSpoof));
    let rows = tables.flow4_new.borrow();
    let (_, entry) = rows.iter().find(|(key, _)| key.src == REMOTE).unwrap();
    let entry = entry.borrow();
    assert_eq!((entry.packets, entry.last_seen), (1, START));
}

#[test]
fn flows_of_no_pod_of_this_node_share_one_share_of_the_established_table() {
    let mut tables = node();
    tables.config.endpoint_flows = 1;
    for port in [1000, 1001] {
        let send = |now| drive(Hook::FromDoor, &mut udp([203, 0, 113, 7], REMOTE, (port, 53), 51), &tables, now);
        for now in [START, START, START, START, START, START, START, START + SECOND] {
            assert_eq!(send(now).kind(), Kind::Neighbour);
        }
    }
    assert_eq!((tables.stat(Stat::FlowPromoted), tables.stat(Stat::FlowEndpointFull)), (1, 1));
    assert_eq!(tables.endpoint_flows(0), 1);
}

#[test]
fn a_stream_that_is_answered_or_established_after_its_promotion_says_so() {
    let tables = node();
    for n in 0..8 {
        let now = START + n / 7 * SECOND;
        assert_eq!(drive(Hook::FromPod, &mut udp(A, B, (5, 6), LINK_A), &tables, now), Verdict::peer(LINK_B));
        // Picked up in its middle: no SYN was seen.
        assert_eq!(drive(Hook::FromPod, &mut tcp(true, ACK), &tables, now), Verdict::peer(LINK_B));
    }
    assert_eq!(tables.stat(Stat::FlowPromoted), 2);
    let now = START + SECOND;
    assert_eq!(drive(Hook::FromPod, &mut udp(B, A, (6, 5), LINK_B), &tables, now), Verdict::peer(LINK_A));
    assert_eq!(drive(Hook::FromPod, &mut tcp(false, ACK), &tables, now), Verdict::peer(LINK_A));
    assert_eq!(drive(Hook::FromPod, &mut tcp(true, ACK), &tables, now), Verdict::peer(LINK_B));
    let rows = tables.flow4.borrow();
    assert_eq!(rows.len(), 4);
    for (key, entry) in rows.iter() {
        let entry = entry.borrow();
        assert!(entry.flags & F_REPLIED != 0, "{key:?}");
        assert_eq!(entry.tcp, if key.proto == 6 { T_ESTABLISHED } else { 0 }, "{key:?}");
    }
}

/// A packet of one conversation: who sends, TCP flags (`None`: a datagram of a conversation of its own), ticks since the one before.
fn packets() -> impl Strategy<Value = Vec<(bool, Option<u8>, u32)>> {
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, ACK, ACK, ACK | FIN, RST, RST | ACK, SYN | FIN]);
    let wait = prop_oneof![4 => 0..3_u32, 1 => 0..200 * SECOND];
    prop::collection::vec((any::<bool>(), prop::option::weighted(0.8, flags), wait), 1..40)
}

proptest! {
    #[test]
    fn both_ways_give_the_same_verdicts_and_rows(packets in packets()) {
        let (short, long) = (node(), node());
        let mut now = START;
        for (from_a, flags, wait) in packets {
            now += wait;
            let packet = || match flags {
                Some(flags) => tcp(from_a, flags),
                None if from_a => udp(A, B, (5, 6), LINK_A),
                None => udp(B, A, (6, 5), LINK_B),
            };
            let one = drive(Hook::FromPod, &mut packet(), &short, now);
            let other = drive_from(Stage::Pod4, &mut packet(), &long, now);
            prop_assert_eq!(one, other);
            prop_assert_eq!(&short.flow4, &long.flow4);
            prop_assert_eq!(&short.flow4_new, &long.flow4_new);
            prop_assert_eq!(&short.stats, &long.stats);
        }
    }
}
