use crate::layout::node::N_TUNNEL;
use crate::layout::route::RouteKind;
use crate::layout::{Addr, DropReason, Route};
use crate::logic::testing::{FakePacket, FakeTables, build, drive, node_row, pod6};
use crate::logic::verdict::Kind;
use crate::logic::{Hook, Verdict};

const NODE: [u8; 4] = [192, 168, 0, 1];

#[test]
fn a_marked_packet_passes_an_egress_hook_without_a_lookup() {
    let tables = FakeTables::node();
    let mut packet =
        FakePacket::new(build::ipv4([10, 0, 1, 2], [10, 0, 2, 2], 17, &build::udp(&NODE, &NODE, 1, 2, b"")), 4);
    packet.mark = tables.config.mark;
    assert_eq!(drive(Hook::ToUplink, &mut packet, &tables, 1), Verdict::NEXT);
    assert_eq!(tables.lookups.get(), 0);
}

#[test]
fn the_nodes_own_traffic_costs_no_flow_lookup() {
    let tables = FakeTables::node();
    let other = [192, 168, 0, 2];
    for port in [22, 32_768, 60_999] {
        let bytes = build::ipv4(other, NODE, 6, &build::tcp(&other, &NODE, 1000, port, 0x10, b"data"));
        assert_eq!(drive(Hook::FromUplink, &mut FakePacket::new(bytes, 4), &tables, 1), Verdict::NEXT);
    }
    assert_eq!(tables.lookups.get(), 0);
}

#[test]
fn a_tagged_frame_or_no_ip_is_nothing_of_ours_on_an_uplink() {
    let tables = FakeTables::node();
    let mut arp = FakePacket::new(build::ethernet(0x0806, &[0; 28]), 4);
    assert_eq!(drive(Hook::FromUplink, &mut arp, &tables, 1), Verdict::NEXT);
    let other = [192, 168, 0, 2];
    let mut tagged = FakePacket::new(build::ipv4(other, [10, 0, 1, 2], 17, &build::udp(&other, &NODE, 1, 2, b"")), 4);
    tagged.vlan = true;
    assert_eq!(drive(Hook::FromUplink, &mut tagged, &tables, 1), Verdict::NEXT);
}

#[test]
fn every_cut_of_a_tunnel_packet_is_survived() {
    let mut tables = FakeTables::node();
    tables.pod(1, 9, 2);
    let other = [192, 168, 0, 2];
    tables.nodes.insert(2, node_row(Addr::v4(other), N_TUNNEL));
    let pod = [10, 0, 1, 2];
    let far = [10, 0, 2, 2];
    let inner = build::ipv4(far, pod, 17, &build::udp(&far, &pod, 1, 2, b"data"));
    let mut vxlan = vec![0x08, 0, 0, 0, 0, 0, 1, 0];
    vxlan.extend(&inner);
    let bytes = build::ipv4(other, NODE, 17, &build::udp(&other, &NODE, 50_000, 4789, &vxlan));
    let whole = drive(Hook::FromUplink, &mut FakePacket::new(bytes.clone(), 4), &tables, 1);
    assert_eq!(whole, Verdict::peer(9));
    for cut in 14..bytes.len() {
        let mut short = bytes[..cut].to_vec();
        if cut >= 34 {
            let total = ((cut - 14) as u16).to_be_bytes();
            short[16..18].copy_from_slice(&total);
        }
        let verdict = drive(Hook::FromUplink, &mut FakePacket::new(short, 4), &tables, 1);
        assert!(matches!(verdict.kind(), Kind::Next | Kind::Drop), "{cut}: {verdict:?}");
    }
}

