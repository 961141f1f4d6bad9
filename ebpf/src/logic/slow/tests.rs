use crate::layout::endpoint::{E_PRESENT, E_READY};
use crate::layout::flow::{F_OPENER, F_REPLIED, HOOK_DOOR, HOOK_TUNNEL, HOOK_UPLINK, T_ESTABLISHED, T_RST};
use crate::layout::node::N_TUNNEL;
use crate::layout::{Addr, DropKey, DropReason, Endpoint, FlowEntry, FlowKey4, Node, Stat};
use crate::logic::packet::Fib;
use crate::logic::parse::{ACK, FIN, RST, SYN};
use crate::logic::tables::{Entry, Insert, Table, Tables};
use crate::logic::testing::{FakePacket, FakeTables, build, drive, drive_with, node_row, pod6};
use crate::logic::{FlowKey, Hook, Scratch, Verdict};

mod outside;
mod policy;
mod promotion;
mod slots;
mod stack;

const A: [u8; 4] = [10, 0, 1, 2];
const B: [u8; 4] = [10, 0, 1, 3];
const REMOTE: [u8; 4] = [10, 0, 2, 5];
const OUTSIDE: [u8; 4] = [203, 0, 113, 7];
const LINK_A: u32 = 12;
const LINK_B: u32 = 13;
const UPLINK: u32 = 4;
/// A second, in ticks.
const SECOND: u32 = 64;
const START: u32 = 10_000;

fn node() -> FakeTables {
    let mut tables = FakeTables::node();
    tables.pod(1, LINK_A, 2);
    tables.pod(2, LINK_B, 3);
    tables
}

