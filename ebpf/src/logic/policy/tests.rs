use super::*;
use crate::layout::policy::{CLASS_BITS, PART_LOOSE, PORT_BITS, PROTO_BITS};
use crate::logic::testing::{FakeTables, allow_loose, pod6, verdict};

const SET: u32 = 7;
const TCP: u8 = 6;
const UDP: u8 = 17;
const PEER: [u8; 4] = [10, 0, 2, 5];

/// What the rule set says of anybody.
fn base(tables: &mut FakeTables, cookie: u32) {
    verdict(tables, CLASS_BITS, all(0), 0, cookie);
}

fn asked(class: u32, proto: u8, port: u16) -> Asked {
    Asked { set: SET, class, proto, port: port.to_be_bytes(), ..Asked::default() }
}

fn all(class: u32) -> Asked {
    Asked { set: SET, class, ..Asked::default() }
}

fn to(proto: u8, port: u16) -> Asked {
    Asked { proto, port: port.to_be_bytes(), ..Asked::default() }
}

#[test]
fn who_has_no_rule_set_is_asked_nothing() {
    let mut tables = FakeTables::node();
    verdict(&mut tables, CLASS_BITS, Asked::default(), 0, 9);
    assert_eq!(judge(&tables, OPEN, &Addr::v4(PEER), &to(TCP, 80)), Judgement::Allow(0));
}

#[test]
fn no_row_is_no_permission() {
    let mut tables = FakeTables::node();
    let judged = |tables: &FakeTables| judge(tables, SET, &Addr::v4(PEER), &to(TCP, 80));
    assert_eq!(judged(&tables), Judgement::Deny(0));
    tables.peers.insert(Addr::v4(PEER), 3);
    assert_eq!(judged(&tables), Judgement::Deny(0), "nor with a class");
    // What other sets allow, also to everybody, is theirs.
    verdict(&mut tables, CLASS_BITS, Asked { set: SET + 1, class: 3, ..Asked::default() }, V_ALLOW, 1);
    verdict(&mut tables, CLASS_BITS, Asked { set: SET + 1, ..Asked::default() }, V_ALLOW, 1);
    assert_eq!(judged(&tables), Judgement::Deny(0));
}

#[test]
fn an_address_has_its_own_class_before_that_of_its_range() {
    let mut tables = FakeTables::node();
    base(&mut tables, 1);
    for class in [3, 4, 5, 6] {
        verdict(&mut tables, CLASS_BITS, all(class), V_ALLOW, 10 + class);
    }
    verdict(&mut tables, CLASS_BITS, all(0), V_ALLOW, 10);
    let (wide6, narrow6) = (Addr::v6(pod6(0)), Addr::v6(pod6(8)));
    tables.peer_blocks = vec![
        (96 + 8, Addr::v4([10, 0, 0, 0]), 3),
        (96 + 24, Addr::v4([10, 0, 2, 0]), 4),
        // An exception: nobody's class inside a range that has one.
        (96 + 31, Addr::v4([10, 0, 2, 8]), 0),
        (64, wide6, 3),
        (125, narrow6, 4),
    ];
    tables.peers.insert(Addr::v4(PEER), 5);
    tables.peers.insert(Addr::v6(pod6(9)), 6);
    let of = |addr: Addr| judge(&tables, SET, &addr, &to(TCP, 80));
    assert_eq!(of(Addr::v4(PEER)), Judgement::Allow(15), "its own");
    assert_eq!(of(Addr::v4([10, 0, 2, 6])), Judgement::Allow(14), "the longest range");
    assert_eq!(of(Addr::v4([10, 0, 3, 5])), Judgement::Allow(13), "the range around");
    assert_eq!(of(Addr::v4([10, 0, 2, 9])), Judgement::Allow(10), "the exception");
    assert_eq!(of(Addr::v4([203, 0, 113, 7])), Judgement::Allow(10), "of nobody");
    assert_eq!(of(Addr::v6(pod6(9))), Judgement::Allow(16));
    assert_eq!(of(Addr::v6(pod6(10))), Judgement::Allow(14));
    assert_eq!(of(Addr::v6(pod6(200))), Judgement::Allow(13));
}

