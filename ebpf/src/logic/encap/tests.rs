//! The bytes on the wire, both ways, and who is believed.

use super::super::testing::{FakePacket, FakeTables, build, verify};
use super::*;

const THERE4: [u8; 4] = [192, 168, 0, 2];
const GATEWAY4: [u8; 4] = [192, 168, 0, 254];
const POD4: [u8; 4] = [10, 0, 1, 9];
const FAR4: [u8; 4] = [10, 0, 2, 9];
const POD6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
const FAR6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9];
const THERE6: [u8; 16] = [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// As the agent writes it: lengths, IPv4 checksum, source port and inner EtherType zero.
fn template(src: &Addr, dst: &Addr) -> [u8; 72] {
    let ip = if src.is_v4() {
        [&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, UDP, 0, 0][..], &src.to_v4(), &dst.to_v4()].concat()
    } else {
        [&[0x60, 0, 0, 0, 0, 0, UDP, 64][..], &src.0, &dst.0].concat()
    };
    let rest = [0, 0, 0x12, 0xb5, 0, 0, 0, 0, VXLAN_FLAGS, 0, 0, 0, 0, 0, 1, 0];
    let mut bytes = [&ip[..], &rest, &[2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 2]].concat();
    bytes.resize(72, 0);
    bytes.try_into().expect("72 bytes")
}

fn tables(outer_v6: bool) -> FakeTables {
    let mut tables = FakeTables::node();
    let config = tables.config;
    let (src, dst) =
        if outer_v6 { (Addr::v6(config.node6), Addr::v6(THERE6)) } else { (Addr::v4(config.node4), Addr::v4(THERE4)) };
    let node = Node {
        flags: N_PRESENT | N_TUNNEL | if outer_v6 { N_OUTER_V6 } else { 0 },
        uplink: 70,
        mtu: 1450,
        zero: [0; 6],
        tunnel: dst,
        next_hop4: dst,
        next_hop6: dst,
        next_hop_tunnel: Addr::v4(GATEWAY4),
        outer: template(&src, &dst),
    };
    tables.nodes.insert(2, node);
    tables
}

fn inner(v6: bool) -> Vec<u8> {
    if v6 {
        build::ipv6(POD6, FAR6, 17, &build::udp(&POD6, &FAR6, 4000, 53, b"odd"))
    } else {
        build::ipv4(POD4, FAR4, 17, &build::udp(&POD4, &FAR4, 4000, 53, b"odd"))
    }
}

/// What the other node does with it.
fn arrive(p: &mut FakePacket, t: &FakeTables) -> Result<Received, DropReason> {
    let outer_v6 = t.nodes[&2].flags & N_OUTER_V6 != 0;
    receive(p, &t.config, outer_v6, if outer_v6 { 54 } else { 34 }, t.config.tunnel_port)
}

const ALL: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[test]
fn a_packet_comes_out_of_the_tunnel_as_it_went_in() {
    for (outer_v6, inner_v6) in ALL {
        let t = tables(outer_v6);
        let frame = inner(inner_v6);
        let mut p = FakePacket::new(frame.clone(), 9);
        let verdict = send(&mut p, &t, &t.nodes[&2], inner_v6);
        assert_eq!(verdict, Verdict::neighbour(70, Addr::v4(GATEWAY4)));
        verify(&p.bytes);

        let udp = 14 + if outer_v6 { 40 } else { 20 };
        let port = u16::from_be_bytes([p.bytes[udp], p.bytes[udp + 1]]);
        assert!(port >= 49_152, "source port {port}");
        assert_eq!(p.bytes[udp + 2..udp + 4], 4789_u16.to_be_bytes());
        let length = u16::from_be_bytes([p.bytes[udp + 4], p.bytes[udp + 5]]);
        assert_eq!(usize::from(length), p.bytes.len() - udp);
        assert_eq!(p.bytes[udp + 8..udp + 16], [8, 0, 0, 0, 0, 0, 1, 0]);
        // The inner Ethernet header tells the inner family, the outer one the outer.
        assert_eq!(p.bytes[udp + 28..udp + 30], frame[12..14]);
        assert_eq!(p.bytes[12..14], if outer_v6 { [0x86, 0xdd] } else { [8, 0] });

        assert_eq!(arrive(&mut p, &t), Ok(Received::Opened));
        assert_eq!(p.bytes, frame);
    }
}