#[test]
fn a_tunnel_packet_from_the_unspecified_address_is_no_nodes() {
    let mut tables = FakeTables::node();
    tables.pod(1, 9, 2);
    let node6: [u8; 16] = "2001:db8::1".parse::<core::net::Ipv6Addr>().unwrap().octets();
    let other6: [u8; 16] = "2001:db8::2".parse::<core::net::Ipv6Addr>().unwrap().octets();
    tables.config.node6 = node6;
    tables.nodes.insert(2, node_row(Addr::v6(other6), N_TUNNEL));
    let (pod, far) = ([10, 0, 1, 2], [10, 0, 2, 2]);
    let inner = build::ipv4(far, pod, 17, &build::udp(&far, &pod, 1, 2, b"data"));
    let vxlan = [&[0x08, 0, 0, 0, 0, 0, 1, 0][..], &inner].concat();
    let from = |outer: [u8; 16]| {
        FakePacket::new(build::ipv6(outer, node6, 17, &build::udp(&outer, &node6, 50_000, 4789, &vxlan)), 4)
    };
    let spoof = Verdict::drop(DropReason::TunnelSpoof);
    assert_eq!(drive(Hook::FromUplink, &mut from([0; 16]), &tables, 1), spoof, "a new flow");
    assert_eq!(drive(Hook::FromUplink, &mut from(other6), &tables, 1), Verdict::peer(9));
    assert_eq!(drive(Hook::FromUplink, &mut from([0; 16]), &tables, 1), spoof, "a known flow");
    let mut device = FakePacket::new(inner, 7);
    device.tunnel_key = Some(crate::logic::packet::TunnelKey { vni: 1, remote: Addr::NONE });
    assert_eq!(drive(Hook::FromTunnelDevice, &mut device, &tables, 1), spoof, "unpacked by the device");
}

#[test]
fn the_tunnels_port_is_open_on_the_one_address_that_nodes_send_to() {
    let mut tables = FakeTables::node();
    tables.config.tunnel_dev = 7;
    let (other, second) = ([192, 168, 0, 2], [198, 51, 100, 9]);
    tables.routes.push((128, Addr::v4(second), Route { kind: RouteKind::LocalNode as u8, zero: 0, node: 0 }));
    let to =
        |dst, port| build::ipv4(other, dst, 17, &build::udp(&other, &dst, 50_000, port, &[8, 0, 0, 0, 0, 0, 1, 0]));
    let mut packet = FakePacket::new(to(second, 4789), 4);
    assert_eq!(drive(Hook::FromUplink, &mut packet, &tables, 1), Verdict::drop(DropReason::TunnelHeader));
    let mut packet = FakePacket::new(to(second, 53), 4);
    assert_eq!(drive(Hook::FromUplink, &mut packet, &tables, 1), Verdict::NEXT);
}

