//! Packets of known flows: the fast programs alone, with an empty jump table behind them.

use osmia_lab::packet::{Ip, flags, frame};
use osmia_maps::layout::flow::{F_NO_HOP, F_OPENER, F_REPLIED, FlowAction, NO_MTU, T_ESTABLISHED};
use osmia_maps::layout::{DropReason, FlowEntry, FlowKey4, FlowKey6, maps};

use crate::object::{A, A6, B, B6, LINK, OTHER_LINK, Object, REDIRECT, SHOT};

fn entry(proto_tcp: bool) -> FlowEntry {
    FlowEntry {
        hook: LINK,
        target: OTHER_LINK,
        action: FlowAction::Peer as u8,
        flags: F_OPENER | F_REPLIED | F_NO_HOP,
        tcp: if proto_tcp { T_ESTABLISHED } else { 0 },
        mtu: NO_MTU,
        src_slot: 1,
        src_epoch: 100,
        dst_slot: 2,
        dst_epoch: 200,
        route_gen: 7,
        ..FlowEntry::default()
    }
}

/// The tick of now: a packet's entry is stamped with it.
fn now(object: &mut Object) -> u32 {
    object.run("osm_clock", &[0; 64]).verdict
}

fn key4(proto: u8) -> FlowKey4 {
    let (sport, dport) = (1000_u16.to_be_bytes(), 80_u16.to_be_bytes());
    FlowKey4 { src: A, dst: B, sport, dport, proto, ..FlowKey4::default() }
}

#[test]
fn an_established_flow_needs_no_second_program() {
    let mut object = Object::load();
    object.empty_jumps();
    let stamp = now(&mut object);
    let entry = |tcp| FlowEntry { last_seen: stamp, created: stamp, replied: stamp, ..entry(tcp) };
    object.hash(maps::FLOW4).insert(&key4(6), &entry(true), 0).expect("an entry");
    object.hash(maps::FLOW4).insert(&key4(17), &entry(false), 0).expect("an entry");
    let (sport, dport) = (1000_u16.to_be_bytes(), 80_u16.to_be_bytes());
    let key6 = FlowKey6 { src: A6, dst: B6, sport, dport, proto: 17, ..FlowKey6::default() };
    object.hash(maps::FLOW6).insert(&key6, &entry(false), 0).expect("an entry");

    let tcp = frame([2; 6], [3; 6], &Ip::new(A, B).tcp(1000, 80, flags::ACK, 1, 0));
    let udp = frame([2; 6], [3; 6], &Ip::new(A, B).udp(1000, 80, b"eighteen bytes ..."));
    let udp6 = frame([2; 6], [3; 6], &Ip::new(A6, B6).udp(1000, 80, b"eighteen bytes ..."));
    for (name, packet) in [("TCP", &tcp), ("UDP", &udp), ("UDP over IPv6", &udp6)] {
        let outcome = object.run("osm_from_pod", packet);
        assert_eq!((outcome.verdict, &outcome.packet), (REDIRECT, packet), "{name}");
    }
    // A tick later the entry is stamped anew, and judged by its age before.
    let mut rows = object.hash::<FlowKey4, FlowEntry>(maps::FLOW4);
    let seen = FlowEntry { last_seen: stamp.wrapping_sub(50), created: stamp, replied: stamp, ..entry(false) };
    rows.insert(&key4(17), &seen, 0).expect("an entry");
    assert_eq!(object.run("osm_from_pod", &udp).verdict, REDIRECT, "some ticks old");
    let counted = object.flow4(maps::FLOW4, &key4(17)).expect("the entry");
    assert_eq!((counted.packets, counted.bytes), (1, udp.len() as u64 - 14));
    // The negative: the same packets one epoch later.
    object.array::<u32>(maps::EPOCHS).set(2, &201, 0).expect("an epoch");
    for packet in [&tcp, &udp, &udp6] {
        assert_eq!(object.run("osm_from_pod", packet).verdict, SHOT);
    }
    assert_eq!(object.drops(DropReason::Program), 3, "the part of the program set that would judge them is missing");
}

#[test]
fn a_stale_flow_is_judged_again_by_the_programs_behind() {
    let mut object = Object::load();
    let stamp = now(&mut object);
    let stale = FlowEntry { last_seen: stamp, created: stamp, src_epoch: 99, packets: 41, ..entry(true) };
    object.hash(maps::FLOW4).insert(&key4(6), &stale, 0).expect("an entry");
    let packet = frame([2; 6], [3; 6], &Ip::new(A, B).tcp(1000, 80, flags::ACK, 1, 0));
    assert_eq!(object.run("osm_from_pod", &packet).verdict, REDIRECT);
    let judged = object.flow4(maps::FLOW4, &key4(6)).expect("the entry, where it was");
    assert_eq!((judged.src_epoch, judged.packets), (100, 42));
}
