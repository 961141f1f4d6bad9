use super::*;
use crate::layout::policy::{BASE_BITS, CLASS_BITS, PART_LOOSE, PORT_BITS, PROTO_BITS};
use crate::layout::{VerdictKey, VerdictRow};
use crate::logic::testing::{FakeTables, pod6};

const SET: u32 = 7;
const TCP: u8 = 6;
const UDP: u8 = 17;
const PEER: [u8; 4] = [10, 0, 2, 5];

/// Writes a row; 0 for what its bits do not reach.
fn row(tables: &mut FakeTables, bits: u32, asked: Asked, flags: u32, cookie: u32) {
    tables.verdicts.insert(VerdictKey { bits, asked }, VerdictRow { flags, cookie });
}

fn base(tables: &mut FakeTables, cookie: u32) {
    row(tables, BASE_BITS, Asked { set: SET, ..Asked::default() }, V_BASE, cookie);
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
    row(&mut tables, BASE_BITS, Asked::default(), V_BASE, 9);
    row(&mut tables, CLASS_BITS, Asked::default(), 0, 9);
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
    row(&mut tables, CLASS_BITS, Asked { set: SET + 1, class: 3, ..Asked::default() }, V_ALLOW, 1);
    row(&mut tables, CLASS_BITS, Asked { set: SET + 1, ..Asked::default() }, V_ALLOW, 1);
    row(&mut tables, BASE_BITS, Asked { set: SET + 1, ..Asked::default() }, V_ALLOW | V_BASE, 1);
    assert_eq!(judged(&tables), Judgement::Deny(0));
}

#[test]
fn an_address_has_its_own_class_before_that_of_its_range() {
    let mut tables = FakeTables::node();
    base(&mut tables, 1);
    for class in [3, 4, 5, 6] {
        row(&mut tables, CLASS_BITS, all(class), V_ALLOW, 10 + class);
    }
    row(&mut tables, CLASS_BITS, all(0), V_ALLOW, 10);
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
    row(&mut tables, PORT_BITS, asked(0, TCP, 80), V_ALLOW, 2);
    assert_eq!(judged(&tables, TCP, 80), Judgement::Allow(2));
    assert_eq!(judged(&tables, TCP, 81), Judgement::Deny(1));
    // Rows of one protocol say nothing of the others.
    row(&mut tables, PORT_BITS, asked(3, UDP, 53), V_ALLOW, 3);
    assert_eq!(judged(&tables, UDP, 53), Judgement::Allow(3));
    assert_eq!(judged(&tables, TCP, 80), Judgement::Allow(2));
    // A row about all of the class's traffic is its own, also where it denies.
    row(&mut tables, CLASS_BITS, all(3), 0, 4);
    assert_eq!(judged(&tables, TCP, 80), Judgement::Deny(4));
    assert_eq!(judged(&tables, UDP, 53), Judgement::Allow(3));
}

#[test]
fn the_row_of_most_bits_decides() {
    let mut tables = FakeTables::node();
    base(&mut tables, 1);
    row(&mut tables, CLASS_BITS, all(0), V_ALLOW, 2);
    row(&mut tables, PROTO_BITS, asked(0, TCP, 0), 0, 3);
    row(&mut tables, PROTO_BITS + 4, asked(0, TCP, 0x1000), V_ALLOW, 4);
    row(&mut tables, PROTO_BITS + 15, asked(0, TCP, 0x1f90), 0, 5);
    row(&mut tables, PORT_BITS, asked(0, TCP, 0x1f90), V_ALLOW, 6);
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
fn a_loose_fragment_has_rows_of_its_own() {
    let mut tables = FakeTables::node();
    base(&mut tables, 1);
    let loose = |proto| Asked { part: PART_LOOSE, ..to(proto, 0) };
    row(&mut tables, PORT_BITS, asked(0, TCP, 0), V_ALLOW, 2);
    row(&mut tables, PROTO_BITS, asked(0, TCP, 0), V_ALLOW, 3);
    row(&mut tables, PROTO_BITS, Asked { part: PART_LOOSE, ..asked(0, UDP, 0) }, V_ALLOW, 4);
    let of = |asked: &Asked| judge(&tables, SET, &Addr::v4(PEER), asked);
    assert_eq!(of(&loose(TCP)), Judgement::Deny(1));
    assert_eq!(of(&loose(UDP)), Judgement::Allow(4));
    assert_eq!(of(&to(UDP, 0)), Judgement::Deny(1));
}
