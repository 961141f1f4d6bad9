//! One packet of each kind of header that the programs read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use osmia_lab::packet::{Ip, checksum, flags, frame};

use crate::cluster::{FAR4, FAR6, GATEWAY, HERE4, HERE6, OUTSIDE4, OUTSIDE6, POD_MAC, POD4, POD6, THERE4, THERE6};

const ICMP: u8 = 1;
const UDP: u8 = 17;
const GRE: u8 = 47;
const ESP: u8 = 50;
const AH: u8 = 51;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// The pods' link-local gateway.
const GATEWAY4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// A chunk that opens an association (RFC 9260), with its common header in front.
const INIT: [u8; 32] =
    [0x30, 0x39, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 10, 0, 10, 0, 0, 0, 1];

/// Each with its name: `wire` in it is none of a pod, and `refused` none that a pod may send.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>)> {
    [of_ipv4(), of_ipv6(), of_the_link(), of_the_wire()].concat()
}

fn of_ipv4() -> Vec<(&'static str, Vec<u8>)> {
    let (far, out) = (Ip::new(POD4, FAR4), Ip::new(POD4, OUTSIDE4));
    let asked = far.udp(900, 53, b"asked");
    let refused = icmp_error(far, 3, 3, &Ip::new(FAR4, POD4).udp(53, 901, b"answered"));
    let packets = [
        ("TCP", far.tcp(1000, 80, flags::SYN, 1, 0)),
        ("TCP, masqueraded", out.tcp(1001, 80, flags::SYN, 1, 0)),
        ("UDP", asked),
        ("UDP, masqueraded", out.udp(1003, 53, b"data")),
        ("echo", far.echo(7, 1, b"echo")),
        ("echo, masqueraded", out.echo(8, 1, b"echo")),
        ("SCTP", far.packet(SCTP, &INIT)),
        ("SCTP, masqueraded", out.packet(SCTP, &INIT)),
        ("ESP", far.packet(ESP, &[1, 2, 3, 4, 0, 0, 0, 1, 9, 9, 9, 9])),
        ("AH", far.packet(AH, &[UDP, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])),
        ("GRE", far.packet(GRE, &[0, 0, 8, 0, 0x45, 0, 0, 20])),
        ("options", with_options(&far.tcp(1004, 80, flags::SYN, 1, 0))),
        ("options, masqueraded", with_options(&out.udp(1005, 53, b"data"))),
        ("first fragment", fragment4(&far.udp(1006, 53, &[7; 24]), 0x2000)),
        ("later fragment", fragment4(&far.packet(UDP, &[7; 24]), 0x2004)),
        ("last fragment", fragment4(&far.packet(UDP, &[7; 9]), 0x0007)),
        // Nothing that it could be about.
        ("ICMP error, refused", refused),
    ];
    of_pod(packets.to_vec())
}

