//! Flows out of the cluster, and what only looks like an answer to one.

use super::*;
use crate::layout::Uplink;
use crate::layout::flow::F_REWRITE_DST;
use crate::logic::testing::verify;

const NODE: [u8; 4] = [192, 168, 0, 1];
const GATEWAY: [u8; 4] = [192, 168, 0, 254];

fn node_with_uplink() -> FakeTables {
    let mut tables = node();
    tables.uplinks.insert(UPLINK, Uplink { v4: NODE, mtu: 1500, ..Uplink::default() });
    tables
}

/// Pod A asks the host outside; the port that it got.
fn asked(tables: &FakeTables, now: u32) -> (Verdict, u16) {
    let mut packet = udp(A, OUTSIDE, (1000, 53), LINK_A);
    packet.fib = Fib::Out { ifindex: UPLINK, next_hop: Addr::v4(GATEWAY) };
    let verdict = drive(Hook::FromPod, &mut packet, tables, now);
    (verdict, u16::from_be_bytes([packet.bytes[34], packet.bytes[35]]))
}

#[test]
fn out_of_the_cluster_by_the_nodes_address_and_back() {
    let (tables, gateway) = (node_with_uplink(), Addr::v4(GATEWAY));
    let mut packet = udp(A, OUTSIDE, (1000, 53), LINK_A);
    packet.fib = Fib::Out { ifindex: UPLINK, next_hop: gateway };
    let verdict = drive(Hook::FromPod, &mut packet, &tables, START);
    assert_eq!(verdict, Verdict::neighbour(UPLINK, gateway));
    assert_eq!(&packet.bytes[26..30], &[192, 168, 0, 1]);
    verify(&packet.bytes);
    let port = u16::from_be_bytes([packet.bytes[34], packet.bytes[35]]);
    assert!(port >= 61_000, "{port}");
    let mut answer = udp(OUTSIDE, [192, 168, 0, 1], (53, port), UPLINK);
    assert_eq!(drive(Hook::FromUplink, &mut answer, &tables, START), Verdict::peer(LINK_A));
    assert_eq!((&answer.bytes[30..34], &answer.bytes[36..38]), (&A[..], &1000_u16.to_be_bytes()[..]));
    verify(&answer.bytes);

    // A change of routes: the mapping stays, seen from the answer and from the question.
    tables.epochs.borrow_mut().insert(0, 2);
    let mut packet = udp(OUTSIDE, [192, 168, 0, 1], (53, port), UPLINK);
    packet.fib = Fib::Out { ifindex: UPLINK, next_hop: gateway };
    assert_eq!(drive(Hook::FromUplink, &mut packet, &tables, START), Verdict::peer(LINK_A));
    assert_eq!(&packet.bytes[30..34], &A);
    let mut packet = udp(A, OUTSIDE, (1000, 53), LINK_A);
    packet.fib = Fib::Out { ifindex: UPLINK, next_hop: gateway };
    drive(Hook::FromPod, &mut packet, &tables, START);
    assert_eq!(u16::from_be_bytes([packet.bytes[34], packet.bytes[35]]), port);
    assert_eq!((tables.stat(Stat::FlowOpened), tables.stat(Stat::FlowRejudged)), (1, 1));
}

/// A socket of the node may have got the port since: what comes for it is the node's, not a new flow towards it.
#[test]
fn an_answer_to_a_flow_that_is_over_is_the_nodes_own() {
    let tables = node_with_uplink();
    let (_, port) = asked(&tables, START);
    let mut late = udp(OUTSIDE, NODE, (53, port), UPLINK);
    late.fib = Fib::Out { ifindex: UPLINK, next_hop: Addr::v4(GATEWAY) };
    assert_eq!(drive(Hook::FromUplink, &mut late, &tables, START + 200 * SECOND), Verdict::NEXT);
    assert_eq!(tables.stat(Stat::FlowOpened), 1);
}

/// The answers' entry of a busy one-way flow was pushed out and its port claimed by another pod.
#[test]
fn a_flow_that_lost_its_port_does_not_take_it_back() {
    let tables = node_with_uplink();
    let (_, port) = asked(&tables, START);
    let answers = key(OUTSIDE, NODE, (53, port), 17);
    let of_b = FlowEntry {
        hook: HOOK_UPLINK,
        target: LINK_B,
        flags: F_REWRITE_DST,
        new_dst: Addr::v4(B),
        new_dport: 2000_u16.to_be_bytes(),
        created: START,
        last_seen: START,
        ..FlowEntry::default()
    };
    answers.put(&tables, &of_b, Table::Probation, Insert::Any).unwrap();
    tables.epochs.borrow_mut().insert(0, 2);
    assert_eq!(asked(&tables, START).0, Verdict::drop(DropReason::MasqPorts));
    assert_eq!(entry(&tables, &answers, Table::Probation).unwrap().target, LINK_B);
    let (verdict, other) = asked(&tables, START);
    assert_eq!(verdict, Verdict::neighbour(UPLINK, Addr::v4(GATEWAY)));
    assert_ne!(other, port, "the next packet opens it anew");
}