#[test]
fn a_class_without_rows_may_what_anybody_may() {
    let mut tables = FakeTables::node();
    tables.peers.insert(Addr::v4(PEER), 3);
    base(&mut tables, 1);
    let judged = |tables: &FakeTables, proto, port| judge(tables, SET, &Addr::v4(PEER), &to(proto, port));
    assert_eq!(judged(&tables, TCP, 80), Judgement::Deny(1), "what isolates");
    verdict(&mut tables, PORT_BITS, asked(0, TCP, 80), V_ALLOW, 2);
    assert_eq!(judged(&tables, TCP, 80), Judgement::Allow(2));
    assert_eq!(judged(&tables, TCP, 81), Judgement::Deny(1));
    // A row without a head is not asked for.
    let lone = VerdictKey::ports(&asked(3, UDP, 53), PORT_BITS);
    tables.verdicts.insert(lone, VerdictRow { flags: V_ALLOW, cookie: 3, ..VerdictRow::default() });
    assert_eq!(judged(&tables, UDP, 53), Judgement::Deny(1));
    // With a head a class has all that is said of it, also where that denies.
    verdict(&mut tables, CLASS_BITS, all(3), 0, 4);
    verdict(&mut tables, PORT_BITS, asked(3, UDP, 53), V_ALLOW, 3);
    assert_eq!(judged(&tables, TCP, 80), Judgement::Deny(4));
    assert_eq!(judged(&tables, UDP, 53), Judgement::Allow(3));
}

#[test]
fn a_length_that_a_head_has_is_no_promise_of_a_row() {
    let mut tables = FakeTables::node();
    base(&mut tables, 1);
    for bits in PROTO_BITS..=PORT_BITS {
        verdict(&mut tables, bits, asked(0, UDP, 0), V_ALLOW, 2);
    }
    let of = |tables: &FakeTables, port| judge(tables, SET, &Addr::v4(PEER), &to(TCP, port));
    assert_eq!(of(&tables, 80), Judgement::Deny(1));
    verdict(&mut tables, PROTO_BITS, asked(0, TCP, 0), V_ALLOW, 3);
    assert_eq!(of(&tables, 65535), Judgement::Allow(3), "the shortest is asked for last");
}

#[test]
fn the_row_of_most_bits_decides() {
    let mut tables = FakeTables::node();
    base(&mut tables, 1);
    verdict(&mut tables, CLASS_BITS, all(0), V_ALLOW, 2);
    verdict(&mut tables, PROTO_BITS, asked(0, TCP, 0), 0, 3);
    verdict(&mut tables, PROTO_BITS + 4, asked(0, TCP, 0x1000), V_ALLOW, 4);
    verdict(&mut tables, PROTO_BITS + 15, asked(0, TCP, 0x1f90), 0, 5);
    verdict(&mut tables, PORT_BITS, asked(0, TCP, 0x1f90), V_ALLOW, 6);
    let of = |proto, port| judge(&tables, SET, &Addr::v4(PEER), &to(proto, port));
    assert_eq!(of(UDP, 53), Judgement::Allow(2));
    assert_eq!(of(TCP, 0x0fff), Judgement::Deny(3));
    assert_eq!(of(TCP, 0x2000), Judgement::Deny(3));
    assert_eq!((of(TCP, 0x1000), of(TCP, 0x1fff)), (Judgement::Allow(4), Judgement::Allow(4)), "both ends of a prefix");
    assert_eq!(of(TCP, 0x1f91), Judgement::Deny(5));
    assert_eq!(of(TCP, 0x1f90), Judgement::Allow(6));
}

/// Whoever reads a row of ports for a loose fragment takes its port 0 for one.
#[test]
fn a_loose_fragment_is_judged_by_the_head_alone() {
    let mut tables = FakeTables::node();
    base(&mut tables, 1);
    let loose = |proto| Asked { part: PART_LOOSE, ..to(proto, 0) };
    verdict(&mut tables, PORT_BITS, asked(0, TCP, 0), V_ALLOW, 2);
    verdict(&mut tables, PROTO_BITS, asked(0, TCP, 0), V_ALLOW, 3);
    allow_loose(&mut tables, all(0), UDP, 4);
    let of = |tables: &FakeTables, asked: &Asked| judge(tables, SET, &Addr::v4(PEER), asked);
    assert_eq!(of(&tables, &loose(TCP)), Judgement::Deny(1));
    assert_eq!(of(&tables, &loose(UDP)), Judgement::Allow(4));
    assert_eq!(of(&tables, &to(UDP, 0)), Judgement::Deny(1));
    allow_loose(&mut tables, all(0), SCTP, 5);
    allow_loose(&mut tables, all(0), TCP, 6);
    let each = [TCP, UDP, SCTP].map(|proto| of(&tables, &loose(proto)));
    assert_eq!(each, [6, 4, 5].map(Judgement::Allow), "each protocol by its own rule");
    assert_eq!(of(&tables, &loose(47)), Judgement::Deny(1), "others have no ports");
    // Where all is allowed, its fragments are.
    verdict(&mut tables, CLASS_BITS, all(3), V_ALLOW, 7);
    tables.peers.insert(Addr::v4(PEER), 3);
    assert_eq!(of(&tables, &loose(TCP)), Judgement::Allow(7));
}