fn of_ipv6() -> Vec<(&'static str, Vec<u8>)> {
    let (far, out) = (Ip::new(POD6, FAR6), Ip::new(POD6, OUTSIDE6));
    let datagram = |port| far.udp(port, 53, b"data")[40..].to_vec();
    let chain = |headers: &[u8], port| far.packet(HOP_BY_HOP, &[headers, &datagram(port)].concat());
    let authentic = [UDP, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    // Hop by hop, destination, routing, and the fragment that is a whole packet.
    let four = [
        [DESTINATION, 0, 1, 4, 0, 0, 0, 0],
        [ROUTING, 0, 1, 4, 0, 0, 0, 0],
        [FRAGMENT, 0, 4, 0, 0, 0, 0, 0],
        [UDP, 0, 0, 0, 0, 0, 0, 9],
    ]
    .concat();
    let nine = [[&[DESTINATION, 0, 1, 4, 0, 0, 0, 0][..]; 8].concat(), vec![UDP, 0, 1, 4, 0, 0, 0, 0]].concat();
    let refused = icmp_error(far, 1, 4, &Ip::new(FAR6, POD6).udp(53, 901, b"answered"));
    let packets = [
        ("TCP over IPv6", far.tcp(1000, 80, flags::SYN, 1, 0)),
        ("TCP over IPv6, masqueraded", out.tcp(1001, 80, flags::SYN, 1, 0)),
        ("UDP over IPv6", far.udp(1002, 53, b"data")),
        ("UDP over IPv6, masqueraded", out.udp(1003, 53, b"data")),
        ("ICMPv6 echo", far.echo(7, 1, b"echo")),
        ("ICMPv6 echo, masqueraded", out.echo(8, 1, b"echo")),
        ("SCTP over IPv6", far.packet(SCTP, &INIT)),
        ("ESP over IPv6", far.packet(ESP, &[1, 2, 3, 4, 0, 0, 0, 1, 9, 9, 9, 9])),
        ("AH over IPv6", far.packet(AH, &[&authentic[..], &datagram(1004)].concat())),
        ("no next header", far.packet(59, &[1, 2, 3, 4])),
        ("chain of four", chain(&four, 1005)),
        ("chain of nine, refused", chain(&nine, 1006)),
        ("first fragment of IPv6", far.packet(FRAGMENT, &[&[UDP, 0, 0, 1, 0, 0, 0, 5][..], &datagram(1007)].concat())),
        ("later fragment of IPv6", far.packet(FRAGMENT, &[UDP, 0, 0, 9, 0, 0, 0, 5, 7, 7, 7, 7, 7, 7, 7, 7])),
        ("last fragment of IPv6", far.packet(FRAGMENT, &[UDP, 0, 0, 16, 0, 0, 0, 5, 7, 7, 7])),
        ("ICMPv6 error, refused", refused),
    ];
    of_pod(packets.to_vec())
}

/// What a pod says to its gateway.
fn of_the_link() -> Vec<(&'static str, Vec<u8>)> {
    let arp = [
        &[0xff; 6][..],
        &POD_MAC,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &POD_MAC,
        &POD4.octets(),
        &[0; 6],
        &GATEWAY4.octets(),
    ];
    let gateway = Ip { hops: 255, ..Ip::new(POD6, GATEWAY6) };
    let target = [&[0; 4][..], &GATEWAY6.octets(), &[1, 1], &POD_MAC].concat();
    let mut packets = vec![("ARP", arp.concat())];
    let messages = [
        ("neighbour solicitation", icmpv6(gateway, 135, 0, &target)),
        ("neighbour advertisement, refused", icmpv6(gateway, 136, 0, &target)),
        ("router solicitation, refused", icmpv6(gateway, 133, 0, &[0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 2])),
        ("listener report, refused", icmpv6(gateway, 143, 0, &[0, 0, 0, 0])),
    ];
    packets.extend(of_pod(messages.to_vec()));
    packets
}

/// What comes in on an uplink: the tunnel, and errors of routers.
fn of_the_wire() -> Vec<(&'static str, Vec<u8>)> {
    let v4 = Ip::new(FAR4, POD4).tcp(80, 1000, flags::ACK, 1, 1);
    let v6 = Ip::new(FAR6, POD6).udp(53, 1002, b"answer");
    let fragment = fragment4(&Ip::new(FAR4, POD4).packet(UDP, &[7; 24]), 0x2004);
    let too_big = icmp_error(Ip::new(OUTSIDE4, HERE4), 3, 4, &Ip::new(HERE4, OUTSIDE4).udp(61_003, 53, b"data"));
    let too_big6 = icmp_error(Ip::new(OUTSIDE6, HERE6), 2, 0, &Ip::new(HERE6, OUTSIDE6).udp(61_003, 53, b"data"));
    let mut packets = vec![("ICMP error on the wire", too_big), ("ICMPv6 error on the wire", too_big6)];
    let outers: [(IpAddr, IpAddr); 2] = [(THERE4.into(), HERE4.into()), (THERE6.into(), HERE6.into())];
    for (from, to) in outers {
        for (name, inner) in [
            ("IPv4 in VXLAN on the wire", &v4),
            ("IPv6 in VXLAN on the wire", &v6),
            ("fragment in VXLAN on the wire", &fragment),
        ] {
            packets.push((name, Ip::new(from, to).vxlan(50_000, 4789, 1, &frame(GATEWAY, POD_MAC, inner))));
        }
    }
    of_pod(packets)
}

fn of_pod(packets: Vec<(&'static str, Vec<u8>)>) -> Vec<(&'static str, Vec<u8>)> {
    packets.into_iter().map(|(name, packet)| (name, frame(GATEWAY, POD_MAC, &packet))).collect()
}

/// An error of this type and code about a packet.
fn icmp_error(ip: Ip, kind: u8, code: u8, about: &[u8]) -> Vec<u8> {
    let body = [&[0, 0, 5, 0x78][..], about].concat();
    if ip.source.is_ipv6() {
        return icmpv6(ip, kind, code, &body);
    }
    let mut message = [&[kind, code, 0, 0][..], &body].concat();
    let sum = checksum(&[&message]);
    message.splice(2..4, sum);
    ip.packet(ICMP, &message)
}

fn icmpv6(ip: Ip, kind: u8, code: u8, body: &[u8]) -> Vec<u8> {
    // Nobody on the way looks at the sum.
    ip.packet(ICMPV6, &[&[kind, code, 0, 0][..], body].concat())
}

/// The same with record route in its header (RFC 791), room for one address.
fn with_options(packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes.splice(20..20, [7, 7, 4, 0, 0, 0, 0, 0]);
    bytes[0] = 0x47;
    let length = bytes.len() as u16;
    header(&mut bytes, length, 28)
}

/// The same with this field of flags and offset.
fn fragment4(packet: &[u8], field: u16) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes[4..8].copy_from_slice(&[0x12, 0x34, field.to_be_bytes()[0], field.to_be_bytes()[1]]);
    let length = bytes.len() as u16;
    header(&mut bytes, length, 20)
}

fn header(bytes: &mut Vec<u8>, length: u16, size: usize) -> Vec<u8> {
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes[10..12].fill(0);
    let sum = checksum(&[&bytes[..size]]);
    bytes[10..12].copy_from_slice(&sum);
    std::mem::take(bytes)
}
