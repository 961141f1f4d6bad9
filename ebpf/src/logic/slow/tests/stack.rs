//! A pod on the slow path: what it sends and gets goes through the node's stack, by the stack's own route to its link.

use super::*;
use crate::layout::endpoint::E_SLOW_PATH;

fn slow_b() -> FakeTables {
    let mut tables = node();
    tables.endpoints.get_mut(&2).unwrap().flags |= E_SLOW_PATH;
    tables
}

#[test]
fn what_it_sends_goes_up_its_link_without_an_entry_and_as_itself_alone() {
    let tables = slow_b();
    let (a, b) = (pod6(2), pod6(3));
    let v6 = FakePacket::new(build::ipv6(b, a, 17, &build::udp(&b, &a, 1, 2, b"")), LINK_B);
    for mut packet in [udp(B, A, (1, 2), LINK_B), udp(B, OUTSIDE, (1, 2), LINK_B), udp(B, REMOTE, (1, 2), LINK_B), v6] {
        assert_eq!(drive(Hook::FromPod, &mut packet, &tables, START), Verdict::NEXT);
    }
    assert!(tables.flow4_new.borrow().is_empty() && tables.flow6_new.borrow().is_empty());
    let port = u16::from_be_bytes(tables.config.tunnel_port);
    let mut tunnel = udp(B, OUTSIDE, (1, port), LINK_B);
    assert_eq!(drive(Hook::FromPod, &mut tunnel, &tables, START), Verdict::drop(DropReason::TunnelFromPod));
    assert_eq!(drive(Hook::FromPod, &mut udp(B, A, (1, port), LINK_B), &tables, START), Verdict::NEXT);
    let mut forged = udp(A, OUTSIDE, (1, 2), LINK_B);
    assert_eq!(drive(Hook::FromPod, &mut forged, &tables, START), Verdict::drop(DropReason::SourceGuard));
}

#[test]
fn what_others_send_it_goes_to_the_stack_and_its_answers_come_out_of_the_door() {
    let tables = slow_b();
    assert_eq!(from_a(&tables, SYN, b"", START), Verdict::STACK);
    assert_eq!(from_b(&tables, SYN | ACK, b"", START), Verdict::NEXT);
    let mut answer = tcp(B, A, (80, 1000), SYN | ACK, b"", tables.config.door_pods);
    assert_eq!(drive(Hook::FromDoor, &mut answer, &tables, START), Verdict::peer(LINK_A));
    assert_eq!(from_a(&tables, ACK, b"", START), Verdict::STACK);
}

#[test]
fn a_pod_that_gets_onto_the_slow_path_leaves_its_living_flows() {
    let mut tables = node();
    handshake(&tables);
    assert_eq!(from_a(&tables, ACK, b"more", START), Verdict::peer(LINK_B));
    tables.endpoints.get_mut(&2).unwrap().flags |= E_SLOW_PATH;
    tables.epochs.borrow_mut().insert(2, 201);
    assert_eq!(from_a(&tables, ACK, b"more", START), Verdict::STACK);
    assert_eq!(from_b(&tables, ACK, b"", START), Verdict::NEXT);
    assert_eq!(from_a(&tables, ACK, b"more", START), Verdict::STACK);
}