fn remote(tables: &mut FakeTables, flags: u32) {
    let next_hop6 = Addr::v6([0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    tables.nodes.insert(2, Node { next_hop6, ..node_row(Addr::v4([192, 168, 0, 2]), flags) });
}

fn tcp(src: [u8; 4], dst: [u8; 4], ports: (u16, u16), flags: u8, payload: &[u8], link: u32) -> FakePacket {
    let bytes = build::tcp(&src, &dst, ports.0, ports.1, flags, payload);
    FakePacket::new(build::ipv4(src, dst, 6, &bytes), link)
}

fn udp(src: [u8; 4], dst: [u8; 4], ports: (u16, u16), link: u32) -> FakePacket {
    FakePacket::new(build::ipv4(src, dst, 17, &build::udp(&src, &dst, ports.0, ports.1, b"data")), link)
}

fn key(src: [u8; 4], dst: [u8; 4], ports: (u16, u16), proto: u8) -> FlowKey4 {
    FlowKey4 { src, dst, sport: ports.0.to_be_bytes(), dport: ports.1.to_be_bytes(), proto, ..FlowKey4::default() }
}

fn entry(tables: &FakeTables, key: &FlowKey4, table: Table) -> Option<FlowEntry> {
    tables.flow4(key, table).map(|e| e.get(|e| *e))
}

fn from_a(tables: &FakeTables, flags: u8, payload: &[u8], now: u32) -> Verdict {
    drive(Hook::FromPod, &mut tcp(A, B, (1000, 80), flags, payload, LINK_A), tables, now)
}

fn from_b(tables: &FakeTables, flags: u8, payload: &[u8], now: u32) -> Verdict {
    drive(Hook::FromPod, &mut tcp(B, A, (80, 1000), flags, payload, LINK_B), tables, now)
}

fn handshake(tables: &FakeTables) {
    assert_eq!(from_a(tables, SYN, b"", START), Verdict::peer(LINK_B));
    assert_eq!(from_b(tables, SYN | ACK, b"", START), Verdict::peer(LINK_A));
    assert_eq!(from_a(tables, ACK, b"", START), Verdict::peer(LINK_B));
}

#[test]
fn a_first_packet_writes_both_directions_and_the_packet_is_not_touched() {
    let tables = node();
    let mut packet = tcp(A, B, (1000, 80), SYN, b"", LINK_A);
    let before = packet.bytes.clone();
    assert_eq!(drive(Hook::FromPod, &mut packet, &tables, START), Verdict::peer(LINK_B));
    assert_eq!(packet.bytes, before, "forwarding on one node writes nothing");
    let there = entry(&tables, &key(A, B, (1000, 80), 6), Table::Probation).unwrap();
    let back = entry(&tables, &key(B, A, (80, 1000), 6), Table::Probation).unwrap();
    assert_eq!((there.hook, there.target, there.packets), (LINK_A, LINK_B, 1));
    assert_eq!((back.hook, back.target, back.packets), (LINK_B, LINK_A, 0));
    assert_eq!((there.flags & F_OPENER, back.flags & F_OPENER), (F_OPENER, 0));
    assert_eq!(tables.stat(Stat::FlowOpened), 1);
}

#[test]
fn a_packet_of_a_known_flow_costs_one_miss_at_most() {
    let tables = node();
    handshake(&tables);
    tables.lookups.set(0);
    let mut packet = tcp(A, B, (1000, 80), ACK, b"data", LINK_A);
    drive(Hook::FromPod, &mut packet, &tables, START);
    assert_eq!(tables.lookups.get(), 2, "on probation: a miss and a hit");
    from_a(&tables, ACK, b"data", START + 1);
    from_a(&tables, ACK, b"data", START + 1);
    tables.lookups.set(0);
    from_a(&tables, ACK, b"data", START + 1);
    assert_eq!(tables.lookups.get(), 1, "established");
}

#[test]
fn an_idle_direction_lives_as_long_as_the_other_is_busy() {
    let tables = node();
    let send = |now| drive(Hook::FromPod, &mut udp(A, B, (5, 6), LINK_A), &tables, now);
    send(START);
    for i in 1..20 {
        send(START + i * 30 * SECOND);
    }
    let mut late = udp(B, A, (6, 5), LINK_B);
    assert_eq!(drive(Hook::FromPod, &mut late, &tables, START + 571 * SECOND), Verdict::peer(LINK_A));
    assert_eq!(tables.stat(Stat::FlowOpened), 1, "an answer, not a flow of its own");
}

#[test]
fn an_expired_flow_is_a_new_one_in_either_direction() {
    let tables = node();
    drive(Hook::FromPod, &mut udp(A, B, (5, 6), LINK_A), &tables, START);
    let now = START + 61 * SECOND;
    drive(Hook::FromPod, &mut udp(B, A, (6, 5), LINK_B), &tables, now);
    assert_eq!(tables.stat(Stat::FlowOpened), 2);
    let there = entry(&tables, &key(B, A, (6, 5), 17), Table::Probation).unwrap();
    assert!(there.flags & F_OPENER != 0, "the other one opened it");
    assert_eq!(entry(&tables, &key(A, B, (5, 6), 17), Table::Probation).unwrap().flags & F_OPENER, 0);
}

#[test]
fn an_expired_established_flow_starts_anew_on_probation() {
    let tables = node();
    handshake(&tables);
    for data in [b"1", b"2", b"3"] {
        from_a(&tables, ACK, data, START);
    }
    assert_eq!(tables.flow4.borrow().len(), 2);
    from_a(&tables, SYN, b"", START + 7 * 3600 * SECOND);
    assert!(tables.flow4.borrow().is_empty());
    assert_eq!(entry(&tables, &key(A, B, (1000, 80), 6), Table::Probation).unwrap().packets, 1);
}

#[test]
fn a_syn_reopens_a_closing_connection_but_not_a_living_one() {
    let tables = node();
    handshake(&tables);
    from_a(&tables, SYN, b"", START);
    assert_eq!(tables.stat(Stat::FlowOpened), 1);
    from_a(&tables, ACK | FIN, b"", START);
    from_a(&tables, SYN, b"", START);
    assert_eq!(tables.stat(Stat::FlowOpened), 2);
    let there = entry(&tables, &key(A, B, (1000, 80), 6), Table::Probation).unwrap();
    assert_eq!((there.packets, there.tcp & T_ESTABLISHED), (1, 0));
}

#[test]
fn simultaneous_open_keeps_the_first_direction() {
    let tables = node();
    from_a(&tables, SYN, b"", START);
    from_b(&tables, SYN, b"", START);
    assert_eq!(tables.stat(Stat::FlowOpened), 1);
    assert_eq!(entry(&tables, &key(B, A, (80, 1000), 6), Table::Probation).unwrap().flags & F_OPENER, 0);
}

#[test]
fn an_answer_whose_entry_was_pushed_out_is_still_an_answer() {
    let tables = node();
    handshake(&tables);
    tables.remove_flow4(&key(B, A, (80, 1000), 6), Table::Probation);
    assert_eq!(from_b(&tables, ACK, b"answer", START), Verdict::peer(LINK_A));
    let back = entry(&tables, &key(B, A, (80, 1000), 6), Table::Probation).unwrap();
    assert_eq!((back.flags & F_OPENER, back.hook), (0, LINK_B));
    let there = entry(&tables, &key(A, B, (1000, 80), 6), Table::Probation).unwrap();
    assert_eq!(there.packets, 2, "the other direction keeps its counters");
}

#[test]
fn a_pod_can_not_send_as_another_nor_ride_its_flow() {
    let tables = node();
    handshake(&tables);
    // Pod B sends pod A's own packets.
    let mut forged = tcp(A, B, (1000, 80), ACK, b"forged", LINK_B);
    assert_eq!(drive(Hook::FromPod, &mut forged, &tables, START), Verdict::drop(DropReason::SourceGuard));
    let there = entry(&tables, &key(A, B, (1000, 80), 6), Table::Probation).unwrap();
    assert_eq!((there.packets, there.hook), (2, LINK_A), "the flow is as it was");
    assert_eq!(from_a(&tables, ACK, b"data", START), Verdict::peer(LINK_B));
}

#[test]
fn the_drop_row_says_who_and_why() {
    let tables = node();
    let mut scratch = Scratch::default();
    let mut packet = tcp(OUTSIDE, B, (1000, 80), SYN, b"", LINK_A);
    let verdict = drive_with(Hook::FromPod, &mut packet, &tables, &mut scratch, START);
    assert_eq!(verdict, Verdict::drop(DropReason::SourceGuard));
    assert_eq!((scratch.drop.src, scratch.drop.dst), (Addr::v4(OUTSIDE), Addr::v4(B)));
    assert_eq!((scratch.drop.dport, scratch.drop.proto, scratch.drop.ifindex), (80_u16.to_be_bytes(), 6, LINK_A));
}

#[test]
fn the_drop_row_is_of_the_packet_itself() {
    let tables = node();
    let mut scratch = Scratch::default();
    let mut row_of = |packet: &mut FakePacket| {
        // Somebody else's packet comes first on this CPU.
        let mut other = tcp(OUTSIDE, B, (1000, 80), SYN, b"", LINK_B);
        drive_with(Hook::FromPod, &mut other, &tables, &mut scratch, START);
        let verdict = drive_with(Hook::FromPod, packet, &tables, &mut scratch, START);
        (verdict, scratch.drop)
    };
    let (verdict, row) = row_of(&mut udp(A, [224, 0, 0, 5], (1, 2), LINK_A));
    assert_eq!(verdict, Verdict::drop(DropReason::Multicast));
    assert_eq!((row.src, row.dst, row.ifindex), (Addr::v4(A), Addr::v4([224, 0, 0, 5]), LINK_A));

    let unread = DropKey { ifindex: LINK_A, ..DropKey::default() };
    let mut no_version = udp(A, B, (1, 2), LINK_A);
    no_version.bytes[14] = 0x05;
    assert_eq!(row_of(&mut no_version), (Verdict::drop(DropReason::Malformed), unread));
    let mut novell = udp(A, B, (1, 2), LINK_A);
    novell.bytes[12..14].copy_from_slice(&[0x81, 0x37]);
    assert_eq!(row_of(&mut novell), (Verdict::drop(DropReason::EtherType), unread));
}

#[test]
fn an_endpoint_not_committed_yet_neither_sends_nor_receives() {
    let mut tables = node();
    tables.endpoints.get_mut(&2).unwrap().flags = E_PRESENT;
    assert_eq!(from_a(&tables, SYN, b"", START), Verdict::drop(DropReason::NotReady));
    assert_eq!(from_b(&tables, SYN, b"", START), Verdict::drop(DropReason::NotReady));
    assert!(tables.flow4_new.borrow().is_empty(), "a denial writes no entry");
}

#[test]
fn an_isolated_endpoint_is_closed_and_its_living_flows_end() {
    let mut tables = node();
    handshake(&tables);
    tables.endpoints.insert(2, Endpoint { ingress_rules: 7, ..tables.endpoints[&2] });
    assert_eq!(from_a(&tables, ACK, b"data", START), Verdict::peer(LINK_B), "the rows alone change no living flow");
    tables.epochs.borrow_mut().insert(2, 201);
    assert_eq!(from_b(&tables, ACK, b"data", START), Verdict::drop(DropReason::PolicyIngress), "judged by its opener");
    assert_eq!(
        from_b(&tables, ACK, b"data", START),
        Verdict::drop(DropReason::PolicyIngress),
        "and no flow of its own"
    );
    assert_eq!(from_a(&tables, SYN, b"", START), Verdict::drop(DropReason::PolicyIngress));
    assert_eq!(from_b(&tables, SYN, b"", START), Verdict::peer(LINK_A), "it may still open");
}

#[test]
fn a_flow_judged_again_and_allowed_keeps_its_counters_and_its_table() {
    let tables = node();
    handshake(&tables);
    for data in [b"1", b"2", b"3"] {
        from_a(&tables, ACK, data, START);
    }
    tables.epochs.borrow_mut().insert(1, 101);
    assert_eq!(from_b(&tables, ACK, b"answer", START), Verdict::peer(LINK_A));
    assert_eq!(tables.stat(Stat::FlowRejudged), 1);
    let there = entry(&tables, &key(A, B, (1000, 80), 6), Table::Established).unwrap();
    let back = entry(&tables, &key(B, A, (80, 1000), 6), Table::Established).unwrap();
    assert_eq!((there.packets, back.packets, there.src_epoch, back.dst_epoch), (5, 2, 101, 101));
    from_a(&tables, ACK, b"4", START);
    assert_eq!(tables.stat(Stat::FlowRejudged), 1, "once for both directions");
}

#[test]
fn nobody_and_no_node_are_said_apart() {
    let tables = node();
    let to = |dst| drive(Hook::FromPod, &mut udp(A, dst, (1, 2), LINK_A), &tables, START);
    assert_eq!(to([10, 0, 1, 200]), Verdict::drop(DropReason::NoEndpoint));
    assert_eq!(to([10, 0, 7, 1]), Verdict::drop(DropReason::Unowned));
    assert_eq!(to(REMOTE), Verdict::drop(DropReason::NoNode));
    assert_eq!(to([224, 0, 0, 5]), Verdict::drop(DropReason::Multicast));
    assert_eq!(to([169, 254, 1, 1]), Verdict::drop(DropReason::LinkLocal));
    assert_eq!(to(OUTSIDE), Verdict::drop(DropReason::NoRoute));
}

#[test]
fn to_another_node_costs_one_hop_and_the_answer_comes_by_an_uplink() {
    let mut tables = node();
    remote(&mut tables, 0);
    let mut packet = udp(A, REMOTE, (1, 2), LINK_A);
    let verdict = drive(Hook::FromPod, &mut packet, &tables, START);
    assert_eq!(verdict, Verdict::neighbour(UPLINK, Addr::v4([192, 168, 0, 2])));
    assert_eq!(packet.bytes[22], 63);
    crate::logic::testing::verify(&packet.bytes);
    assert_eq!(packet.mark & tables.config.mark, tables.config.mark);
    let mut answer = udp(REMOTE, A, (2, 1), UPLINK);
    assert_eq!(drive(Hook::FromUplink, &mut answer, &tables, START), Verdict::peer(LINK_A));
    assert_eq!(answer.bytes[22], 64, "none on arrival");
    let back = entry(&tables, &key(REMOTE, A, (2, 1), 17), Table::Probation).unwrap();
    assert_eq!(back.hook, HOOK_UPLINK);
}

#[test]
fn a_node_without_an_ipv6_next_hop_gets_no_ipv6_packet() {
    let mut tables = node();
    remote(&mut tables, 0);
    let (a, far) = (pod6(2), [0xfd, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2]);
    let packet = || FakePacket::new(build::ipv6(a, far, 17, &build::udp(&a, &far, 1, 2, b"")), LINK_A);
    let next_hop = tables.nodes[&2].next_hop6;
    assert_eq!(drive(Hook::FromPod, &mut packet(), &tables, START), Verdict::neighbour(UPLINK, next_hop));
    tables.nodes.get_mut(&2).unwrap().next_hop6 = Addr::NONE;
    assert_eq!(drive(Hook::FromPod, &mut packet(), &tables, START), Verdict::drop(DropReason::NoRoute));
    assert_eq!(
        drive(Hook::FromPod, &mut udp(A, REMOTE, (1, 2), LINK_A), &tables, START),
        Verdict::neighbour(UPLINK, Addr::v4([192, 168, 0, 2]))
    );
}

#[test]
fn a_pod_of_another_node_that_should_come_by_tunnel_is_not_believed_without() {
    let mut tables = node();
    remote(&mut tables, N_TUNNEL);
    let mut opener = udp(REMOTE, A, (1, 2), UPLINK);
    assert_eq!(drive(Hook::FromUplink, &mut opener, &tables, START), Verdict::drop(DropReason::TunnelSpoof));
    // Nor inside a tunnel of somebody else.
    for (outer, expected) in
        [([192, 168, 0, 2], Verdict::peer(LINK_A)), ([192, 168, 0, 9], Verdict::drop(DropReason::TunnelSpoof))]
    {
        let mut packet = udp(REMOTE, A, (1, 2), 52);
        packet.tunnel_key = Some(crate::logic::packet::TunnelKey { vni: 1, remote: Addr::v4(outer) });
        assert_eq!(drive(Hook::FromTunnelDevice, &mut packet, &tables, START), expected, "{outer:?}");
    }
    let there = entry(&tables, &key(REMOTE, A, (1, 2), 17), Table::Probation).unwrap();
    assert_eq!((there.hook, there.from_node), (HOOK_TUNNEL, 2));
}

#[test]
fn what_the_node_and_its_pod_say_to_each_other_goes_through_the_door() {
    let tables = node();
    let node4 = tables.config.node4;
    let mut packet = udp(node4, A, (1, 2), tables.config.door_pods);
    packet.mark = tables.config.mark;
    assert_eq!(drive(Hook::FromDoor, &mut packet, &tables, START), Verdict::peer(LINK_A));
    assert_eq!(packet.mark, 0, "a pod sees no mark of ours");
    let mut answer = udp(A, node4, (2, 1), LINK_A);
    answer.bytes[0] = 0xee;
    assert_eq!(drive(Hook::FromPod, &mut answer, &tables, START), Verdict::STACK);
    assert_eq!(&answer.bytes[..6], &build::GATEWAY, "or the stack takes it for another host's");
    let back = entry(&tables, &key(A, node4, (2, 1), 17), Table::Probation).unwrap();
    assert_eq!(back.flags & F_OPENER, 0);
    assert_eq!(entry(&tables, &key(node4, A, (1, 2), 17), Table::Probation).unwrap().hook, HOOK_DOOR);
}

#[test]
fn the_node_reaches_an_isolated_pod_and_what_it_forwards_does_not() {
    let mut tables = node();
    tables.endpoints.insert(1, Endpoint { ingress_rules: 7, ..tables.endpoints[&1] });
    let mut own = udp(tables.config.node4, A, (1, 2), 51);
    own.mark = tables.config.mark;
    assert_eq!(drive(Hook::FromDoor, &mut own, &tables, START), Verdict::peer(LINK_A));
    let mut forwarded = udp(OUTSIDE, A, (1, 2), 51);
    assert_eq!(drive(Hook::FromDoor, &mut forwarded, &tables, START), Verdict::drop(DropReason::PolicyIngress));
}

#[test]
fn an_answer_leaves_by_the_door_its_opener_came_in_by() {
    let tables = node();
    // Forwarded by the stack after a destination translation: the answer must pass the stack again.
    let mut packet = udp(OUTSIDE, A, (1, 2), 51);
    assert_eq!(drive(Hook::FromDoor, &mut packet, &tables, START), Verdict::peer(LINK_A));
    let mut answer = udp(A, OUTSIDE, (2, 1), LINK_A);
    assert_eq!(drive(Hook::FromPod, &mut answer, &tables, START), Verdict::STACK);
}

#[test]
fn what_is_not_of_pods_passes_an_uplink() {
    let mut tables = node();
    remote(&mut tables, 0);
    let node4 = tables.config.node4;
    for src in [[192, 168, 0, 2], OUTSIDE] {
        let mut packet = tcp(src, node4, (1000, 22), SYN, b"", UPLINK);
        assert_eq!(drive(Hook::FromUplink, &mut packet, &tables, START), Verdict::NEXT);
        let mut other = tcp(src, [192, 168, 0, 77], (1000, 22), SYN, b"", UPLINK);
        assert_eq!(drive(Hook::FromUplink, &mut other, &tables, START), Verdict::NEXT);
    }
    let mut leaving = tcp(node4, OUTSIDE, (22, 1000), ACK, b"", UPLINK);
    assert_eq!(drive(Hook::ToUplink, &mut leaving, &tables, START), Verdict::NEXT);
    assert!(tables.flow4_new.borrow().is_empty());
    let mut martian = udp(A, node4, (1, 2), UPLINK);
    assert_eq!(drive(Hook::FromUplink, &mut martian, &tables, START), Verdict::drop(DropReason::Martian));
}

#[test]
fn v6_goes_the_same_ways() {
    let tables = node();
    let (a, b) = (pod6(2), pod6(3));
    let mut packet = FakePacket::new(build::ipv6(a, b, 6, &build::tcp(&a, &b, 1000, 80, SYN, b"")), LINK_A);
    assert_eq!(drive(Hook::FromPod, &mut packet, &tables, START), Verdict::peer(LINK_B));
    let mut answer = FakePacket::new(build::ipv6(b, a, 6, &build::tcp(&b, &a, 80, 1000, SYN | ACK, b"")), LINK_B);
    assert_eq!(drive(Hook::FromPod, &mut answer, &tables, START), Verdict::peer(LINK_A));
    let mut forged = FakePacket::new(build::ipv6(b, a, 6, &build::tcp(&b, &a, 80, 1000, ACK, b"")), LINK_A);
    assert_eq!(drive(Hook::FromPod, &mut forged, &tables, START), Verdict::drop(DropReason::SourceGuard));
}

#[test]
fn a_pod_without_an_address_of_the_family_is_told_apart_from_a_forger() {
    let mut tables = node();
    tables.endpoints.insert(1, Endpoint { v6: [0; 16], flags: E_PRESENT | E_READY, ..tables.endpoints[&1] });
    let (a, b) = (pod6(2), pod6(3));
    // Also from the address that stands for none in its row.
    for source in [a, [0; 16]] {
        let mut packet = FakePacket::new(build::ipv6(source, b, 17, &build::udp(&source, &b, 1, 2, b"")), LINK_A);
        assert_eq!(drive(Hook::FromPod, &mut packet, &tables, START), Verdict::drop(DropReason::Family), "{source:?}");
    }
    tables.endpoints.insert(1, Endpoint { v4: [0; 4], v6: a, ..tables.endpoints[&1] });
    for source in [A, [0; 4]] {
        let mut packet = udp(source, OUTSIDE, (1, 2), LINK_A);
        assert_eq!(drive(Hook::FromPod, &mut packet, &tables, START), Verdict::drop(DropReason::Family), "{source:?}");
    }
}

#[test]
fn an_entry_in_the_way_of_another_flows_answers_is_not_stolen() {
    // The same key in zone 1: what left the stack by an uplink is another flow than what the pod sent into it.
    let tables = node();
    let outer = key(A, OUTSIDE, (1000, 53), 17);
    let stack = FlowEntry { hook: LINK_A, ..FlowEntry::default() };
    outer.put(&tables, &stack, Table::Probation, Insert::New).unwrap();
    let mut packet = udp(A, OUTSIDE, (1000, 53), UPLINK);
    assert_eq!(drive(Hook::ToUplink, &mut packet, &tables, START), Verdict::drop(DropReason::MasqSource));
    assert_eq!(entry(&tables, &outer, Table::Probation).unwrap().hook, LINK_A);
}
