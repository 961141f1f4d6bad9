//! Each protocol rewritten both ways, judged as its receiver would: every checksum right, and everything else untouched.

use super::super::parse::{Parse, SCTP};
use super::super::testing::{FakePacket, build, verify};
use super::*;
use crate::layout::{FlowKey4, FlowKey6};

const POD4: [u8; 4] = [10, 0, 1, 9];
const OUT4: [u8; 4] = [203, 0, 113, 7];
const NODE4: [u8; 4] = [192, 168, 0, 1];
const POD6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
const OUT6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
const NODE6: [u8; 16] = [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Both ends: source to the node's with this port, destination to another address with another port.
fn entry<K: FlowKey>(flags: u8, sport: u16, dport: u16) -> FlowEntry {
    let (src, dst) = if K::V6 { (Addr::v6(NODE6), Addr::v6(POD6)) } else { (Addr::v4(NODE4), Addr::v4(POD4)) };
    let (new_sport, new_dport) = (sport.to_be_bytes(), dport.to_be_bytes());
    FlowEntry { flags, new_src: src, new_dst: dst, new_sport, new_dport, ..FlowEntry::default() }
}

fn rewritten<K: Parse>(frame: Vec<u8>, entry: &FlowEntry) -> FakePacket {
    let mut p = FakePacket::new(frame, 3);
    let parsed = K::parse(&mut p, 14).expect("a whole packet");
    rewrite(&mut p, &parsed, entry).expect("rewritten");
    p
}

const BOTH: u8 = F_REWRITE_SRC | F_REWRITE_DST;

#[test]
fn tcp_and_udp_change_addresses_and_ports_of_the_ends_named() {
    let v4 = [build::tcp(&POD4, &OUT4, 4000, 80, 2, b"x"), build::udp(&POD4, &OUT4, 4000, 80, b"four")];
    for (proto, payload) in [6, 17].into_iter().zip(v4) {
        let frame = build::ipv4(POD4, OUT4, proto, &payload);
        let p = rewritten::<FlowKey4>(frame.clone(), &entry::<FlowKey4>(F_REWRITE_SRC, 61_000, 0));
        verify(&p.bytes);
        assert_eq!(p.bytes[26..38], [192, 168, 0, 1, 203, 0, 113, 7, 0xee, 0x48, 0, 80]);
        let p = rewritten::<FlowKey4>(frame, &entry::<FlowKey4>(BOTH, 61_000, 443));
        verify(&p.bytes);
        assert_eq!(p.bytes[26..38], [192, 168, 0, 1, 10, 0, 1, 9, 0xee, 0x48, 1, 0xbb]);
    }
    let v6 = [build::tcp(&POD6, &OUT6, 4000, 80, 2, b"xyz"), build::udp(&POD6, &OUT6, 4000, 80, b"")];
    for (proto, payload) in [6, 17].into_iter().zip(v6) {
        let p = rewritten::<FlowKey6>(build::ipv6(POD6, OUT6, proto, &payload), &entry::<FlowKey6>(BOTH, 61_000, 443));
        verify(&p.bytes);
        assert_eq!(p.bytes[22..38], NODE6);
        assert_eq!(p.bytes[38..54], POD6);
        assert_eq!(p.bytes[54..58], [0xee, 0x48, 1, 0xbb]);
    }
}

#[test]
fn nothing_is_touched_where_the_entry_says_nothing() {
    let frame = build::ipv4(POD4, OUT4, 17, &build::udp(&POD4, &OUT4, 4000, 53, b"q"));
    assert_eq!(rewritten::<FlowKey4>(frame.clone(), &entry::<FlowKey4>(0, 1, 2)).bytes, frame);
}

#[test]
fn no_udp_checksum_stays_none() {
    let mut udp = build::udp(&POD4, &OUT4, 4000, 53, b"q");
    udp[6..8].fill(0);
    let p = rewritten::<FlowKey4>(build::ipv4(POD4, OUT4, 17, &udp), &entry::<FlowKey4>(F_REWRITE_SRC, 61_000, 0));
    assert_eq!(p.bytes[40..42], [0, 0]);
    verify(&p.bytes);
}

#[test]
fn a_udp_checksum_that_becomes_zero_is_written_as_ones() {
    // Every new port is tried: one of them makes the sum zero.
    let frame = build::ipv4(POD4, OUT4, 17, &build::udp(&POD4, &OUT4, 4000, 53, b"q"));
    let sums = (0..=u16::MAX).map(|port| {
        let p = rewritten::<FlowKey4>(frame.clone(), &entry::<FlowKey4>(F_REWRITE_SRC, port, 0));
        [p.bytes[40], p.bytes[41]]
    });
    let sums: Vec<_> = sums.collect();
    assert!(!sums.contains(&[0, 0]) && sums.contains(&[0xff, 0xff]));
}

#[test]
fn a_partial_checksum_covers_the_new_addresses_and_no_ports() {
    for proto in [6, 17] {
        let mut payload = if proto == 6 {
            build::tcp(&POD4, &OUT4, 4000, 80, 2, b"x")
        } else {
            build::udp(&POD4, &OUT4, 4000, 80, b"x")
        };
        let at = if proto == 6 { 16 } else { 6 };
        let pseudo = |src: [u8; 4], dst: [u8; 4], len: usize| {
            let mut b = Vec::from(src);
            b.extend(dst);
            b.extend([0, proto, 0, len as u8]);
            (!build::checksum(&[&b])).to_ne_bytes()
        };
        let len = payload.len();
        payload[at..at + 2].copy_from_slice(&pseudo(POD4, OUT4, len));
        let mut p = FakePacket::new(build::ipv4(POD4, OUT4, proto, &payload), 3);
        p.partial = true;
        let parsed = FlowKey4::parse(&mut p, 14).expect("whole");
        rewrite(&mut p, &parsed, &entry::<FlowKey4>(BOTH, 61_000, 443)).expect("rewritten");
        assert_eq!(p.bytes[34 + at..36 + at], pseudo(NODE4, POD4, len), "protocol {proto}");
    }
}

#[test]
fn an_echo_changes_its_identifier() {
    let echo = build::icmp(8, 0, [0x11, 0x22, 0, 7], b"ping", None);
    let p = rewritten::<FlowKey4>(build::ipv4(POD4, OUT4, 1, &echo), &entry::<FlowKey4>(BOTH, 0x3344, 0x3345));
    verify(&p.bytes);
    assert_eq!(p.bytes[38..42], [0x33, 0x44, 0, 7]);
    let echo = build::icmp(128, 0, [0x11, 0x22, 0, 7], b"ping", Some((POD6, OUT6)));
    let p = rewritten::<FlowKey6>(build::ipv6(POD6, OUT6, 58, &echo), &entry::<FlowKey6>(BOTH, 0x3344, 0x3345));
    verify(&p.bytes);
    assert_eq!(p.bytes[58..62], [0x33, 0x44, 0, 7]);
    // And its answer.
    let answer = build::icmp(0, 0, [0x33, 0x44, 0, 7], b"ping", None);
    let p = rewritten::<FlowKey4>(build::ipv4(POD4, OUT4, 1, &answer), &entry::<FlowKey4>(BOTH, 0x1123, 0x1122));
    verify(&p.bytes);
    assert_eq!(p.bytes[38..42], [0x11, 0x22, 0, 7]);
}

#[test]
fn sctp_and_unknown_protocols_change_by_address_alone() {
    for proto in [SCTP, 47] {
        let payload = [0xf, 0xa0, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8];
        let p = rewritten::<FlowKey4>(
            build::ipv4(POD4, OUT4, proto, &payload),
            &entry::<FlowKey4>(F_REWRITE_SRC, 0xfa0, 0),
        );
        verify(&p.bytes);
        assert_eq!(p.bytes[26..30], NODE4);
        assert_eq!(p.bytes[34..], payload);
    }
}

#[test]
fn of_a_later_fragment_only_the_header_changes() {
    // Its payload looks like ports and a checksum, and is none.
    let payload = vec![0xaa; 16];
    let frame = build::ipv4_with(POD4, OUT4, 17, 185, &[], &payload);
    let p = rewritten::<FlowKey4>(frame, &entry::<FlowKey4>(F_REWRITE_SRC, 61_000, 0));
    verify(&p.bytes);
    assert_eq!(p.bytes[26..30], NODE4);
    assert_eq!(p.bytes[34..], payload);
}
