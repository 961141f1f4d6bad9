//! Everything that we could think of to get a packet past a policy, through the loaded programs. What it is meant to look like does not matter:
//! it passes where a plain packet of its sender to its port would, and nowhere else.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use osmia_agent::compile::policy::{Local, Pinned, Policies};
use osmia_agent::model::{Cluster, Name};
use osmia_agent::source::{folder::manifest, object::Key};
use osmia_lab::Space;
use osmia_lab::packet::{Ip, checksum, flags};
use osmia_maps::catalogue::Catalogue;
use osmia_maps::layout::DropReason;
use osmia_oracle::stories::local_addresses;
use serde_json::json;

use super::plane::{self, Outcome, Plane};
use super::steps::{Book, Step};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Pods of this node. `B` may be entered by `A` on TCP port 80 and UDP port 53, and by `FRIEND`, and may open nothing; `A` and `C` are held to nothing.
const A: u32 = 0;
const B: u32 = 1;
const C: u32 = 2;
/// Outside.
const FRIEND: &str = "198.51.100.7";
/// Ports of `B` that nobody may enter.
const SHUT: u16 = 22;

fn policed(plane: &mut Plane) {
    let objects = [
        json!({"kind": "Namespace", "metadata": {"name": "n"}}),
        json!({"kind": "Pod", "metadata": {"namespace": "n", "name": "a", "labels": {"app": "a"}}}),
        json!({"kind": "Pod", "metadata": {"namespace": "n", "name": "b", "labels": {"app": "b"}}}),
        json!({"kind": "Pod", "metadata": {"namespace": "n", "name": "c", "labels": {"app": "c"}}}),
        json!({"kind": "NetworkPolicy", "metadata": {"namespace": "n", "name": "p"}, "spec": {
            "podSelector": {"matchLabels": {"app": "b"}}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "a"}}}],
                         "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]},
                        {"from": [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "ports": [{"port": 53, "protocol": "UDP"}]},
                        {"from": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]}]}}),
    ];
    let mut cluster = Cluster::default();
    for object in objects {
        for object in manifest::parse(&object.to_string()).expect("an object") {
            let key = Key::of(&object);
            cluster.apply(object.told(&key));
        }
    }
    let local = |(pod, name): (u32, &str)| {
        let addresses = local_addresses(pod).to_vec();
        (pod + 1, Local { pod: Some(Name::new("n", name)), addresses, ..Local::default() })
    };
    let locals: BTreeMap<u32, Local> = [(A, "a"), (B, "b"), (C, "c")].map(local).into();
    let mut start = Policies::resume(&Catalogue::default(), &Pinned::default(), &cluster, &locals);
    for step in Book::default().change(&mut start.policies, &start.change, true) {
        if let Step::Row(write) = step {
            plane.write(&write).expect("a row");
        }
    }
    for slot in locals.keys() {
        plane.put_endpoint(slot - 1, start.policies.rules(*slot)).expect("a pod");
    }
}

/// Runs a test with the plane.
fn on_a_plane(test: impl FnOnce(&mut Plane) + Send) {
    let space = Space::machine("osm-attack", Path::new("/sys/fs/bpf")).expect("namespaces");
    plane::devices(&space).expect("devices");
    let ran = space.run(|| {
        let mut plane = Plane::load().expect("the object and its rows");
        policed(&mut plane);
        test(&mut plane);
    });
    ran.expect("in the namespaces");
}

fn address(pod: u32, v6: bool) -> IpAddr {
    local_addresses(pod)[usize::from(v6)]
}

/// From one pod to another, in both families.
fn between(from: u32, to: u32) -> [Ip; 2] {
    [false, true].map(|v6| Ip::new(address(from, v6), address(to, v6)))
}

#[track_caller]
fn sends(plane: &mut Plane, pod: u32, packet: &[u8]) -> Outcome {
    plane.sends(pod, packet).expect("a run").0
}

#[track_caller]
fn is_kept_out(plane: &mut Plane, pod: u32, what: &str, packet: &[u8]) {
    let outcome = sends(plane, pod, packet);
    assert!(outcome.is(DropReason::PolicyIngress), "{what}: {outcome:?}");
}

