//! Packet too big and time exceeded as the pod's kernel reads them.

use super::super::parse::Parse;
use super::super::testing::{FakePacket, FakeTables, build, verify};
use super::super::{Verdict, time_exceeded, too_big};
use super::*;
use crate::layout::{DropReason, FlowKey4, FlowKey6, Stat};

const POD4: [u8; 4] = [10, 0, 1, 9];
const OUT4: [u8; 4] = [203, 0, 113, 7];
const POD6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
const OUT6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const SLOT: u32 = 4;

fn big4(t: &FakeTables, frame: Vec<u8>) -> (Verdict, FakePacket) {
    let mut p = FakePacket::new(frame, 33);
    let parsed = FlowKey4::parse(&mut p, 14).expect("whole");
    (too_big::answer(&mut p, t, &parsed, SLOT, 1400, 0), p)
}

fn big6(t: &FakeTables, frame: Vec<u8>, mtu: u16) -> (Verdict, FakePacket) {
    let mut p = FakePacket::new(frame, 33);
    let parsed = FlowKey6::parse(&mut p, 14).expect("whole");
    (too_big::answer(&mut p, t, &parsed, SLOT, mtu, 0), p)
}

#[test]
fn v4_says_the_mtu_and_quotes_header_and_20_bytes() {
    for options in [&[][..], &[1, 1, 1, 1], &[1; 40]] {
        let t = FakeTables::node();
        let frame = build::ipv4_with(POD4, OUT4, 6, 0, options, &build::tcp(&POD4, &OUT4, 4000, 80, 0x10, &[7; 1460]));
        let (verdict, p) = big4(&t, frame.clone());
        assert_eq!(verdict, Verdict::reply(33));
        verify(&p.bytes);
        assert_eq!(
            p.bytes[..14],
            [&build::POD[..], &build::GATEWAY, &[8, 0]].concat(),
            "back to the pod from its gateway"
        );
        assert_eq!(p.bytes[26..30], GATEWAY4);
        assert_eq!(p.bytes[30..34], POD4);
        assert_eq!(p.bytes[34..36], [3, 4]);
        assert_eq!(p.bytes[38..42], [0, 0, 0x05, 0x78]);
        assert_eq!(p.bytes[42..], frame[14..14 + 40 + options.len()]);
        assert_eq!(t.stat(Stat::TooBigSent), 1);
    }
}

#[test]
fn v6_says_the_mtu_and_quotes_extension_headers() {
    let udp = build::udp(&POD6, &OUT6, 4000, 53, &[7; 1460]);
    let long: Vec<u8> = [&[17, 30, 1, 4, 0, 0, 0, 0][..], &[0; 240], &udp].concat();
    for (next, payload, extension) in
        [(17, udp.clone(), 0), (60, [&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp].concat(), 8), (60, long, 248)]
    {
        let t = FakeTables::node();
        let frame = build::ipv6(POD6, OUT6, next, &payload);
        let (verdict, p) = big6(&t, frame.clone(), 1400);
        assert_eq!(verdict, Verdict::reply(33));
        verify(&p.bytes);
        assert_eq!(p.bytes[22..38], GATEWAY6);
        assert_eq!(p.bytes[38..54], POD6);
        assert_eq!(p.bytes[54..56], [2, 0]);
        assert_eq!(p.bytes[58..62], [0, 0, 0x05, 0x78]);
        assert_eq!(p.bytes[62..], frame[14..14 + 60 + extension]);
    }
}

#[test]
fn v6_never_says_less_than_every_link_has() {
    let frame = build::ipv6(POD6, OUT6, 17, &build::udp(&POD6, &OUT6, 4000, 53, &[7; 1460]));
    let (_, p) = big6(&FakeTables::node(), frame, 1000);
    assert_eq!(p.bytes[58..62], 1280_u32.to_be_bytes());
}

#[test]
fn an_endpoint_gets_its_share_a_second() {
    let t = FakeTables::node();
    let frame = build::ipv4(POD4, OUT4, 17, &build::udp(&POD4, &OUT4, 4000, 53, &[7; 1460]));
    for _ in 0..t.config.too_big_rate {
        assert_eq!(big4(&t, frame.clone()).0, Verdict::reply(33));
    }
    assert_eq!(big4(&t, frame.clone()).0, Verdict::drop(DropReason::TooBigLimited));
    assert!(take(&t, SLOT + 1, 0), "another endpoint has its own");
    assert!(!take(&t, SLOT, t.config.ticks_per_second - 1));
    assert!(take(&t, SLOT, t.config.ticks_per_second), "the next second");
}