#[test]
fn flows_differ_by_source_port_and_keep_theirs() {
    let t = tables(false);
    let port = |hash| {
        let mut p = FakePacket::new(inner(false), 9);
        p.hash = hash;
        send(&mut p, &t, &t.nodes[&2], false);
        [p.bytes[34], p.bytes[35]]
    };
    assert_eq!(port(1), port(1));
    assert_ne!(port(1), port(2));
}

#[test]
fn the_header_of_a_long_gso_packet_does_not_overflow() {
    let t = tables(false);
    let mut frame = inner(false);
    frame.resize(14 + 65_530, 0);
    let mut p = FakePacket::new(frame, 9);
    p.gso_size = 1400;
    assert_eq!(send(&mut p, &t, &t.nodes[&2], false).kind(), crate::logic::verdict::Kind::Neighbour);
    assert_eq!(p.bytes[16..18], [0xff, 0xff]);
}

#[test]
fn what_is_encapsulated_already_goes_by_the_device() {
    for errno in [EALREADY, ENOTSUPP] {
        let t = tables(false);
        let mut p = FakePacket::new(inner(false), 9);
        p.adjust_error = Some(errno);
        assert_eq!(send(&mut p, &t, &t.nodes[&2], false), Verdict::tunnel_device(t.config.tunnel_dev));
        assert_eq!(p.tunnel_key, Some(TunnelKey { vni: 1, remote: Addr::v4(THERE4) }));
        assert_eq!(p.bytes, inner(false));
    }
}

#[test]
fn without_a_device_it_is_dropped_and_says_so() {
    let mut t = tables(false);
    t.config.tunnel_dev = 0;
    let mut p = FakePacket::new(inner(false), 9);
    p.adjust_error = Some(EALREADY);
    assert_eq!(send(&mut p, &t, &t.nodes[&2], false), Verdict::drop(DropReason::TunnelDevice));
}

#[test]
fn a_node_without_tunnel_gets_none() {
    let mut t = tables(false);
    t.nodes.get_mut(&2).expect("there").flags = N_PRESENT;
    let mut p = FakePacket::new(inner(false), 9);
    assert_eq!(send(&mut p, &t, &t.nodes[&2], false), Verdict::drop(DropReason::NoNode));
}

fn tunnelled(t: &FakeTables) -> FakePacket {
    let mut p = FakePacket::new(inner(false), 9);
    send(&mut p, t, &t.nodes[&2], false);
    p
}

#[test]
fn gso_that_is_not_tcp_is_left_to_the_device_untouched() {
    let mut t = tables(false);
    let mut p = tunnelled(&t);
    p.gso_size = 1;
    let before = p.bytes.clone();
    assert_eq!(arrive(&mut p, &t), Ok(Received::Device));
    assert_eq!(p.bytes, before);

    let frame = build::ipv4(POD4, FAR4, 6, &build::tcp(&POD4, &FAR4, 4000, 80, 0x10, b"many"));
    let mut tcp = FakePacket::new(frame, 9);
    tcp.gso_size = 1;
    send(&mut tcp, &t, &t.nodes[&2], false);
    assert_eq!(arrive(&mut tcp, &t), Ok(Received::Opened));

    t.config.tunnel_dev = 0;
    assert_eq!(arrive(&mut p, &t), Err(DropReason::TunnelDevice));
}