/// The same with these options in its header (RFC 791).
fn with_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes.splice(20..20, options.iter().copied());
    bytes[0] = 0x40 | ((20 + options.len()) / 4) as u8;
    fix4(bytes)
}

/// The same as this part of a datagram: offset in units of 8 bytes, and whether more follow.
fn part4(packet: &[u8], id: u16, offset: u16, more: bool) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes[4..6].copy_from_slice(&id.to_be_bytes());
    bytes[6..8].copy_from_slice(&(offset | u16::from(more) << 13).to_be_bytes());
    fix4(bytes)
}

/// Length and checksum of an IPv4 header.
fn fix4(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = (bytes.len() as u16).to_be_bytes();
    bytes[2..4].copy_from_slice(&length);
    bytes[10..12].fill(0);
    let header = usize::from(bytes[0] & 15) * 4;
    let sum = checksum(&[&bytes[..header]]);
    bytes[10..12].copy_from_slice(&sum);
    bytes
}

/// An extension header of fragments (RFC 8200 4.5).
fn fragment(next: u8, id: u8, offset: u16, more: bool) -> [u8; 8] {
    let [o0, o1] = (offset << 3 | u16::from(more)).to_be_bytes();
    [next, 0, o0, o1, 0, 0, 0, id]
}

/// A part of an IPv6 datagram.
fn part6(ip: &Ip, next: u8, id: u8, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    ip.packet(FRAGMENT, &[&fragment(next, id, offset, more)[..], payload].concat())
}

fn payload(packet: &[u8]) -> &[u8] {
    &packet[if packet[0] >> 4 == 6 { 40 } else { 20 }..]
}

#[test]
fn what_is_allowed_passes_and_whatever_else_a_pod_says_does_not() {
    on_a_plane(|plane| {
        for ip in between(A, B) {
            assert_eq!(sends(plane, A, &ip.tcp(1000, 80, flags::SYN, 1, 0)), Outcome::Passed);
            assert_eq!(sends(plane, A, &ip.udp(1000, 53, b"question")), Outcome::Passed);
            // Flags of every kind.
            for all in 0..=0xff {
                is_kept_out(plane, A, &format!("flags {all:#x}"), &ip.tcp(1001, SHUT, all, 1, 1));
            }
            let mut data = ip.tcp(1002, SHUT, flags::SYN, 1, 0);
            data.extend(b"data with the SYN");
            let data = if data[0] >> 4 == 4 { fix4(data) } else { ip.packet(TCP, payload(&data)) };
            is_kept_out(plane, A, "a SYN with data", &data);
            is_kept_out(plane, A, "the port of the other protocol", &ip.udp(1003, 80, b""));
            is_kept_out(plane, A, "the port of the other protocol", &ip.tcp(1003, 53, flags::SYN, 1, 0));
            is_kept_out(plane, A, "an echo", &ip.echo(9, 1, b"data"));
            // Everything that has no ports, also where its first bytes would be allowed ones.
            let ports = payload(&ip.udp(1000, 53, b"data")).to_vec();
            let walked = if ip.source.is_ipv6() { &[0, 43, 44, 51, 60, 58][..] } else { &[1, 2][..] };
            for proto in (0..=255).filter(|proto| ![TCP, UDP].contains(proto) && !walked.contains(proto)) {
                is_kept_out(
                    plane,
                    A,
                    &format!("protocol {proto}"),
                    &ip.packet(proto, &[&ports[..], &[0; 40]].concat()),
                );
            }
            // As an answer to what nobody has asked.
            let (kind, proto) = if ip.source.is_ipv6() { (129, ICMPV6) } else { (0, ICMP) };
            is_kept_out(plane, A, "an echo's answer", &ip.packet(proto, &[kind, 0, 0, 0, 0, 9, 0, 1]));
            is_kept_out(plane, A, "a SYN-ACK", &ip.tcp(80, SHUT, flags::SYN | flags::ACK, 1, 1));
        }
    });
}

