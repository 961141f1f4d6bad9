use crate::layout::Addr;
use crate::layout::node::{N_PRESENT, N_TUNNEL};
use crate::logic::testing::{FakePacket, FakeTables, build, drive};
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
    let node = crate::layout::Node {
        flags: N_PRESENT | N_TUNNEL,
        uplink: 4,
        mtu: 1450,
        zero: [0; 6],
        tunnel: Addr::v4(other),
        next_hop4: Addr::NONE,
        next_hop6: Addr::NONE,
        next_hop_tunnel: Addr::NONE,
        outer: [0; 72],
    };
    tables.nodes.insert(2, node);
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
