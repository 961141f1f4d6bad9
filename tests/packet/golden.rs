//! Golden packets: tunnel, rewrites, ICMP errors, fragments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use osmia_lab::packet::{Ip, flags, frame};
use osmia_maps::layout::DropReason;
use osmia_maps::layout::programs::{FROM_POD, FROM_UPLINK};

use crate::cluster::{
    Cluster, FAR4, FAR6, GATEWAY, HERE4, HERE6, OUTSIDE4, OUTSIDE6, POD_MAC, POD4, POD6, REDIRECT, SHOT, THERE4,
    THERE6, TUNNEL_MTU,
};
use crate::receiver;

/// A MAC on the wire; nothing depends on it.
const WIRE: [u8; 6] = [2, 9, 9, 9, 9, 9];

fn object(outer_v6: bool) -> Cluster {
    Cluster::new(outer_v6).expect("the object and its rows")
}

fn pick(v6: bool, v4_address: Ipv4Addr, v6_address: Ipv6Addr) -> IpAddr {
    if v6 { v6_address.into() } else { v4_address.into() }
}

fn pod(v6: bool) -> IpAddr {
    pick(v6, POD4, POD6)
}

fn far(v6: bool) -> IpAddr {
    pick(v6, FAR4, FAR6)
}

fn outside(v6: bool) -> IpAddr {
    pick(v6, OUTSIDE4, OUTSIDE6)
}

fn here(v6: bool) -> IpAddr {
    pick(v6, HERE4, HERE6)
}

/// What the pod sends, through the program of its link.
fn from_pod(object: &Cluster, packet: &[u8]) -> (u32, Vec<u8>) {
    object.run(FROM_POD, &frame(GATEWAY, POD_MAC, packet)).expect("a run")
}

/// What an uplink gets, through its program.
fn from_uplink(object: &Cluster, packet: &[u8]) -> (u32, Vec<u8>) {
    object.run(FROM_UPLINK, &frame(WIRE, WIRE, packet)).expect("a run")
}

const ALL: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[test]
fn a_packet_to_the_other_node_is_wrapped() {
    for (outer_v6, v6) in ALL {
        let object = object(outer_v6);
        let (verdict, out) = from_pod(&object, &Ip::new(pod(v6), far(v6)).udp(4000, 53, b"question"));
        assert_eq!(verdict, REDIRECT);
        receiver::takes(&out);
        let ip = if outer_v6 { 40 } else { 20 };
        let (outer, inner) = out.split_at(14 + ip + 30);
        // One hop less than it left the pod with.
        let expected = Ip { hops: 63, ..Ip::new(pod(v6), far(v6)) }.udp(4000, 53, b"question");
        assert_eq!(inner, expected, "outer IPv6 {outer_v6}, inner IPv6 {v6}");
        let (from, to) = (here(outer_v6), pick(outer_v6, THERE4, THERE6));
        // Source port, and no UDP checksum.
        let port = u16::from_be_bytes([outer[14 + ip], outer[15 + ip]]);
        assert!(port >= 49_152, "{port}");
        let mut wanted = Ip::new(from, to).vxlan(port, 4789, 1, &frame([2; 6], [4; 6], &expected));
        wanted[ip + 6..ip + 8].fill(0);
        if !outer_v6 {
            // Do not fragment, which the builder does not say, and its header's sum.
            wanted[6] = 0x40;
            wanted[10..12].copy_from_slice(&out[24..26]);
        }
        assert_eq!(out[14..], wanted);
    }
}

#[test]
fn a_packet_of_the_other_node_is_unwrapped() {
    for (outer_v6, v6) in ALL {
        let object = object(outer_v6);
        let packet = Ip::new(far(v6), pod(v6)).tcp(4000, 80, flags::SYN, 1, 0);
        let there = pick(outer_v6, THERE4, THERE6);
        let wrapped = Ip::new(there, here(outer_v6)).vxlan(50_000, 4789, 1, &frame([2; 6], [4; 6], &packet));
        let (verdict, out) = from_uplink(&object, &wrapped);
        assert_eq!(verdict, REDIRECT, "outer IPv6 {outer_v6}, inner IPv6 {v6}");
        assert_eq!(out[12..], frame(WIRE, WIRE, &packet)[12..]);
    }
}