#[test]
fn nobody_is_another() {
    on_a_plane(|plane| {
        for v6 in [false, true] {
            let ip = Ip::new(address(A, v6), address(B, v6));
            let outcome = sends(plane, C, &ip.tcp(1000, 80, flags::SYN, 1, 0));
            assert!(outcome.is(DropReason::SourceGuard), "{outcome:?}");
            // Nor in a flow that the other has.
            assert_eq!(sends(plane, A, &ip.tcp(1000, 80, flags::SYN, 1, 0)), Outcome::Passed);
            let outcome = sends(plane, C, &ip.tcp(1000, 80, flags::ACK, 2, 2));
            assert!(outcome.is(DropReason::SourceGuard), "{outcome:?}");
            // Nor from outside.
            let outcome = plane.arrives(&ip.tcp(1000, 80, flags::ACK, 2, 2)).expect("a run");
            assert!(outcome.is(DropReason::Martian), "{outcome:?}");
            // Nor with a packet of the tunnel to a node, or another pod.
            let inner = osmia_lab::packet::frame([2; 6], [4; 6], &ip.tcp(1001, SHUT, flags::SYN, 1, 0));
            for to in ["198.18.0.1", "198.18.0.2", "203.0.113.7"].map(|to| to.parse::<IpAddr>().expect("an address")) {
                let outcome = sends(plane, A, &Ip::new(address(A, false), to).vxlan(1000, 4789, 1, &inner));
                assert!(outcome.is(DropReason::TunnelFromPod), "to {to}: {outcome:?}");
            }
        }
        // Nor everybody at once.
        for (to, reason) in [
            ("224.0.0.1", DropReason::Multicast),
            ("239.1.2.3", DropReason::Multicast),
            ("255.255.255.255", DropReason::Multicast),
            ("ff02::1", DropReason::Multicast),
            ("ff0e::1", DropReason::Multicast),
            ("127.0.0.1", DropReason::Martian),
            ("0.0.0.0", DropReason::Martian),
            ("::1", DropReason::Martian),
            ("fe80::1", DropReason::LinkLocal),
        ] {
            let to: IpAddr = to.parse().expect("an address");
            let outcome = sends(plane, A, &Ip::new(address(A, to.is_ipv6()), to).udp(1000, 53, b"data"));
            assert!(outcome.is(reason), "to {to}: {outcome:?}");
        }
    });
}

/// RFC 4291 2.5.5.2: in the tables IPv4 lies there.
#[test]
fn no_packet_of_ipv6_is_judged_by_rules_of_ipv4() {
    on_a_plane(|plane| {
        let mapped = |v4: &str| IpAddr::from(v4.parse::<std::net::Ipv4Addr>().expect("an address").to_ipv6_mapped());
        let plain = Ip::new("203.0.113.7".parse::<IpAddr>().expect("an address"), address(B, false));
        assert_eq!(plane.arrives(&plain.udp(1000, 53, b"data")).expect("a run"), Outcome::Passed, "a rule lets it in");
        let outcome = plane.arrives(&Ip::new(mapped("203.0.113.7"), address(B, true)).udp(1000, 53, b"data"));
        assert!(outcome.as_ref().is_ok_and(|o| o.is(DropReason::Martian)), "{outcome:?}");
        for to in ["203.0.113.7", "10.0.0.11", "10.0.0.20"] {
            let outcome = sends(plane, A, &Ip::new(address(A, true), mapped(to)).udp(1000, 53, b"data"));
            assert!(outcome.is(DropReason::Martian), "to {to}: {outcome:?}");
        }
    });
}

