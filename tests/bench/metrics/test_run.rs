//! Metric 11: a packet of an established flow through the product's program by test-run, against one that does nothing and one that does
//! one look-up of the same key in the same table.

use std::env;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aya::maps::{HashMap, MapData};
use aya::programs::SchedClassifier;
use aya::{Ebpf, Pod};
use osmia_lab::Space;
use osmia_lab::packet::{Ip, frame};
use osmia_maps::layout::flow::{F_NO_HOP, F_OPENER, F_REPLIED, FlowAction, NO_MTU};
use osmia_maps::layout::{FlowEntry, FlowKey4, FlowKey6, maps, programs};

use super::Bench;
use crate::report::Row;
use crate::stats::Spread;
use crate::{cpu, programs as own, sys};

/// Runs a figure is the mean of.
const REPEAT: u32 = 100_000;
/// Where a test-run's packet arrives unless told otherwise: `lo` (net/bpf/test_run.c).
const LOOPBACK: u32 = 1;
/// `TC_ACT_REDIRECT`, linux/pkt_cls.h.
const REDIRECT: u32 = 7;
/// UDP.
const UDP: u8 = 17;
const PORTS: (u16, u16) = (7008, 7007);

/// Metric 11.
pub(super) fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    // Its `lo` is the device of the test-runs; nothing is attached anywhere.
    let bursts = bench.plan.bursts;
    Space::network("osm-test-run")?.run(|| in_here(bursts))?
}

fn in_here(bursts: usize) -> Result<Vec<Row>> {
    cpu::settle(cpu::Cpu::Main)?;
    let mut object = load()?;
    let empty = own::empty()?;
    let clock = classifier(&mut object, programs::CLOCK)?;
    let program = classifier(&mut object, programs::FROM_POD.name)?;

    let (from, to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (sport, dport) = (PORTS.0.to_be_bytes(), PORTS.1.to_be_bytes());
    let key = FlowKey4 { src: from, dst: to, sport, dport, proto: UDP, ..FlowKey4::default() };
    let bytes = [from.as_slice(), &to, &sport, &dport, &[UDP, 0, 0, 0]].concat();
    let case = |name, packet| Case { program: &program, empty: &empty, clock: &clock, packet, name, bursts };
    let mut rows =
        case("IPv4", packet(&Ip::new(from, to))).rows(&mut object, key, &bytes, maps::FLOW4, maps::FLOW4_NEW)?;

    let (from, to) = (0xfd00_u128 << 112 | 1, 0xfd00_u128 << 112 | 2);
    let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
    let key = FlowKey6 { src: from, dst: to, sport, dport, proto: UDP, ..FlowKey6::default() };
    let bytes = [from.as_slice(), &to, &sport, &dport, &[UDP, 0, 0, 0]].concat();
    rows.extend(case("IPv6", packet(&Ip::new(from, to))).rows(
        &mut object,
        key,
        &bytes,
        maps::FLOW6,
        maps::FLOW6_NEW,
    )?);
    Ok(rows)
}

struct Case<'a> {
    program: &'a OwnedFd,
    empty: &'a OwnedFd,
    /// Tells the dataplane's tick.
    clock: &'a OwnedFd,
    packet: Vec<u8>,
    name: &'static str,
    bursts: usize,
}

impl Case<'_> {
    /// Both figures of a family. The key is in one of the tables at a time.
    fn rows<K: Pod + Copy>(
        &self,
        object: &mut Ebpf,
        key: K,
        bytes: &[u8],
        established: &str,
        probation: &str,
    ) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let mut table = |name: &str| -> Result<HashMap<MapData, K, FlowEntry>> {
            Ok(HashMap::try_from(object.take_map(name).with_context(|| format!("the object has no map {name}"))?)?)
        };
        let (mut established, mut probation) = (table(established)?, table(probation)?);
        let map = aya::maps::IterableMap::map(&established).fd().as_fd();
        let lookup = own::looks_up(map, bytes)?;
        for (what, first, target) in [("hit in the first table", true, 2.0), ("after a miss", false, 3.0)] {
            let (mut costs, mut absolutes) = (Vec::new(), Vec::new());
            for _ in 0..self.bursts {
                // As new: on probation it would be promoted after a second.
                established.insert(&key, &self.entry()?, 0)?;
                let floor = self.time(self.empty.as_fd(), 0)?;
                let one = self.time(lookup.as_fd(), 1)?;
                if !first {
                    established.remove(&key)?;
                    probation.insert(&key, &self.entry()?, 0)?;
                }
                let whole = self.time(self.program.as_fd(), REDIRECT)?;
                costs.push((whole - floor) / (one - floor));
                absolutes.push(whole - floor);
            }
            let absolute = Spread::of(absolutes)?.median;
            let row = Row::new("11", format!("{}: {what}", self.name), "one hot look-up", Spread::of(costs)?, target);
            rows.push(row.with(format!("{absolute:.0} ns")));
            // For the next round.
            let _ = probation.remove(&key);
        }
        Ok(rows)
    }

    /// A flow between two pods of this node, seen just now: what is measured before must not let it expire.
    fn entry(&self) -> Result<FlowEntry> {
        let now = sys::test_run(self.clock.as_fd(), &[0; 64], 1)?;
        Ok(FlowEntry {
            hook: LOOPBACK,
            target: LOOPBACK,
            action: FlowAction::Peer as u8,
            flags: F_OPENER | F_REPLIED | F_NO_HOP,
            mtu: NO_MTU,
            last_seen: now,
            created: now,
            replied: now,
            ..FlowEntry::default()
        })
    }

    /// CPU time of a run, ns.
    fn time(&self, program: BorrowedFd<'_>, expected: u32) -> Result<f64> {
        let before = cpu::of_this_thread();
        let returned = sys::test_run(program, &self.packet, REPEAT)?;
        let took: Duration = cpu::of_this_thread() - before;
        ensure!(returned == expected, "a program returned {returned}, not {expected}: it did not do what is measured");
        Ok(took.as_nanos() as f64 / f64::from(REPEAT))
    }
}

/// With its constants unset: a tick is a jiffy, which the clock program tells.
fn load() -> Result<Ebpf> {
    let path = env::var_os("OSMIA_OBJECT").context("OSMIA_OBJECT names no object: `cargo xtask bench` sets it")?;
    let path = PathBuf::from(path);
    Ebpf::load_file(&path).with_context(|| format!("load {}", path.display()))
}

fn classifier(object: &mut Ebpf, name: &str) -> Result<OwnedFd> {
    let program: &mut SchedClassifier =
        object.program_mut(name).with_context(|| format!("the object has no program {name}"))?.try_into()?;
    program.load().with_context(|| format!("load {name}"))?;
    Ok(program.fd()?.as_fd().try_clone_to_owned()?)
}

fn packet(ip: &Ip) -> Vec<u8> {
    frame([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], &ip.udp(PORTS.0, PORTS.1, &[0; 18]))
}
