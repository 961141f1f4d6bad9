//! Hurt packets: every cut and seeded damage of each header, at every hook.

use osmia_lab::packet::{Ip, flags, frame};

use crate::object::{A, A6, B, B6, NEXT, Object, REDIRECT, SHOT};

/// `xorshift64`: the same packets every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

const HOOKS: [&str; 7] =
    ["osm_from_pod", "osm_to_pod", "osm_from_uplnk", "osm_to_uplnk", "osm_from_tundev", "osm_to_door", "osm_from_door"];

fn packets() -> Vec<Vec<u8>> {
    let (v4, v6) = (Ip::new(A, B), Ip::new(A6, B6));
    let inner = frame([2; 6], [3; 6], &Ip::new([10, 0, 2, 2], A).udp(1, 2, b"inside"));
    let mut extended = v6
        .packet(0, &[&[60, 0, 1, 4, 0, 0, 0, 0][..], &[44, 0, 1, 4, 0, 0, 0, 0], &[17, 0, 0, 1, 0, 0, 0, 9]].concat());
    extended.extend([0, 1, 0, 2, 0, 12, 0, 0, 1, 2, 3, 4]);
    let payload = (extended.len() - 40) as u16;
    extended[4..6].copy_from_slice(&payload.to_be_bytes());
    [
        v4.tcp(1000, 80, flags::SYN, 1, 0),
        v4.udp(1000, 80, b"data"),
        v4.echo(7, 1, b"echo"),
        v6.tcp(1000, 80, flags::SYN, 1, 0),
        v6.udp(1000, 80, b"data"),
        v6.echo(7, 1, b"echo"),
        extended,
        Ip::new([192, 168, 0, 2], [192, 168, 0, 1]).vxlan(50_000, 4789, 1, &inner),
    ]
    .iter()
    .map(|packet| frame([2; 6], [3; 6], packet))
    .collect()
}

#[test]
fn a_cut_packet_ends_in_a_verdict() {
    let mut object = Object::load();
    for packet in packets() {
        // No test-run is given less than an IP header.
        let header = if packet[12] == 8 { 20 } else { 40 };
        for cut in 14 + header..packet.len() {
            for hook in HOOKS {
                let verdict = object.run(hook, &packet[..cut]).verdict;
                assert!([NEXT, SHOT, REDIRECT].contains(&verdict), "{hook} {cut}: {verdict}");
            }
        }
    }
}

#[test]
fn a_damaged_packet_ends_in_a_verdict() {
    let mut object = Object::load();
    let mut random = Random(0x6f73_6d69_6100_0001);
    for round in 0..400 {
        for packet in packets() {
            let mut hurt = packet.clone();
            for _ in 0..=random.next() % 4 {
                let at = 12 + random.next() as usize % (hurt.len() - 12);
                hurt[at] = random.next() as u8;
            }
            let hook = HOOKS[random.next() as usize % HOOKS.len()];
            let verdict = object.run(hook, &hurt).verdict;
            assert!([NEXT, SHOT, REDIRECT].contains(&verdict), "round {round}, {hook}: {verdict}: {hurt:02x?}");
        }
    }
}