#[test]
fn headers_in_front_of_the_ports_hide_no_port() {
    on_a_plane(|plane| {
        let [v4, v6] = between(A, B);
        let (shut, open) = (v4.tcp(1000, SHUT, flags::SYN, 1, 0), v4.tcp(1000, 80, flags::SYN, 1, 0));
        // No operation, record route, loose and strict source routes by way of C, router alert, an unknown one, and a length that lies.
        for options in [
            &[1; 4][..],
            &[1; 40],
            &[7, 7, 4, 0, 0, 0, 0, 0],
            &[131, 7, 4, 10, 0, 0, 12, 0],
            &[137, 7, 4, 10, 0, 0, 12, 0],
            &[148, 4, 0, 0],
            &[30, 0, 0, 0],
            &[30, 255, 0, 0],
        ] {
            is_kept_out(plane, A, &format!("options {options:?}"), &with_options(&shut, options));
            assert_eq!(sends(plane, A, &with_options(&open, options)), Outcome::Passed, "options {options:?}");
        }
        let (shut, open) = (v6.tcp(1000, SHUT, flags::SYN, 1, 0), v6.tcp(1000, 80, flags::SYN, 1, 0));
        let header = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
        let authentic = |next: u8| [&[next, 4, 0, 0][..], &[0; 20]].concat();
        let chains: [(u8, Vec<u8>); 7] = [
            (0, header(TCP).to_vec()),
            (DESTINATION, header(TCP).to_vec()),
            (43, header(TCP).to_vec()),
            (0, [header(43), header(DESTINATION), header(TCP)].concat()),
            (51, authentic(TCP)),
            // A fragment that is whole, alone and twice.
            (FRAGMENT, fragment(TCP, 1, 0, false).to_vec()),
            (FRAGMENT, [fragment(FRAGMENT, 1, 0, false), fragment(TCP, 2, 0, false)].concat()),
        ];
        for (next, chain) in chains {
            is_kept_out(plane, A, &format!("{chain:?}"), &v6.packet(next, &[&chain, payload(&shut)].concat()));
            let passes = sends(plane, A, &v6.packet(next, &[&chain, payload(&open)].concat()));
            assert_eq!(passes, Outcome::Passed, "{chain:?}");
        }
        // What is not there to be read.
        let long = [header(DESTINATION); 9].concat();
        for (what, packet, reason) in [
            ("nine headers", v6.packet(DESTINATION, &[&long, payload(&open)].concat()), DropReason::ExtHdr),
            ("a header that is cut", v6.packet(DESTINATION, &[TCP, 9, 0, 0, 0, 0, 0, 0]), DropReason::Malformed),
            ("no ports", v6.packet(TCP, &[0, 1, 0]), DropReason::Malformed),
            ("half of TCP", v6.packet(TCP, &payload(&open)[..16]), DropReason::Malformed),
            ("half of TCP", fix4(v4.packet(TCP, &payload(&open)[..16])), DropReason::Malformed),
            ("nothing of UDP", fix4(v4.packet(UDP, &[])), DropReason::Malformed),
        ] {
            let outcome = sends(plane, A, &packet);
            assert!(outcome.is(reason), "{what}: {outcome:?}");
        }
    });
}

#[test]
fn fragments_hide_no_port() {
    on_a_plane(|plane| {
        let [v4, v6] = between(A, B);
        let datagram = |ip: &Ip, port| ip.udp(1000, port, &[7; 56]);
        // A first one, to a port that is shut; what follows it passes as what nobody knows, and is put together to nothing.
        let first = part4(&datagram(&v4, SHUT), 1, 0, true);
        is_kept_out(plane, A, "a first fragment", &first);
        is_kept_out(plane, A, "a first fragment of IPv6", &part6(&v6, UDP, 1, 0, true, payload(&datagram(&v6, SHUT))));
        // Two first ones of one datagram, with other ports each.
        assert_eq!(sends(plane, A, &part4(&datagram(&v4, 53), 2, 0, true)), Outcome::Passed);
        is_kept_out(plane, A, "another first fragment", &part4(&datagram(&v4, SHUT), 2, 0, true));
        assert_eq!(sends(plane, A, &part6(&v6, UDP, 2, 0, true, payload(&datagram(&v6, 53)))), Outcome::Passed);
        is_kept_out(plane, A, "another first fragment", &part6(&v6, UDP, 2, 0, true, payload(&datagram(&v6, SHUT))));
        // First ones that end before the ports do, or before what tells SYN from ACK.
        for (what, packet) in [
            ("4 bytes of UDP", part4(&v4.packet(UDP, &payload(&datagram(&v4, 53))[..4]), 3, 0, true)),
            ("8 bytes of TCP", part4(&v4.packet(TCP, &payload(&v4.tcp(1000, 80, 2, 1, 0))[..8]), 4, 0, true)),
            ("8 bytes of TCP", part6(&v6, TCP, 4, 0, true, &payload(&v6.tcp(1000, 80, 2, 1, 0))[..8])),
            ("a header in front of TCP alone", part6(&v6, DESTINATION, 5, 0, true, &[TCP, 0, 1, 4, 0, 0, 0, 0])),
        ] {
            let outcome = sends(plane, A, &packet);
            assert!(outcome.is(DropReason::Malformed), "{what}: {outcome:?}");
        }
        // Of a protocol of which no port is open there no fragment passes, whatever it calls itself.
        for (proto, offset) in [(132, 8), (132, 1), (ICMP, 8), (47, 8), (0, 8)] {
            is_kept_out(plane, A, &format!("protocol {proto}"), &part4(&v4.packet(proto, &[7; 64]), 6, offset, false));
            is_kept_out(plane, A, &format!("protocol {proto}"), &part6(&v6, proto, 6, offset, false, &[7; 64]));
        }
        // Later ones in front of another fragment header: of the datagram that is nearest to the ports.
        let inside = [&fragment(UDP, 7, 8, false)[..], &[7; 64]].concat();
        assert_eq!(sends(plane, A, &part6(&v6, FRAGMENT, 8, 0, true, &inside)), Outcome::Passed, "as a later fragment");
        is_kept_out(
            plane,
            A,
            "a first fragment in a first fragment",
            &part6(
                &v6,
                FRAGMENT,
                9,
                0,
                true,
                &[&fragment(UDP, 10, 0, true)[..], payload(&datagram(&v6, SHUT))].concat(),
            ),
        );
        // Nothing that is loose opens a way back, or one for whole packets.
        let [back4, back6] = between(B, A);
        assert_eq!(sends(plane, A, &part4(&v4.packet(UDP, &[7; 64]), 11, 8, false)), Outcome::Passed);
        for packet in [back4.udp(0, 0, b"out"), back6.udp(0, 0, b"out"), back4.udp(SHUT, 1000, b"out")] {
            let outcome = sends(plane, B, &packet);
            assert!(outcome.is(DropReason::PolicyEgress), "{outcome:?}");
        }
        is_kept_out(plane, A, "port 0", &v4.udp(0, 0, b"in"));
    });
}

