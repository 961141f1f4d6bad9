//! Who gets the ports of a first fragment.

use super::super::parse::Parse;
use super::super::testing::{FakePacket, FakeTables, build};
use super::*;
use crate::layout::{FlowKey4, FlowKey6};

const POD4: [u8; 4] = [10, 0, 1, 9];
const FAR4: [u8; 4] = [10, 0, 2, 9];
const POD6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
const FAR6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9];

fn v4(fragment: u16, payload: &[u8]) -> Parsed<FlowKey4> {
    FlowKey4::parse(&mut FakePacket::new(build::ipv4_with(POD4, FAR4, 17, fragment, &[], payload), 3), 14)
        .expect("a fragment")
}

/// `next` of the fragment header, its offset-and-more field, identification's last byte.
fn v6(next: u8, field: u16, id: u8, payload: &[u8]) -> Parsed<FlowKey6> {
    let [f0, f1] = field.to_be_bytes();
    let payload = [&[next, 0, f0, f1, 0, 0, 0, id][..], payload].concat();
    FlowKey6::parse(&mut FakePacket::new(build::ipv6(POD6, FAR6, 44, &payload), 3), 14).expect("a fragment")
}

#[test]
fn a_later_fragment_has_the_key_of_its_first() {
    let t = FakeTables::node();
    let first = v4(0x2000, &build::udp(&POD4, &FAR4, 4000, 53, &[1; 1000]));
    let later = v4(0x2000 | 126, &[2; 1008]);
    let last = v4(252, &[3; 100]);
    assert_eq!(recall(&t, &later, 5), None);
    remember(&t, &first, 5);
    for fragment in [later, last] {
        assert_eq!(recall(&t, &fragment, 5), Some(first.key));
    }
    assert_eq!(t.stat(Stat::FragmentFollowed), 2);
}

#[test]
fn v6_fragments_follow_whatever_header_they_name() {
    let t = FakeTables::node();
    let udp = build::udp(&POD6, &FAR6, 4000, 53, &[1; 1000]);
    // In the first one a destination options header stands between fragment header and UDP.
    let first = v6(60, 1, 9, &[&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp].concat());
    remember(&t, &first, 5);
    assert_eq!(recall(&t, &v6(60, 1016, 9, &[2; 8]), 5), Some(first.key));
    assert_eq!(recall(&t, &v6(17, 1016, 9, &[2; 8]), 5), Some(first.key));
    assert_eq!(recall(&t, &v6(60, 1016, 8, &[2; 8]), 5), None, "another datagram");
}

#[test]
fn whole_packets_are_not_remembered() {
    let t = FakeTables::node();
    remember(&t, &v4(0, &build::udp(&POD4, &FAR4, 4000, 53, b"x")), 5);
    remember(&t, &v4(126, &[2; 1008]), 5);
    assert!(t.fragments.borrow().is_empty());
}

#[test]
fn a_first_fragment_is_forgotten_after_a_minute() {
    let t = FakeTables::node();
    let second = t.config.ticks_per_second;
    remember(&t, &v4(0x2000, &build::udp(&POD4, &FAR4, 4000, 53, &[1; 1000])), u32::MAX - 3);
    let later = v4(252, &[3; 100]);
    assert!(recall(&t, &later, (SECONDS * second).wrapping_sub(4)).is_some());
    assert!(recall(&t, &later, SECONDS * second).is_none());
}
