//! Ports: whose they may be, and that no two flows share one.

use std::collections::BTreeSet;

use super::super::parse::query;
use super::super::testing::{FakePacket, FakeTables, build};
use super::*;
use crate::layout::{FlowKey4, FlowKey6, Uplink};

const POD4: [u8; 4] = [10, 0, 1, 9];
const OUT4: [u8; 4] = [203, 0, 113, 7];
const NODE4: [u8; 4] = [192, 168, 0, 1];
const UPLINK: u32 = 70;
const SECOND: u32 = 64;

fn tables(min: u16, max: u16) -> FakeTables {
    let mut t = FakeTables::node();
    (t.config.masq_min, t.config.masq_max) = (min, max);
    let v6 = t.config.node6;
    t.uplinks.insert(UPLINK, Uplink { v4: NODE4, v6, mtu: 1500, ..Uplink::default() });
    t
}

fn packet() -> FakePacket {
    FakePacket::new(build::ipv4(POD4, OUT4, 47, &[]), 3)
}

fn key(sport: u16, proto: u8) -> FlowKey4 {
    let dport = if proto == ICMP { sport + 1 } else { 53 };
    FlowKey4::of(&Addr::v4(POD4), &Addr::v4(OUT4), sport.to_be_bytes(), dport.to_be_bytes(), proto)
}

/// Opens at `now`; the port on success.
fn opened(t: &FakeTables, p: &mut FakePacket, key: FlowKey4, now: u32) -> Result<u16, DropReason> {
    let mut scratch = Scratch::default();
    scratch.reverse.last_seen = now;
    for _ in 0..TRIES {
        if open(p, t, &t.config, &mut scratch, &key, UPLINK, now)? {
            return Ok(u16::from_be_bytes(scratch.forward.new_sport));
        }
    }
    Err(DropReason::MasqPorts)
}

#[test]
fn replies_find_the_way_back() {
    for proto in [TCP, UDP, ICMP] {
        let t = tables(61_000, 65_535);
        let mut scratch = Scratch::default();
        scratch.reverse.target = 33;
        let key = key(4000, proto);
        assert_eq!(open(&mut packet(), &t, &t.config, &mut scratch, &key, UPLINK, 5), Ok(true));
        let replies = key.opposite(&scratch.forward);
        assert_eq!((replies.src, replies.dst), (OUT4, NODE4));
        assert!(u16::from_be_bytes(replies.dport) >= 61_000);
        assert_eq!(replies.sport, if proto == ICMP { query::after(replies.dport) } else { 53_u16.to_be_bytes() });
        let entry = *t.flow4_new.borrow()[&replies].borrow();
        assert_eq!(entry.target, 33, "the entry that was filled");
        assert_eq!(replies.opposite(&entry), key, "and it leads back to the pod");
    }
}

#[test]
fn v6_takes_the_uplinks_v6_address() {
    let t = tables(61_000, 65_535);
    let (pod, out) = (Addr::v6([0xfd; 16]), Addr::v6([0x20; 16]));
    let key = FlowKey6::of(&pod, &out, [0x10, 0], [0, 80], TCP);
    let mut scratch = Scratch::default();
    assert_eq!(open(&mut packet(), &t, &t.config, &mut scratch, &key, UPLINK, 5), Ok(true));
    assert_eq!(scratch.forward.new_src, Addr::v6(t.config.node6));
    assert_eq!(key.opposite(&scratch.forward).opposite(&scratch.reverse), key);
}

#[test]
fn flows_to_one_destination_never_share_a_port() {
    let t = tables(61_000, 61_063);
    let mut p = packet();
    let mut ports = BTreeSet::new();
    let mut refused = 0;
    for sport in 1..200 {
        match opened(&t, &mut p, key(sport, UDP), 5) {
            Ok(port) => {
                assert!((61_000..=61_063).contains(&port), "{port}");
                assert!(ports.insert(port), "{port} twice");
            }
            Err(reason) => {
                assert_eq!(reason, DropReason::MasqPorts);
                refused += 1;
            }
        }
    }
    assert!(ports.len() > 56, "{} of 64 ports were found", ports.len());
    assert_eq!(ports.len() + refused, 199);
    assert_eq!(t.stat(Stat::MasqOpened), ports.len() as u64);
}

#[test]
fn a_port_of_a_flow_that_is_over_is_taken_again() {
    for established in [false, true] {
        let t = tables(61_000, 61_000);
        let mut p = packet();
        assert_eq!(opened(&t, &mut p, key(1, UDP), 5), Ok(61_000));
        if established {
            t.flow4.borrow_mut().append(&mut t.flow4_new.borrow_mut());
        }
        assert_eq!(opened(&t, &mut p, key(2, UDP), 5), Err(DropReason::MasqPorts));
        assert_eq!(opened(&t, &mut p, key(2, UDP), 5 + 61 * SECOND), Ok(61_000));
        assert_eq!(t.flow4.borrow().len() + t.flow4_new.borrow().len(), 1);
    }
}

#[test]
fn a_port_that_a_socket_uses_is_not_taken() {
    let t = tables(61_000, 61_001);
    let mut p = packet();
    p.used_ports = vec![61_000];
    assert_eq!(opened(&t, &mut p, key(1, TCP), 5), Ok(61_001));
    p.used_ports = vec![61_000, 61_001];
    assert_eq!(opened(&t, &mut p, key(2, TCP), 5), Err(DropReason::MasqPorts));
    assert_eq!(t.flow4_new.borrow().len(), 1, "nothing is left behind");
}

#[test]
fn what_has_no_ports_is_one_flow_an_address_pair() {
    let t = tables(61_000, 65_535);
    let mut p = packet();
    let sctp = FlowKey4::of(&Addr::v4(POD4), &Addr::v4(OUT4), [0x10, 0], [0, 80], 132);
    assert_eq!(opened(&t, &mut p, sctp, 5), Ok(0x1000), "the port that the packet has");
    let other = FlowKey4::of(&Addr::v4([10, 0, 1, 8]), &Addr::v4(OUT4), [0x10, 0], [0, 80], 132);
    assert_eq!(opened(&t, &mut p, other, 5), Err(DropReason::MasqPorts));
}

#[test]
fn an_uplink_without_an_address_is_said() {
    let mut t = tables(61_000, 65_535);
    t.uplinks.insert(UPLINK, Uplink::default());
    assert_eq!(opened(&t, &mut packet(), key(1, UDP), 5), Err(DropReason::MasqSource));
    t.uplinks.clear();
    assert_eq!(opened(&t, &mut packet(), key(1, UDP), 5), Err(DropReason::MasqSource));
}
