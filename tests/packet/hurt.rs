//! Hurt packets: every cut and seeded damage of each header, at every hook, over a tunnel of either family.
//!
//! Each ends in a verdict. Beyond that: a cut packet, which claims bytes that are not there, is sent nowhere; and whatever is damaged, a pod
//! sends by its own addresses alone.

use osmia_maps::layout::programs::{ATTACHED, Attached, FROM_POD};

use crate::cluster::{Cluster, POD4, POD6, REDIRECT, SHOT};
use crate::headers;

/// `TCX_NEXT`, linux/bpf.h.
const NEXT: u32 = -1_i32 as u32;
const ROUNDS: usize = 150;

/// `xorshift64`: the same packets every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }
}

/// Bytes that a test-run is given at least: Ethernet, and the header of IP.
fn least(packet: &[u8]) -> usize {
    match packet.get(12..14) {
        Some([0x08, 0x00]) => 34,
        Some([0x86, 0xdd]) => 54,
        _ => 14,
    }
}

/// Runs all in one go, and hands each verdict to `judge`.
fn run(cluster: &Cluster, runs: &[(Attached, &[u8])], judge: impl Fn(Attached, &[u8], u32)) {
    let verdicts = cluster.verdicts(runs).expect("test runs");
    for (&(hook, packet), verdict) in runs.iter().zip(verdicts) {
        let (known, name) = ([NEXT, SHOT, REDIRECT].contains(&verdict), hook.name);
        assert!(known, "{name}: {verdict}: {packet:02x?}");
        judge(hook, packet, verdict);
    }
}

#[test]
fn a_cut_packet_goes_nowhere() {
    for outer_v6 in [false, true] {
        let cluster = Cluster::new(outer_v6).expect("the object and its rows");
        for (name, packet) in headers::all() {
            let cuts = (least(&packet)..packet.len()).map(|cut| &packet[..cut]);
            let runs: Vec<_> = cuts.flat_map(|cut| ATTACHED.map(|hook| (hook, cut))).collect();
            run(&cluster, &runs, |hook, cut, verdict| {
                assert!(
                    verdict != REDIRECT,
                    "{name} of {} bytes, cut to {}, at {}",
                    packet.len(),
                    cut.len(),
                    hook.name
                );
                assert!(hook != FROM_POD || verdict == SHOT, "{name} cut to {} of a pod: {verdict}", cut.len());
            });
        }
    }
}

#[test]
fn a_whole_packet_of_each_kind_is_understood() {
    for outer_v6 in [false, true] {
        let cluster = Cluster::new(outer_v6).expect("the object and its rows");
        let (of_pods, others): (Vec<_>, Vec<_>) =
            headers::all().into_iter().partition(|(name, _)| !name.contains("wire"));
        for (name, packet) in of_pods {
            let verdict = cluster.verdicts(&[(FROM_POD, &packet)]).expect("a test run")[0];
            let expected = if name.contains("refused") { SHOT } else { REDIRECT };
            assert_eq!(verdict, expected, "{name}");
        }
        assert!(others.len() > 3);
    }
}

#[test]
fn a_damaged_packet_ends_in_a_verdict() {
    for outer_v6 in [false, true] {
        let cluster = Cluster::new(outer_v6).expect("the object and its rows");
        let packets = headers::all();
        // Flows that what is damaged may hit.
        let whole: Vec<_> = packets.iter().map(|(_, packet)| (FROM_POD, packet.as_slice())).collect();
        cluster.verdicts(&whole).expect("test runs");
        let mut random = Random(0x6f73_6d69_6100_0001);
        let mut hurt = Vec::new();
        for _ in 0..ROUNDS {
            for (_, packet) in &packets {
                let mut packet = packet.clone();
                for _ in 0..=random.below(4) {
                    let at = 12 + random.below(packet.len() - 12);
                    packet[at] = random.next() as u8;
                }
                packet.resize(packet.len().max(least(&packet)), 0);
                hurt.push((ATTACHED[random.below(ATTACHED.len())], packet));
            }
        }
        let runs: Vec<_> = hurt.iter().map(|(hook, packet)| (*hook, packet.as_slice())).collect();
        run(&cluster, &runs, |hook, packet, verdict| {
            if hook != FROM_POD || verdict != REDIRECT {
                return;
            }
            let own = match packet[12..14] {
                [0x08, 0x00] => packet[26..30] == POD4.octets(),
                // A solicitation of duplicate address detection is answered to nobody, any other to its sender's own link.
                [0x86, 0xdd] => packet[22..38] == POD6.octets() || packet[54] == 135,
                _ => packet[12..14] == [0x08, 0x06],
            };
            assert!(own, "{packet:02x?}");
        });
    }
}