#[test]
fn errors_are_about_flows_that_are_there() {
    on_a_plane(|plane| {
        for ip in between(A, B) {
            let v6 = ip.source.is_ipv6();
            let error = |ip: &Ip, about: &[u8]| {
                let kinds = if v6 { (1, ICMPV6) } else { (3, ICMP) };
                ip.packet(kinds.1, &[&[kinds.0, 4, 0, 0, 0, 0, 0, 0][..], about].concat())
            };
            let refused = |outcome: Outcome| outcome.is(DropReason::IcmpNoFlow);
            let back = ip.reversed();
            let foreign = Ip::new(address(C, v6), address(B, v6)).reversed();
            for (what, about) in [
                ("what was never sent", back.udp(53, 1000, b"answer")),
                ("a flow of another pod", foreign.udp(53, 1000, b"answer")),
                ("its own packet", ip.udp(1000, 53, b"question")),
                ("nothing", vec![0x45; 8]),
            ] {
                let outcome = sends(plane, A, &error(&ip, &about));
                assert!(refused(outcome), "{what}: {outcome:?}");
            }
            assert_eq!(sends(plane, A, &ip.udp(1000, 53, b"question")), Outcome::Passed);
            assert_eq!(sends(plane, A, &error(&ip, &back.udp(53, 1000, b"answer"))), Outcome::Passed);
            // Nobody else says it, nor of other ports.
            let outcome = sends(plane, C, &error(&Ip::new(address(C, v6), address(B, v6)), &back.udp(53, 1000, b"a")));
            assert!(refused(outcome), "{outcome:?}");
            let outcome = sends(plane, A, &error(&ip, &back.udp(SHUT, 1000, b"answer")));
            assert!(refused(outcome), "{outcome:?}");
            // Nor to anybody but who sent what it quotes.
            let other = Ip::new(address(A, v6), address(C, v6));
            assert_eq!(sends(plane, A, &other.udp(1000, 53, b"question")), Outcome::Passed);
            let outcome = sends(plane, A, &error(&ip, &other.reversed().udp(53, 1000, b"answer")));
            assert!(refused(outcome), "{outcome:?}");
            // Nor in another's name.
            let outcome = sends(plane, A, &error(&Ip::new(address(C, v6), address(B, v6)), &back.udp(53, 1000, b"a")));
            assert!(outcome.is(DropReason::SourceGuard), "{outcome:?}");
            // An error about an error is about nothing.
            let outcome = sends(plane, A, &error(&ip, &error(&back, &ip.udp(1000, 53, b"question"))));
            assert!(refused(outcome), "{outcome:?}");
        }
    });
}