#[test]
fn a_stranger_is_not_unwrapped() {
    let object = object(false);
    let inner = |source: Ipv4Addr| frame([2; 6], [4; 6], &Ip::new(source, POD4).udp(4000, 53, b"forged"));
    for (outer, source) in [(OUTSIDE4, FAR4), (THERE4, OUTSIDE4), (THERE4, POD4), (THERE4, HERE4)] {
        let before = object.dropped(DropReason::TunnelSpoof).expect("a count");
        let (verdict, _) = from_uplink(&object, &Ip::new(outer, HERE4).vxlan(50_000, 4789, 1, &inner(source)));
        assert_eq!(verdict, SHOT, "{source} by {outer}");
        assert_eq!(object.dropped(DropReason::TunnelSpoof).expect("a count"), before + 1, "{source} by {outer}");
    }
    let (verdict, _) = from_uplink(&object, &Ip::new(THERE4, HERE4).vxlan(50_000, 4789, 2, &inner(FAR4)));
    assert_eq!((verdict, object.dropped(DropReason::TunnelHeader).expect("a count")), (SHOT, 1));
}

#[test]
fn too_long_a_packet_comes_back_as_packet_too_big() {
    for v6 in [false, true] {
        let object = object(false);
        let header = if v6 { 40 } else { 20 };
        let fits = usize::from(TUNNEL_MTU) - header - 8;
        let (_, out) = from_pod(&object, &Ip::new(pod(v6), far(v6)).udp(4000, 53, &vec![7; fits]));
        assert_eq!(out.len(), 14 + 50 + usize::from(TUNNEL_MTU), "what fits is sent");

        let packet = Ip::new(pod(v6), far(v6)).udp(4000, 53, &vec![7; fits + 1]);
        let (verdict, out) = from_pod(&object, &packet);
        assert_eq!(verdict, REDIRECT);
        receiver::takes(&out);
        assert_eq!(out[..12], [POD_MAC, GATEWAY].concat());
        let icmp = 14 + header;
        assert_eq!(out[icmp..icmp + 2], if v6 { [2, 0] } else { [3, 4] });
        assert_eq!(out[icmp + 4..icmp + 8], u32::from(TUNNEL_MTU).to_be_bytes());
        assert_eq!(out[icmp + 8..], packet[..header + 20]);
    }
}

#[test]
fn the_last_hop_comes_back_as_time_exceeded() {
    for v6 in [false, true] {
        let object = object(false);
        let packet = Ip { hops: 1, ..Ip::new(pod(v6), far(v6)) }.udp(4000, 33_434, b"trace");
        let (verdict, out) = from_pod(&object, &packet);
        assert_eq!(verdict, REDIRECT);
        receiver::takes(&out);
        let icmp = 14 + if v6 { 40 } else { 20 };
        assert_eq!(out[icmp..icmp + 2], if v6 { [3, 0] } else { [11, 0] });
        assert_eq!(out[icmp + 8..], packet);
    }
}

/// Opens a flow of the pod to the outside; the port it was given.
fn masqueraded(object: &Cluster, v6: bool) -> u16 {
    let (verdict, out) = from_pod(object, &Ip::new(pod(v6), outside(v6)).udp(4000, 53, b"question"));
    assert_eq!(verdict, REDIRECT, "IPv6 {v6}");
    receiver::takes(&out);
    let l4 = 14 + if v6 { 40 } else { 20 };
    let port = u16::from_be_bytes([out[l4], out[l4 + 1]]);
    assert!((61_000..=65_535).contains(&port), "{port}");
    let expected = Ip { hops: 63, ..Ip::new(here(v6), outside(v6)) }.udp(port, 53, b"question");
    assert_eq!(out[14..], expected);
    port
}

