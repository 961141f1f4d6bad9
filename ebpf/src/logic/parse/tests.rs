use super::*;
use crate::logic::packet::ETH_LEN;
use crate::logic::testing::{FakePacket, build};

const A: [u8; 4] = [10, 0, 1, 2];
const B: [u8; 4] = [10, 0, 1, 3];
const A6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
const B6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3];

fn parse<K: Parse>(bytes: Vec<u8>) -> Result<Parsed<K>, DropReason> {
    let mut packet = FakePacket::new(bytes, 9);
    // Nothing readable before it is asked for.
    packet.linear = 0;
    K::parse(&mut packet, ETH_LEN)
}

fn chain(headers: &[(u8, Vec<u8>)], last: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (i, (_, header)) in headers.iter().enumerate() {
        let mut header = header.clone();
        header[0] = headers.get(i + 1).map_or(last, |(kind, _)| *kind);
        bytes.extend(header);
    }
    bytes.extend(payload);
    build::ipv6(A6, B6, headers.first().map_or(last, |(kind, _)| *kind), &bytes)
}

#[test]
fn options_move_the_transport_header() {
    let tcp = build::tcp(&A, &B, 1000, 80, SYN, b"");
    let parsed = parse::<FlowKey4>(build::ipv4_with(A, B, TCP, 0x4000, &[1; 12], &tcp)).unwrap();
    assert_eq!((parsed.l4, parsed.headers, parsed.tcp), (ETH_LEN + 32, 52, SYN));
    assert_eq!((parsed.key.sport, parsed.key.dport), (1000_u16.to_be_bytes(), 80_u16.to_be_bytes()));
    assert_eq!(parsed.part, Part::Whole, "DF is no fragment");
}

#[test]
fn an_echo_has_its_identifier_for_a_port_and_its_answer_the_key_turned_round() {
    let ask = parse::<FlowKey4>(build::ipv4(A, B, ICMP, &build::icmp(8, 0, [7, 8, 0, 1], b"x", None))).unwrap();
    let answer = parse::<FlowKey4>(build::ipv4(B, A, ICMP, &build::icmp(0, 0, [7, 8, 0, 1], b"x", None))).unwrap();
    assert_eq!((ask.key.sport, ask.key.dport), ([7, 8], [7, 9]));
    assert_eq!(ask.key.swapped(), answer.key);
    let error = parse::<FlowKey4>(build::ipv4(A, B, ICMP, &build::icmp(3, 1, [0; 4], &[0x45; 28], None))).unwrap();
    assert!(error.is_icmp_error() && !ask.is_icmp_error());
}

/// In the tables IPv4 lies there: such a packet would be judged as one of IPv4.
#[test]
fn no_ipv6_packet_is_of_an_ipv4_address() {
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 2];
    for (src, dst) in [(mapped, B6), (A6, mapped)] {
        let bytes = build::ipv6(src, dst, UDP, &build::udp(&src, &dst, 5, 6, b"data"));
        assert_eq!(parse::<FlowKey6>(bytes), Err(DropReason::Martian), "{src:?} to {dst:?}");
    }
}

#[test]
fn extension_headers_are_walked_over() {
    let udp = build::udp(&A6, &B6, 5, 6, b"data");
    let headers = [(0, vec![0; 8]), (43, vec![0; 8]), (60, vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])];
    let parsed = parse::<FlowKey6>(chain(&headers, UDP, &udp)).unwrap();
    assert_eq!((parsed.key.proto, parsed.l4, parsed.headers), (UDP, ETH_LEN + 40 + 32, 80));
    assert_eq!(parsed.key.dport, 6_u16.to_be_bytes());
}

#[test]
fn eight_extension_headers_pass_and_nine_do_not() {
    let udp = build::udp(&A6, &B6, 5, 6, b"");
    let headers = |n: usize| vec![(60, vec![0; 8]); n];
    assert!(parse::<FlowKey6>(chain(&headers(8), UDP, &udp)).is_ok());
    assert_eq!(parse::<FlowKey6>(chain(&headers(9), UDP, &udp)), Err(DropReason::ExtHdr));
}

#[test]
fn extension_headers_of_more_than_256_bytes_are_dropped() {
    let udp = build::udp(&A6, &B6, 5, 6, b"");
    let long = |units: u8| {
        let mut header = vec![0; (usize::from(units) + 1) * 8];
        header[1] = units;
        vec![(60, header)]
    };
    assert!(parse::<FlowKey6>(chain(&long(31), UDP, &udp)).is_ok(), "256 bytes");
    assert_eq!(parse::<FlowKey6>(chain(&long(32), UDP, &udp)), Err(DropReason::ExtHdr), "264 bytes");
}

