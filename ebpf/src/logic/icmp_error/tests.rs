//! Errors from a router, from the far end and from the pod, about packets whose ends were rewritten: the receiver finds its own packet.

use super::super::parse::{Parse, query};
use super::super::tables::Insert;
use super::super::testing::{FakePacket, FakeTables, build, verify};
use super::*;
use crate::layout::{Addr, FlowKey4, FlowKey6};

const POD4: [u8; 4] = [10, 0, 1, 9];
const OUT4: [u8; 4] = [203, 0, 113, 7];
const NODE4: [u8; 4] = [192, 168, 0, 1];
const ROUTER4: [u8; 4] = [198, 51, 100, 1];
const POD6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
const OUT6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
const NODE6: [u8; 16] = [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const ROUTER6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const MASQ: [u8; 2] = [0xee, 0x48];
const PORT: [u8; 2] = [0x0f, 0xa0];
const FAR: [u8; 2] = [0, 80];

/// A masqueraded flow's two directions.
struct Flow<K> {
    opener: K,
    forward: FlowEntry,
    replies: K,
    reverse: FlowEntry,
}

fn flow<K: FlowKey>(proto: u8) -> Flow<K> {
    let (pod, out, node) = if K::V6 {
        (Addr::v6(POD6), Addr::v6(OUT6), Addr::v6(NODE6))
    } else {
        (Addr::v4(POD4), Addr::v4(OUT4), Addr::v4(NODE4))
    };
    let echo = matches!(proto, 1 | 58);
    let (port, far, masq) = match proto {
        6 | 17 => (PORT, FAR, MASQ),
        1 | 58 => (PORT, query::after(PORT), MASQ),
        _ => ([0; 2], [0; 2], [0; 2]),
    };
    let mut forward = FlowEntry { flags: F_REWRITE_SRC, new_src: node, new_sport: masq, ..FlowEntry::default() };
    let mut reverse = FlowEntry { flags: F_REWRITE_DST, new_dst: pod, new_dport: port, ..FlowEntry::default() };
    if echo {
        forward =
            FlowEntry { flags: F_REWRITE_SRC | F_REWRITE_DST, new_dst: out, new_dport: query::after(masq), ..forward };
        reverse = FlowEntry { flags: F_REWRITE_SRC | F_REWRITE_DST, new_src: out, new_sport: far, ..reverse };
    }
    let opener = K::of(&pod, &out, port, far, proto);
    let replies = opener.opposite(&forward);
    Flow { opener, forward, replies, reverse }
}

/// An IP packet of a key, `payload` bytes long.
fn packet<K: FlowKey>(key: &K, payload: usize) -> Vec<u8> {
    let (sport, dport) = (u16::from_be_bytes(key.sport()), u16::from_be_bytes(key.dport()));
    let data = vec![0x5a; payload];
    let (s4, d4, s6, d6) = (key.src().to_v4(), key.dst().to_v4(), key.src().0, key.dst().0);
    let (src, dst): (&[u8], &[u8]) = if K::V6 { (&s6, &d6) } else { (&s4, &d4) };
    let asked = query::is_asked(key.sport(), key.dport());
    let [i0, i1] = query::identifier(key.sport(), key.dport());
    let transport = match key.proto() {
        6 => build::tcp(src, dst, sport, dport, 0x10, &data),
        17 => build::udp(src, dst, sport, dport, &data),
        1 => build::icmp(if asked { 8 } else { 0 }, 0, [i0, i1, 0, 1], &data, None),
        58 => build::icmp(if asked { 128 } else { 129 }, 0, [i0, i1, 0, 1], &data, Some((s6, d6))),
        _ => data,
    };
    let frame =
        if K::V6 { build::ipv6(s6, d6, key.proto(), &transport) } else { build::ipv4(s4, d4, key.proto(), &transport) };
    frame[14..].to_vec()
}

/// An error from `from` to the sender of `quoted`.
fn error<K: FlowKey>(from: Addr, quoted: &[u8]) -> Vec<u8> {
    if K::V6 {
        let to: [u8; 16] = quoted[8..24].try_into().expect("16 bytes");
        build::ipv6(from.0, to, 58, &build::icmp(1, 4, [0; 4], quoted, Some((from.0, to))))
    } else {
        let to: [u8; 4] = quoted[12..16].try_into().expect("4 bytes");
        build::ipv4(from.to_v4(), to, 1, &build::icmp(3, 4, [0, 0, 5, 0], quoted, None))
    }
}

fn followed<K: Parse>(frame: Vec<u8>, expected: &K, entry: &FlowEntry) -> Vec<u8> {
    let t = FakeTables::node();
    let mut p = FakePacket::new(frame, 3);
    let parsed = K::parse(&mut p, 14).expect("whole");
    assert!(parsed.is_icmp_error());
    let related = parse(&mut p, &parsed).expect("quotes a packet of its receiver");
    assert!(related.answers == *expected, "belongs to the answers");
    rewrite(&mut p, &t, &parsed, &related, entry).expect("rewritten");
    assert_eq!(t.stat(Stat::IcmpErrorRelated), 1);
    p.bytes
}

fn from_outside<K: Parse>(router: Addr, protocols: &[u8]) {
    for proto in protocols {
        let flow = flow::<K>(*proto);
        // Quotes cut anywhere from 8 transport bytes on, and whole.
        for quoted in [8, 12, 16, 18, 20, 28, 300] {
            let wire = packet(&flow.replies.swapped(), 280);
            let own = packet(&flow.opener, 280);
            let length = (K::IP_LEN + quoted).min(wire.len());
            for from in [router, flow.replies.src()] {
                let bytes = followed(error::<K>(from, &wire[..length]), &flow.replies, &flow.reverse);
                verify(&bytes);
                assert_eq!(
                    bytes,
                    error::<K>(from, &own[..length]),
                    "protocol {proto}, {quoted} bytes: as if never rewritten"
                );
            }
        }
    }
}

#[test]
fn a_router_outside_tells_the_pod_about_its_own_packet() {
    from_outside::<FlowKey4>(Addr::v4(ROUTER4), &[6, 17, 1, 47]);
    from_outside::<FlowKey6>(Addr::v6(ROUTER6), &[6, 17, 58, 47]);
}

#[test]
fn the_pods_own_error_reaches_the_far_end_as_the_nodes() {
    for proto in [6, 17, 1] {
        let flow = flow::<FlowKey4>(proto);
        // The reply as it reached the pod, and as the far end sent it.
        let seen = packet(&flow.opener.swapped(), 100);
        let sent = packet(&flow.replies, 100);
        let bytes = followed(error::<FlowKey4>(Addr::v4(POD4), &seen[..48]), &flow.opener, &flow.forward);
        verify(&bytes);
        assert_eq!(bytes, error::<FlowKey4>(Addr::v4(NODE4), &sent[..48]));
    }
}

#[test]
fn no_udp_checksum_in_the_quote_stays_none() {
    let flow = flow::<FlowKey4>(17);
    let mut wire = packet(&flow.replies.swapped(), 100);
    wire[26..28].fill(0);
    let bytes = followed(error::<FlowKey4>(Addr::v4(ROUTER4), &wire), &flow.replies, &flow.reverse);
    verify(&bytes);
    assert_eq!(bytes[14 + 28 + 26..14 + 28 + 28], [0, 0]);
}

#[test]
fn without_rewrites_nothing_changes() {
    let flow = flow::<FlowKey4>(6);
    let frame = error::<FlowKey4>(Addr::v4(ROUTER4), &packet(&flow.opener, 100));
    assert_eq!(followed(frame.clone(), &flow.opener.swapped(), &FlowEntry::default()), frame);
}

fn parsed_of(frame: Vec<u8>) -> Result<Related<FlowKey4>, DropReason> {
    let mut p = FakePacket::new(frame, 3);
    let parsed = FlowKey4::parse(&mut p, 14).expect("whole");
    parse(&mut p, &parsed)
}

#[test]
fn an_error_to_somebody_else_than_the_quoted_sender_belongs_to_no_flow() {
    let quoted = packet(&flow::<FlowKey4>(17).opener, 100);
    let frame = build::ipv4(ROUTER4, NODE4, 1, &build::icmp(3, 3, [0; 4], &quoted, None));
    assert_eq!(parsed_of(frame), Err(DropReason::IcmpNoFlow));
}

#[test]
fn a_quote_that_tells_nothing_belongs_to_no_flow() {
    let quoted = packet(&flow::<FlowKey4>(17).opener, 100);
    for length in 0..28 {
        let frame = build::ipv4(ROUTER4, POD4, 1, &build::icmp(3, 3, [0; 4], &quoted[..length], None));
        assert_eq!(parsed_of(frame), Err(DropReason::IcmpNoFlow), "{length} bytes quoted");
    }
    let about_an_error = build::ipv4(POD4, OUT4, 1, &build::icmp(3, 3, [0; 4], &quoted, None));
    assert_eq!(parsed_of(error::<FlowKey4>(Addr::v4(ROUTER4), &about_an_error[14..])), Err(DropReason::IcmpNoFlow));
}

#[test]
fn a_quoted_later_fragment_is_told_by_addresses() {
    let frame = build::ipv4_with(POD4, OUT4, 17, 185, &[], &[7; 64]);
    let related = parsed_of(error::<FlowKey4>(Addr::v4(ROUTER4), &frame[14..])).expect("addresses are there");
    assert_eq!(related.answers, FlowKey4::of(&Addr::v4(OUT4), &Addr::v4(POD4), [0; 2], [0; 2], 17));
}

#[test]
fn the_entry_is_found_in_either_table() {
    let flow = flow::<FlowKey4>(6);
    let frame = error::<FlowKey4>(Addr::v4(ROUTER4), &packet(&flow.replies.swapped(), 100));
    let related = parsed_of(frame).expect("a quote");
    for table in [Table::Probation, Table::Established] {
        let t = FakeTables::node();
        assert!(matches!(find(&t, &related, 0), Err(DropReason::IcmpNoFlow)));
        flow.replies.put(&t, &flow.reverse, table, Insert::Any).expect("room");
        assert!(matches!(find(&t, &related, 0), Ok((_, found)) if found == table));
    }
}