#[test]
fn nothing_that_belongs_to_one_link_reaches_a_pod_from_another() {
    let mut tables = FakeTables::node();
    tables.pod(1, 9, 2);
    let pod = pod6(2);
    for source in ["fe80::1", "ff02::1", "::1", "::"] {
        let source = source.parse::<core::net::Ipv6Addr>().unwrap().octets();
        let bytes = build::ipv6(source, pod, 17, &build::udp(&source, &pod, 1, 2, b""));
        let verdict = drive(Hook::FromUplink, &mut FakePacket::new(bytes, 4), &tables, 1);
        assert_eq!(verdict, Verdict::drop(DropReason::Martian), "{source:?}");
    }
    for source in [[169, 254, 0, 9], [127, 0, 0, 1], [0, 0, 0, 0], [224, 0, 0, 1], [255, 255, 255, 255]] {
        let bytes = build::ipv4(source, [10, 0, 1, 2], 17, &build::udp(&source, &[10, 0, 1, 2], 1, 2, b""));
        let verdict = drive(Hook::FromUplink, &mut FakePacket::new(bytes, 4), &tables, 1);
        assert_eq!(verdict, Verdict::drop(DropReason::Martian), "{source:?}");
    }
    // RS, RA, NS, NA, redirect, of a global source.
    let source = "2001:db8::9".parse::<core::net::Ipv6Addr>().unwrap().octets();
    for kind in 133..=137 {
        let bytes =
            build::ipv6(source, pod, 58, &[kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let verdict = drive(Hook::FromUplink, &mut FakePacket::new(bytes, 4), &tables, 1);
        assert_eq!(verdict, Verdict::drop(DropReason::LinkLocal), "{kind}");
    }
}

#[test]
fn no_pods_source_comes_in_by_an_uplink_for_the_stack_to_send_to_a_pod() {
    let mut tables = FakeTables::node();
    tables.pod(1, 9, 2);
    let route = Route { kind: RouteKind::Stack as u8, zero: 0, node: 0 };
    tables.routes.push((96 + 16, Addr::v4([10, 96, 0, 0]), route));
    let arrive = |src: [u8; 4], dst| {
        let bytes = build::ipv4(src, dst, 17, &build::udp(&src, &dst, 1000, 53, b""));
        drive(Hook::FromUplink, &mut FakePacket::new(bytes, 4), &tables, 1)
    };
    for dst in [[10, 96, 0, 10], [203, 0, 113, 9], [10, 0, 2, 9], [192, 168, 0, 2]] {
        for src in [[10, 0, 1, 2], [10, 0, 2, 5]] {
            assert_eq!(arrive(src, dst), Verdict::drop(DropReason::Martian), "{src:?} to {dst:?}");
        }
        assert_eq!(arrive([203, 0, 113, 7], dst), Verdict::NEXT, "{dst:?}");
    }
    let (pod, service) = (pod6(2), [0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    let bytes = build::ipv6(pod, service, 17, &build::udp(&pod, &service, 1000, 53, b""));
    let verdict = drive(Hook::FromUplink, &mut FakePacket::new(bytes, 4), &tables, 1);
    assert_eq!(verdict, Verdict::drop(DropReason::Martian));
}

/// Whatever the node's stack makes of it comes out of its door, where a pod's source is believed.
#[test]
fn what_cannot_be_read_is_from_no_pod_and_for_none() {
    let mut tables = FakeTables::node();
    tables.pod(1, 9, 2);
    let outside = "2001:db8::9".parse::<core::net::Ipv6Addr>().unwrap().octets();
    let node = "2001:db8::1".parse::<core::net::Ipv6Addr>().unwrap().octets();
    let (here, there) = (pod6(2), "fd00:0:0:2::5".parse::<core::net::Ipv6Addr>().unwrap().octets());
    tables.routes.push((64, Addr::v6(there), Route { kind: RouteKind::RemoteBlock as u8, zero: 0, node: 2 }));
    tables.routes.push((128, Addr::v6(node), Route { kind: RouteKind::LocalNode as u8, zero: 0, node: 0 }));
    // A first fragment whose transport header is in another, and a chain that is too long.
    let first = [&[60, 0, 0, 1, 0, 0, 0, 9][..], &[17, 0, 1, 4, 0, 0, 0, 0]].concat();
    let long = [&[60, 0, 1, 4, 0, 0, 0, 0][..]; 9].concat();
    for (next, payload, reason) in [(44, first, DropReason::Malformed), (60, long, DropReason::ExtHdr)] {
        let arrive = |src, dst| {
            let mut packet = FakePacket::new(build::ipv6(src, dst, next, &payload), 4);
            drive(Hook::FromUplink, &mut packet, &tables, 1)
        };
        for src in [here, there] {
            for dst in [here, there, node, outside] {
                assert_eq!(arrive(src, dst), Verdict::drop(DropReason::Martian), "{src:?} to {dst:?}");
            }
        }
        assert_eq!(arrive(outside, here), Verdict::drop(reason));
        for dst in [node, outside] {
            assert_eq!(arrive(outside, dst), Verdict::NEXT, "{dst:?}");
        }
    }
    // And what has no addresses at all.
    let mut cut = FakePacket::new(build::ipv6(here, here, 17, &[])[..14 + 30].to_vec(), 4);
    assert_eq!(drive(Hook::FromUplink, &mut cut, &tables, 1), Verdict::NEXT);
}
