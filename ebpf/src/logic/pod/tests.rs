use crate::layout::DropReason;
use crate::layout::config::C_DENY_LINK_LOCAL;
use crate::layout::endpoint::{E_PRESENT, E_SLOW_PATH};
use crate::logic::testing::{FakePacket, FakeTables, build, drive};
use crate::logic::{Hook, Verdict};

#[test]
fn what_is_neither_ip_nor_arp_or_has_a_tag_is_dropped() {
    let mut tables = FakeTables::node();
    tables.pod(1, 9, 2);
    let mut lldp = FakePacket::new(build::ethernet(0x88cc, &[0; 46]), 9);
    assert_eq!(drive(Hook::FromPod, &mut lldp, &tables, 1), Verdict::drop(DropReason::EtherType));
    let mut tagged = FakePacket::new(build::ipv4([10, 0, 1, 2], [10, 0, 1, 3], 17, &[0; 8]), 9);
    tagged.vlan = true;
    assert_eq!(drive(Hook::FromPod, &mut tagged, &tables, 1), Verdict::drop(DropReason::EtherType));
}

#[test]
fn a_link_without_a_row_is_closed() {
    let tables = FakeTables::node();
    let mut packet = FakePacket::new(build::ipv4([10, 0, 1, 2], [10, 0, 1, 3], 47, &[0; 8]), 9);
    assert_eq!(drive(Hook::FromPod, &mut packet, &tables, 1), Verdict::drop(DropReason::UnknownLink));
}

#[test]
fn the_node_sends_nothing_to_a_pods_link_itself_but_on_the_slow_path() {
    let mut tables = FakeTables::node();
    tables.pod(1, 9, 2);
    let packet = || FakePacket::new(build::ipv4([10, 0, 1, 1], [10, 0, 1, 2], 17, &[0; 8]), 9);
    assert_eq!(drive(Hook::ToPod, &mut packet(), &tables, 1), Verdict::drop(DropReason::Unmarked));
    let mut marked = packet();
    marked.mark = tables.config.mark;
    assert_eq!(drive(Hook::ToPod, &mut marked, &tables, 1), Verdict::NEXT);
    tables.endpoints.get_mut(&1).unwrap().flags = E_PRESENT | E_SLOW_PATH;
    assert_eq!(drive(Hook::ToPod, &mut packet(), &tables, 1), Verdict::NEXT);
}

#[test]
fn link_local_addresses_are_denied_where_the_agent_says_so() {
    let mut tables = FakeTables::node();
    tables.pod(1, 9, 2);
    let (pod, metadata) = ([10, 0, 1, 2], [169, 254, 169, 254]);
    let packet = || FakePacket::new(build::ipv4(pod, metadata, 17, &build::udp(&pod, &metadata, 1, 80, b"")), 9);
    assert!(!drive(Hook::FromPod, &mut packet(), &tables, 1).is_drop(DropReason::LinkLocalDenied));
    // Also what went on before.
    tables.config.flags |= C_DENY_LINK_LOCAL;
    tables.epochs.borrow_mut().insert(0, 2);
    assert_eq!(drive(Hook::FromPod, &mut packet(), &tables, 1), Verdict::drop(DropReason::LinkLocalDenied));
}

proptest::proptest! {
    #[test]
    fn no_bytes_of_a_pod_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 14..200), v6: bool) {
        let mut tables = FakeTables::node();
        tables.pod(1, 9, 2);
        let mut bytes = bytes;
        bytes[12..14].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
        drive(Hook::FromPod, &mut FakePacket::new(bytes.clone(), 9), &tables, 1);
        drive(Hook::FromUplink, &mut FakePacket::new(bytes.clone(), 4), &tables, 1);
        drive(Hook::FromDoor, &mut FakePacket::new(bytes.clone(), 51), &tables, 1);
        drive(Hook::ToUplink, &mut FakePacket::new(bytes, 4), &tables, 1);
    }
}

/// What a pod sends out of the cluster carries its node's address, by which nodes know each other's tunnel packets.
#[test]
fn a_pods_tunnel_packet_goes_to_no_address_but_a_pods() {
    let mut tables = FakeTables::node();
    tables.pod(1, 9, 2);
    tables.pod(2, 10, 3);
    let pod = [10, 0, 1, 2];
    let to = |dst| build::ipv4(pod, dst, 17, &build::udp(&pod, &dst, 50_000, 4789, &[8, 0, 0, 0, 0, 0, 1, 0]));
    for dst in [[192, 168, 0, 1], [198, 51, 100, 9]] {
        let mut packet = FakePacket::new(to(dst), 9);
        assert_eq!(drive(Hook::FromPod, &mut packet, &tables, 1), Verdict::drop(DropReason::TunnelFromPod), "{dst:?}");
    }
    assert_eq!(drive(Hook::FromPod, &mut FakePacket::new(to([10, 0, 1, 3]), 9), &tables, 1), Verdict::peer(10));
}

#[test]
fn a_pods_loopback_is_its_own() {
    let mut tables = FakeTables::node();
    tables.pod(1, 9, 2);
    let pod = [10, 0, 1, 2];
    for dst in [[127, 0, 0, 1], [0, 0, 0, 0]] {
        let bytes = build::ipv4(pod, dst, 17, &build::udp(&pod, &dst, 1, 2, b""));
        let verdict = drive(Hook::FromPod, &mut FakePacket::new(bytes, 9), &tables, 1);
        assert_eq!(verdict, Verdict::drop(DropReason::Martian), "{dst:?}");
    }
}
