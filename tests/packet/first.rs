//! First packets: what is decided and what stands in the maps then.

use osmia_lab::packet::{Ip, flags, frame};
use osmia_maps::layout::flow::F_OPENER;
use osmia_maps::layout::{DropReason, FlowKey4, FlowKey6, Stat, maps};

use crate::object::{A, A6, B, B6, LINK, NEXT, OTHER_LINK, Object, REDIRECT, SHOT};

const GATEWAY: [u8; 6] = [2, 0x6f, 0x73, 0x6d, 0, 1];
const POD: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn from_pod(packet: &[u8]) -> Vec<u8> {
    frame(GATEWAY, POD, packet)
}

#[test]
fn a_connection_within_a_node_gets_two_entries_and_no_byte_of_it_changes() {
    let mut object = Object::load();
    let packet = from_pod(&Ip::new(A, B).tcp(1000, 80, flags::SYN, 1, 0));
    let outcome = object.run("osm_from_pod", &packet);
    assert_eq!((outcome.verdict, &outcome.packet), (REDIRECT, &packet));
    let (sport, dport) = (1000_u16.to_be_bytes(), 80_u16.to_be_bytes());
    let key = FlowKey4 { src: A, dst: B, sport, dport, proto: 6, ..FlowKey4::default() };
    let there = object.flow4(maps::FLOW4_NEW, &key).expect("the opener's entry");
    assert_eq!((there.hook, there.target, there.flags & F_OPENER, there.packets), (LINK, OTHER_LINK, F_OPENER, 1));
    assert_eq!(
        (there.src_slot, there.src_epoch, there.dst_slot, there.dst_epoch, there.route_gen),
        (1, 100, 2, 200, 7)
    );
    let key = key.opposite(&there);
    let back = object.flow4(maps::FLOW4_NEW, &key).expect("the answers' entry");
    assert_eq!((back.hook, back.target, back.flags & F_OPENER, back.packets), (OTHER_LINK, LINK, 0, 0));
    assert_eq!((object.stat(Stat::FlowOpened), object.stat(Stat::ForwardPeer)), (1, 1));
}

#[test]
fn the_same_in_ipv6() {
    let mut object = Object::load();
    let packet = from_pod(&Ip::new(A6, B6).udp(5000, 53, b"question"));
    let outcome = object.run("osm_from_pod", &packet);
    assert_eq!((outcome.verdict, &outcome.packet), (REDIRECT, &packet));
    let (sport, dport) = (5000_u16.to_be_bytes(), 53_u16.to_be_bytes());
    let key = FlowKey6 { src: A6, dst: B6, sport, dport, proto: 17, ..FlowKey6::default() };
    let there = object.flow6(maps::FLOW6_NEW, &key).expect("the opener's entry");
    assert_eq!((there.hook, there.target, there.bytes), (LINK, OTHER_LINK, packet.len() as u64 - 14));
    assert!(object.flow6(maps::FLOW6_NEW, &key.opposite(&there)).is_some());
}

#[test]
fn another_pods_address_is_dropped_with_a_row_that_says_so() {
    let mut object = Object::load();
    let packet = from_pod(&Ip::new(B, A).tcp(1000, 80, flags::SYN, 1, 0));
    assert_eq!(object.run("osm_from_pod", &packet).verdict, SHOT);
    assert_eq!(object.drops(DropReason::SourceGuard), 1);
    let rows = object.hash::<osmia_maps::layout::DropKey, osmia_maps::layout::DropRow>(maps::DROP_ROWS);
    let (key, row) = rows.iter().next().expect("a row").expect("a readable row");
    assert_eq!((key.src, key.dst), (osmia_maps::layout::Addr::v4(B), osmia_maps::layout::Addr::v4(A)));
    assert_eq!((key.reason, key.ifindex, key.dport, row.packets), (2, LINK, 80_u16.to_be_bytes(), 1));
}

#[test]
fn an_arp_request_turns_into_its_answer() {
    let mut object = Object::load();
    let mut ask = frame([0xff; 6], POD, &[0x45; 28]);
    ask[12..14].copy_from_slice(&[8, 6]);
    ask[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    ask[22..28].copy_from_slice(&POD);
    ask[28..32].copy_from_slice(&A);
    ask[38..42].copy_from_slice(&[169, 254, 1, 1]);
    let outcome = object.run("osm_from_pod", &ask);
    assert_eq!(outcome.verdict, REDIRECT);
    assert_eq!(&outcome.packet[..12], &[POD, GATEWAY].concat()[..]);
    assert_eq!(&outcome.packet[20..22], &[0, 2]);
    assert_eq!(&outcome.packet[22..32], &[&GATEWAY[..], &[169, 254, 1, 1]].concat()[..]);
    assert_eq!(object.stat(Stat::ArpAnswered), 1);
}

#[test]
fn what_is_not_of_pods_goes_on_to_the_stack() {
    let mut object = Object::load();
    let own = frame(GATEWAY, POD, &Ip::new([192, 168, 0, 9], [192, 168, 0, 1]).tcp(1000, 22, flags::SYN, 1, 0));
    assert_eq!(object.run("osm_from_uplnk", &own).verdict, NEXT);
    let leaving = frame(GATEWAY, POD, &Ip::new([192, 168, 0, 1], [192, 168, 0, 9]).tcp(22, 1000, flags::ACK, 1, 0));
    assert_eq!(object.run("osm_to_uplnk", &leaving).verdict, NEXT);
    assert_eq!(object.run("osm_to_pod", &leaving).verdict, SHOT, "nobody but our programs sends to a pod's link");
    assert_eq!(object.drops(DropReason::Unmarked), 1);
}