#[test]
fn an_answer_is_no_way_in() {
    on_a_plane(|plane| {
        for ip in between(A, B) {
            let back = ip.reversed();
            // B may open nothing, from whichever port, with whatever flags.
            for port in [80, 53, SHUT, 1000] {
                for all in [flags::SYN, flags::ACK, flags::SYN | flags::ACK, flags::RST, flags::FIN | flags::ACK, 0] {
                    let outcome = sends(plane, B, &back.tcp(port, 1000, all, 1, 1));
                    assert!(outcome.is(DropReason::PolicyEgress), "port {port}, flags {all}: {outcome:?}");
                }
            }
            assert_eq!(sends(plane, A, &ip.tcp(1000, 80, flags::SYN, 1, 0)), Outcome::Passed);
            assert_eq!(sends(plane, B, &back.tcp(80, 1000, flags::SYN | flags::ACK, 1, 2)), Outcome::Passed);
            // To another port, from another, to another pod: no answers.
            for packet in [
                back.tcp(80, 1001, flags::ACK, 2, 2),
                back.tcp(81, 1000, flags::ACK, 2, 2),
                back.udp(80, 1000, b"answer"),
                Ip::new(back.source, address(C, back.source.is_ipv6())).tcp(80, 1000, flags::ACK, 2, 2),
            ] {
                let outcome = sends(plane, B, &packet);
                assert!(outcome.is(DropReason::PolicyEgress), "{outcome:?}");
            }
            // The connection ends, by either way; its ports are no leave to open one the other way round.
            for end in [flags::RST, flags::FIN | flags::ACK] {
                assert_eq!(sends(plane, A, &ip.tcp(1000, 80, flags::SYN, 9, 0)), Outcome::Passed);
                assert_eq!(sends(plane, B, &back.tcp(80, 1000, end, 3, 3)), Outcome::Passed);
                let outcome = sends(plane, B, &back.tcp(80, 1000, flags::SYN, 7, 0));
                assert!(outcome.is(DropReason::PolicyEgress), "after {end}: {outcome:?}");
                assert_eq!(sends(plane, A, &ip.tcp(1000, 80, flags::ACK, 4, 4)), Outcome::Passed, "what is left of it");
                assert_eq!(sends(plane, A, &ip.tcp(1000, 80, flags::RST, 4, 4)), Outcome::Passed);
            }
        }
    });
}

/// Its identifier is all that a query shares with an answer.
#[test]
fn who_is_asked_gets_no_leave_to_ask() {
    on_a_plane(|plane| {
        let ip = Ip::new(FRIEND.parse::<IpAddr>().expect("an address"), address(B, false));
        let query = |ip: &Ip, kind: u8, [i0, i1]: [u8; 2]| {
            let message = |sum: [u8; 2]| [&[kind, 0][..], &sum, &[i0, i1, 0, 1], &[0; 12]].concat();
            ip.packet(ICMP, &message(checksum(&[&message([0; 2])])))
        };
        for (asks, answers) in [(8, 0), (13, 14), (15, 16)] {
            for id in [0_u16, 1, 7, 8, 9, 0x7fff, 0x8000, 0xfffe, 0xffff].map(u16::to_be_bytes) {
                assert_eq!(plane.arrives(&query(&ip, asks, id)).expect("a run"), Outcome::Passed, "{asks} {id:?}");
                let outcome = sends(plane, B, &query(&ip.reversed(), asks, id));
                assert!(outcome.is(DropReason::PolicyEgress), "{asks} {id:?}: {outcome:?}");
                assert_eq!(sends(plane, B, &query(&ip.reversed(), answers, id)), Outcome::Passed, "{answers} {id:?}");
                let outcome = sends(plane, B, &query(&ip.reversed(), asks, id));
                assert!(outcome.is(DropReason::PolicyEgress), "{asks} {id:?}, once it has answered: {outcome:?}");
            }
        }
    });
}
