use crate::layout::Stat;
use crate::logic::testing::{FakePacket, FakeTables, build, drive, pod6, verify};
use crate::logic::{Hook, Verdict};

const POD: u32 = 9;
const GATEWAY6: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn node() -> FakeTables {
    let mut tables = FakeTables::node();
    tables.pod(1, POD, 2);
    tables
}

fn arp(op: u8, from: [u8; 4], asked: [u8; 4]) -> FakePacket {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, op];
    bytes.extend(build::POD);
    bytes.extend(from);
    bytes.extend([0; 6]);
    bytes.extend(asked);
    FakePacket::new(build::ethernet(0x0806, &bytes), POD)
}

fn solicitation(src: [u8; 16], target: [u8; 16], option: bool) -> FakePacket {
    let mut body = target.to_vec();
    if option {
        body.extend([1, 1]);
        body.extend(build::POD);
    }
    let dst = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, target[13], target[14], target[15]];
    let mut bytes = build::ipv6(src, dst, 58, &build::icmp(135, 0, [0; 4], &body, Some((src, dst))));
    bytes[14 + 7] = 255;
    FakePacket::new(bytes, POD)
}

#[test]
fn every_address_but_the_pods_own_is_at_the_gateway() {
    let tables = node();
    for asked in [[169, 254, 1, 1], [10, 0, 1, 77]] {
        let mut packet = arp(1, [10, 0, 1, 2], asked);
        assert_eq!(drive(Hook::FromPod, &mut packet, &tables, 5), Verdict::reply(POD));
        let b = &packet.bytes;
        assert_eq!((&b[..6], &b[6..12]), (&build::POD[..], &build::GATEWAY[..]), "back to who asked");
        assert_eq!(&b[20..22], &[0, 2], "a reply");
        assert_eq!((&b[22..28], &b[28..32]), (&build::GATEWAY[..], &asked[..]), "this address is at this MAC");
        assert_eq!((&b[32..38], &b[38..42]), (&build::POD[..], &[10, 0, 1, 2][..]));
    }
    assert_eq!(tables.stat(Stat::ArpAnswered), 2);
}

#[test]
fn a_pod_that_looks_whether_its_own_address_is_taken_hears_nothing() {
    let tables = node();
    let own = [10, 0, 1, 2];
    for mut packet in [arp(1, [0; 4], own), arp(1, own, own), arp(2, own, [10, 0, 1, 3]), arp(1, [10, 0, 1, 8], own)] {
        assert_eq!(drive(Hook::FromPod, &mut packet, &tables, 5), Verdict::CONSUMED);
    }
    assert_eq!((tables.stat(Stat::ArpAnswered), tables.stat(Stat::Dad)), (0, 4));
}

#[test]
fn a_solicitation_is_answered_with_a_right_advertisement() {
    let tables = node();
    for (target, option) in [(GATEWAY6, true), (GATEWAY6, false), (pod6(77), true)] {
        let mut packet = solicitation(pod6(2), target, option);
        assert_eq!(drive(Hook::FromPod, &mut packet, &tables, 5), Verdict::reply(POD));
        verify(&packet.bytes);
        let b = &packet.bytes;
        assert_eq!(b.len(), 86);
        assert_eq!((&b[22..38], &b[38..54]), (&target[..], &pod6(2)[..]));
        assert_eq!((b[21], b[54], b[58]), (255, 136, 0xe0), "hop limit, advertisement, router + solicited + override");
        assert_eq!((&b[62..78], &b[78..86]), (&target[..], &[2, 1, 2, 0x6f, 0x73, 0x6d, 0, 1][..]));
    }
    assert_eq!(tables.stat(Stat::NdAnswered), 3);
}

#[test]
fn duplicate_address_detection_and_the_links_own_talk_are_swallowed() {
    let tables = node();
    let mut dad = solicitation([0; 16], pod6(2), false);
    assert_eq!(drive(Hook::FromPod, &mut dad, &tables, 5), Verdict::CONSUMED);
    let all_routers = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let link = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let message = |kind| {
        let bytes = build::ipv6(link, all_routers, 58, &build::icmp(kind, 0, [0; 4], &[], Some((link, all_routers))));
        FakePacket::new(bytes, POD)
    };
    assert_eq!(drive(Hook::FromPod, &mut message(133), &tables, 5), Verdict::CONSUMED);
    assert_eq!(drive(Hook::FromPod, &mut message(143), &tables, 5), Verdict::CONSUMED);
    let everyone = [255; 4];
    let mut dhcp =
        FakePacket::new(build::ipv4([0; 4], everyone, 17, &build::udp(&[0; 4], &everyone, 68, 67, b"")), POD);
    assert_eq!(drive(Hook::FromPod, &mut dhcp, &tables, 5), Verdict::CONSUMED);
    for stat in [Stat::Dad, Stat::RouterSolicit, Stat::Mld, Stat::Dhcp] {
        assert_eq!(tables.stat(stat), 1, "{}", stat.name());
    }
}