#[test]
fn a_packet_to_the_outside_and_its_answer_are_rewritten() {
    for v6 in [false, true] {
        let object = object(false);
        let port = masqueraded(&object, v6);
        let (verdict, out) = from_uplink(&object, &Ip::new(outside(v6), here(v6)).udp(53, port, b"answer"));
        assert_eq!(verdict, REDIRECT);
        receiver::takes(&out);
        let expected =
            Ip { hops: out[if v6 { 21 } else { 22 }], ..Ip::new(outside(v6), pod(v6)) }.udp(53, 4000, b"answer");
        assert_eq!(out[14..], expected);
    }
}

#[test]
fn a_routers_error_is_about_the_pods_own_packet() {
    for v6 in [false, true] {
        let object = object(false);
        let port = masqueraded(&object, v6);
        let router = pick(v6, Ipv4Addr::new(198, 51, 100, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1));
        let wire = Ip::new(here(v6), outside(v6)).udp(port, 53, b"question");
        let own = Ip::new(pod(v6), outside(v6)).udp(4000, 53, b"question");
        let error = |to, quoted: &[u8]| unreachable(Ip::new(router, to), quoted);
        let (verdict, out) = from_uplink(&object, &error(here(v6), &wire));
        assert_eq!(verdict, REDIRECT);
        receiver::takes(&out);
        let hops = out[if v6 { 21 } else { 22 }];
        let expected = unreachable(Ip { hops, ..Ip::new(router, pod(v6)) }, &own);
        assert_eq!(out[14..], expected, "as if never rewritten");
    }
}

/// Port unreachable about a packet.
fn unreachable(ip: Ip, quoted: &[u8]) -> Vec<u8> {
    // The builder's echo has the same shape; type, code and checksum are made good below.
    let mut packet = ip.echo(0, 0, quoted);
    let (icmp, kind, code) = if ip.source.is_ipv4() { (20, 3, 3) } else { (40, 1, 4) };
    let (old, new) = (u16::from_be_bytes([packet[icmp], packet[icmp + 1]]), u16::from_be_bytes([kind, code]));
    let sum = u32::from(u16::from_be_bytes([packet[icmp + 2], packet[icmp + 3]]));
    // RFC 1624: ~(~sum + ~old + new).
    let mut sum = (!sum & 0xffff) + u32::from(!old) + u32::from(new);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[icmp..icmp + 2].copy_from_slice(&[kind, code]);
    packet[icmp + 2..icmp + 4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

#[test]
fn a_later_fragment_follows_its_first_through_the_masquerade() {
    let object = object(false);
    let whole = Ip::new(POD4, OUTSIDE4).udp(4000, 53, &[7; 1000]);
    let piece = |offset: u16, more: bool, payload: &[u8]| {
        let mut packet = Ip::new(POD4, OUTSIDE4).packet(17, payload);
        packet[4..8].copy_from_slice(&[
            0x43,
            0x21,
            (offset >> 11) as u8 | if more { 0x20 } else { 0 },
            (offset / 8) as u8,
        ]);
        let sum = packet[..20].chunks(2).fold(0_u32, |s, w| s + u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum = sum - u32::from(u16::from_be_bytes([packet[10], packet[11]]));
        let sum = (sum & 0xffff) + (sum >> 16);
        packet[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        packet
    };
    let (first, second) = (piece(0, true, &whole[20..820]), piece(800, false, &whole[820..]));
    let (verdict, _) = from_pod(&object, &second);
    assert_eq!((verdict, object.dropped(DropReason::FragNoFirst).expect("a count")), (SHOT, 1));
    for packet in [first, second] {
        let (verdict, out) = from_pod(&object, &packet);
        assert_eq!(verdict, REDIRECT);
        assert_eq!(out[26..30], HERE4.octets());
        receiver::header(&out);
        assert_eq!(out.len(), 14 + packet.len());
    }
}
