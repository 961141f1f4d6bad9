//! A slot that gets another pod while a packet is looking for the one before.

use super::*;

/// The row by address is read first, the endpoint after it; in between DEL and ADD have given the slot away.
#[test]
fn a_slot_that_changes_its_pod_between_two_reads_gives_nobody_the_others_packets() {
    let mut tables = node();
    tables.pod(2, LINK_B, 9);
    for address in [Addr::v4(B), Addr::v6(pod6(3))] {
        tables.stale_addresses.insert(address, 2);
    }
    let (a, b) = (pod6(2), pod6(3));
    let mut v4 = udp(A, B, (1, 2), LINK_A);
    let mut v6 = FakePacket::new(build::ipv6(a, b, 17, &build::udp(&a, &b, 1, 2, b"")), LINK_A);
    for packet in [&mut v4, &mut v6] {
        assert_eq!(drive(Hook::FromPod, packet, &tables, START), Verdict::drop(DropReason::NoEndpoint));
    }
    assert!(tables.flow4_new.borrow().is_empty() && tables.flow6_new.borrow().is_empty());
    // Who has the slot now is reached by its own address.
    let mut own = udp(A, [10, 0, 1, 9], (1, 2), LINK_A);
    assert_eq!(drive(Hook::FromPod, &mut own, &tables, START), Verdict::peer(LINK_B));
}

/// What comes out of the stack is judged as of the pod that has its source's address, not of the one that has got its slot.
#[test]
fn what_the_stack_sends_for_a_pod_that_is_gone_is_nobodys() {
    let mut tables = node();
    tables.pod(1, LINK_A, 9);
    tables.stale_addresses.insert(Addr::v4(A), 1);
    let mut packet = udp(A, B, (1, 2), tables.config.door_pods);
    assert_eq!(drive(Hook::FromDoor, &mut packet, &tables, START), Verdict::drop(DropReason::SourceGuard));
    assert!(tables.flow4_new.borrow().is_empty());
}