#[test]
fn fragments_are_told_apart_and_later_ones_have_no_ports() {
    let udp = build::udp(&A, &B, 5, 6, &[0; 16]);
    let part = |field| parse::<FlowKey4>(build::ipv4_with(A, B, UDP, field, &[], &udp)).unwrap();
    assert_eq!(part(0x2000).part, Part::First);
    let later = part(0x2001);
    assert_eq!((later.part, later.key.sport, later.key.dport), (Part::Later, [0; 2], [0; 2]));
    assert_eq!(part(0x0001).part, Part::Later, "the last one");

    let fragment = |field: u16| {
        let [o0, o1] = field.to_be_bytes();
        let header = vec![0, 0, o0, o1, 1, 2, 3, 4];
        parse::<FlowKey6>(chain(&[(44, header)], UDP, &build::udp(&A6, &B6, 5, 6, b""))).unwrap()
    };
    assert_eq!(fragment(0).part, Part::Whole, "atomic: RFC 6946");
    assert_eq!((fragment(1).part, fragment(1).id), (Part::First, [1, 2, 3, 4]));
    assert_eq!((fragment(8).part, fragment(8).key.dport), (Part::Later, [0; 2]));
}

#[test]
fn unknown_protocols_are_known_by_their_addresses() {
    let parsed = parse::<FlowKey4>(build::ipv4(A, B, 47, &[1, 2])).unwrap();
    assert_eq!((parsed.key.src, parsed.key.proto, parsed.key.sport), (A, 47, [0; 2]));
}

/// Each packet of these, cut at each byte, with its length field left and with it made right: never a panic, and never ports that are not
/// whole in the packet.
#[test]
fn a_packet_cut_anywhere_is_refused_or_still_whole_where_it_counts() {
    let tcp = build::tcp(&A, &B, 1000, 80, SYN, b"payload");
    let v4 = [
        build::ipv4_with(A, B, TCP, 0, &[1; 40], &tcp),
        build::ipv4(A, B, UDP, &build::udp(&A, &B, 1, 2, b"abc")),
        build::ipv4(A, B, SCTP, &[0; 16]),
        build::ipv4(A, B, ICMP, &build::icmp(8, 0, [0; 4], b"abc", None)),
    ];
    for bytes in v4 {
        let whole = parse::<FlowKey4>(bytes.clone()).unwrap();
        for cut in 0..bytes.len() {
            let mut short = bytes[..cut].to_vec();
            assert_eq!(
                parse::<FlowKey4>(short.clone()),
                Err(DropReason::Malformed),
                "length field beyond the packet, {cut}"
            );
            if cut >= ETH_LEN + 20 {
                let total = ((cut - ETH_LEN) as u16).to_be_bytes();
                short[ETH_LEN + 2..ETH_LEN + 4].copy_from_slice(&total);
                match parse::<FlowKey4>(short) {
                    Ok(parsed) => assert_eq!(parsed.key, whole.key),
                    Err(reason) => assert_eq!(reason, DropReason::Malformed),
                }
            }
        }
    }
    let udp = build::udp(&A6, &B6, 1, 2, b"abc");
    let bytes = chain(
        &[
            (0, vec![0; 8]),
            (44, vec![0; 8]),
            (51, vec![0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ],
        UDP,
        &udp,
    );
    let whole = parse::<FlowKey6>(bytes.clone()).unwrap();
    for cut in 0..bytes.len() {
        let mut short = bytes[..cut].to_vec();
        assert_eq!(parse::<FlowKey6>(short.clone()), Err(DropReason::Malformed), "{cut}");
        if cut >= ETH_LEN + 40 {
            let payload = ((cut - ETH_LEN - 40) as u16).to_be_bytes();
            short[ETH_LEN + 4..ETH_LEN + 6].copy_from_slice(&payload);
            match parse::<FlowKey6>(short) {
                Ok(parsed) => assert_eq!(parsed.key, whole.key),
                Err(reason) => assert_eq!(reason, DropReason::Malformed),
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
        let _ = parse::<FlowKey4>(bytes.clone());
        let _ = parse::<FlowKey6>(bytes);
    }
}