#[test]
fn what_must_not_be_answered_is_not() {
    let t = FakeTables::node();
    let quoted = build::ipv4(OUT4, POD4, 17, &build::udp(&OUT4, &POD4, 53, 4000, &[7; 1400]));
    let error = build::ipv4(POD4, OUT4, 1, &build::icmp(3, 3, [0; 4], &quoted[14..], None));
    let later = build::ipv4_with(POD4, OUT4, 17, 185, &[], &[7; 1460]);
    let group = build::ipv4(POD4, [239, 1, 1, 1], 17, &build::udp(&POD4, &[239, 1, 1, 1], 4000, 53, &[7; 1460]));
    for frame in [error, later, group] {
        let (verdict, p) = big4(&t, frame.clone());
        assert_eq!(verdict, Verdict::drop(DropReason::TooBig));
        assert_eq!(p.bytes, frame);
    }
    assert!(t.budgets.borrow().is_empty(), "nothing is taken from the share");
}

#[test]
fn time_exceeded_quotes_a_short_packet_whole() {
    // Every length up to the full quote, since the sum takes four bytes at a time.
    for payload in 0..=16 {
        let t = FakeTables::node();
        let frame = build::ipv4(POD4, OUT4, 17, &build::udp(&POD4, &OUT4, 4000, 33434, &[0xa5; 16][..payload]));
        let mut p = FakePacket::new(frame.clone(), 33);
        let parsed = FlowKey4::parse(&mut p, 14).expect("whole");
        assert_eq!(time_exceeded::answer(&mut p, &t, &parsed, SLOT, 0), Verdict::reply(33));
        verify(&p.bytes);
        assert_eq!(p.bytes[34..36], [11, 0]);
        assert_eq!(p.bytes[42..], frame[14..54.min(frame.len())]);

        let frame = build::ipv6(POD6, OUT6, 17, &build::udp(&POD6, &OUT6, 4000, 33434, &[0xa5; 16][..payload]));
        let mut p = FakePacket::new(frame.clone(), 33);
        let parsed = FlowKey6::parse(&mut p, 14).expect("whole");
        assert_eq!(time_exceeded::answer(&mut p, &t, &parsed, SLOT, 0), Verdict::reply(33));
        verify(&p.bytes);
        assert_eq!(p.bytes[54..56], [3, 0]);
        assert_eq!(p.bytes[62..], frame[14..74.min(frame.len())]);
    }
}

#[test]
fn time_exceeded_takes_from_the_same_share() {
    let t = FakeTables::node();
    while take(&t, SLOT, 0) {}
    let mut p = FakePacket::new(build::ipv4(POD4, OUT4, 17, &build::udp(&POD4, &OUT4, 4000, 33434, b"")), 33);
    let parsed = FlowKey4::parse(&mut p, 14).expect("whole");
    assert_eq!(time_exceeded::answer(&mut p, &t, &parsed, SLOT, 0), Verdict::drop(DropReason::HopLimit));
}

/// The node's own socket, or who the stack forwards for, sends to a pod of another node. What the stack gets at `osmia0` has to come from
/// where its route leads there.
#[test]
fn the_stack_is_told_by_the_packets_destination() {
    let t = FakeTables::node();
    let frame = build::ipv4(OUT4, POD4, 6, &build::tcp(&OUT4, &POD4, 4000, 80, 0x10, &[7; 1460]));
    let mut p = FakePacket::new(frame.clone(), 51);
    let parsed = FlowKey4::parse(&mut p, 14).expect("whole");
    assert_eq!(too_big::answer(&mut p, &t, &parsed, 0, 1400, 0), Verdict::STACK);
    verify(&p.bytes);
    assert_eq!(p.bytes[..6], build::GATEWAY, "or osmia0 takes it for another host's");
    assert_eq!((&p.bytes[26..30], &p.bytes[30..34]), (&POD4[..], &OUT4[..]));
    assert_eq!((&p.bytes[34..36], &p.bytes[38..42]), (&[3, 4][..], &[0, 0, 0x05, 0x78][..]));
    assert_eq!(p.bytes[42..], frame[14..54]);

    let frame = build::ipv6(OUT6, POD6, 17, &build::udp(&OUT6, &POD6, 4000, 53, &[7; 1460]));
    let mut p = FakePacket::new(frame, 51);
    let parsed = FlowKey6::parse(&mut p, 14).expect("whole");
    assert_eq!(too_big::answer(&mut p, &t, &parsed, 0, 1400, 0), Verdict::STACK);
    verify(&p.bytes);
    assert_eq!((&p.bytes[22..38], &p.bytes[38..54]), (&POD6[..], &OUT6[..]));
    // Ten a second, as a pod gets.
    for n in 2..=11 {
        let mut p = FakePacket::new(build::ipv4(OUT4, POD4, 17, &build::udp(&OUT4, &POD4, 1, 2, &[7; 1460])), 51);
        let parsed = FlowKey4::parse(&mut p, 14).expect("whole");
        let told = too_big::answer(&mut p, &t, &parsed, 0, 1400, 0);
        assert_eq!(told == Verdict::STACK, n < 10, "{n}: {told:?}");
    }
}
