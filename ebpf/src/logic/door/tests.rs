use crate::logic::testing::{FakePacket, FakeTables, build, drive};
use crate::logic::{Hook, Verdict};

#[test]
fn only_what_a_socket_of_the_node_sends_is_marked_so() {
    let tables = FakeTables::node();
    let mut packet = FakePacket::new(build::ipv4([192, 168, 0, 1], [10, 0, 1, 2], 17, &[0; 8]), 50);
    packet.cookie = 77;
    packet.mark = 0x10;
    assert_eq!(drive(Hook::ToDoor, &mut packet, &tables, 1), Verdict::NEXT);
    assert_eq!(packet.mark, tables.config.mark | 0x10, "the node's other marks stay");
    packet.cookie = 0;
    drive(Hook::ToDoor, &mut packet, &tables, 1);
    assert_eq!(packet.mark, 0x10, "a forwarded packet can not claim it");
}

#[test]
fn the_stacks_talk_to_its_own_link_is_swallowed() {
    let tables = FakeTables::node();
    let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16];
    let bytes = build::ipv6([0; 16], group, 58, &build::icmp(143, 0, [0; 4], &[], Some(([0; 16], group))));
    assert_eq!(drive(Hook::FromDoor, &mut FakePacket::new(bytes, 51), &tables, 1), Verdict::CONSUMED);
}