#[test]
fn another_port_is_not_the_tunnel() {
    let t = tables(false);
    assert_eq!(receive(&mut tunnelled(&t), &t.config, false, 34, [0, 53]), Ok(Received::Other));
}

#[test]
fn a_header_that_is_not_ours_is_refused() {
    let t = tables(false);
    let refuse = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut p = tunnelled(&t);
        change(&mut p.bytes);
        p.linear = p.linear.min(p.bytes.len());
        assert_eq!(arrive(&mut p, &t), Err(DropReason::TunnelHeader));
    };
    refuse(&|b| b[42] = 0); // no network identifier
    refuse(&|b| b[48] = 2); // another network
    refuse(&|b| b[63] = 6); // inner EtherType ARP
    refuse(&|b| b[64] = 0x65); // IPv6 behind the EtherType of IPv4
    for cut in 42..84 {
        refuse(&|b| b.truncate(cut));
    }
    // An outer header with options is none of ours.
    let options = receive(&mut tunnelled(&t), &t.config, false, 38, t.config.tunnel_port);
    assert_eq!(options, Err(DropReason::TunnelHeader));
}

#[test]
fn headers_beyond_the_linear_part_are_pulled() {
    let t = tables(false);
    let mut p = tunnelled(&t);
    p.linear = 42;
    assert_eq!(arrive(&mut p, &t), Ok(Received::Opened));
}

#[test]
fn before_decap_flags_the_family_is_changed_first() {
    // A kernel before 6.3 refuses the flags; the fake refuses nothing, so the outcome of both ways is compared.
    for (outer_v6, inner_v6) in [(false, true), (true, false)] {
        let t = tables(outer_v6);
        let frame = inner(inner_v6);
        let mut p = FakePacket::new(frame.clone(), 9);
        send(&mut p, &t, &t.nodes[&2], inner_v6);
        p.unknown_room_flags = room::DECAP_L3_IPV4 | room::DECAP_L3_IPV6;
        assert_eq!(arrive(&mut p, &t), Ok(Received::Opened));
        assert_eq!(p.bytes, frame);
    }
}

#[test]
fn the_device_is_believed_for_our_network_only() {
    let t = tables(false);
    let mut p = FakePacket::new(inner(false), 52);
    assert_eq!(device_sender(&mut p, &t.config), Err(DropReason::TunnelHeader));
    p.tunnel_key = Some(TunnelKey { vni: 1, remote: Addr::v4(THERE4) });
    assert_eq!(device_sender(&mut p, &t.config), Ok(Addr::v4(THERE4)));
    p.tunnel_key = Some(TunnelKey { vni: 2, remote: Addr::v4(THERE4) });
    assert_eq!(device_sender(&mut p, &t.config), Err(DropReason::TunnelHeader));
}

#[test]
fn a_pod_may_not_speak_to_a_nodes_tunnel_port() {
    let t = tables(false);
    let port = t.config.tunnel_port;
    let to = |dst: [u8; 4], proto, port| forbidden(&t, &t.config, &Addr::v4(dst), proto, port);
    assert!(to(t.config.node4, UDP, port), "its own node");
    assert!(to(THERE4, UDP, port), "another node");
    assert!(!to(THERE4, TCP, port));
    assert!(!to(THERE4, UDP, [0, 53]));
    assert!(!to(FAR4, UDP, port), "a pod may have a tunnel of its own with another pod");
    assert!(!to([203, 0, 113, 1], UDP, port));
}

#[test]
fn a_flow_of_the_tunnel_comes_from_its_node_only() {
    let mut t = tables(false);
    assert!(still_from(&t, 2, &Addr::v4(THERE4)));
    assert!(!still_from(&t, 2, &Addr::v4([192, 168, 0, 3])));
    assert!(!still_from(&t, 3, &Addr::v4(THERE4)));
    t.nodes.get_mut(&2).expect("there").flags = 0;
    assert!(!still_from(&t, 2, &Addr::v4(THERE4)));
}
