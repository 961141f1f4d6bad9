//! Packets through the programs of the object, loaded into the running kernel: what the verifier takes and what comes out.
//!
//! Needs root and `OSMIA_OBJECT`; `cargo xtask test packet` sets it.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests: a panic with its place is the report")]

use std::path::PathBuf;

use aya::maps::PerCpuArray;
use aya::programs::SchedClassifier;
use aya::{Ebpf, TestRun, TestRunOptions};

/// `TCX_NEXT`, linux/bpf.h.
const NEXT: u32 = -1_i32 as u32;

fn load() -> Ebpf {
    let path = std::env::var_os("OSMIA_OBJECT").expect("OSMIA_OBJECT is not set: run `cargo xtask test packet`");
    let path = PathBuf::from(path);
    Ebpf::load_file(&path).unwrap_or_else(|e| panic!("loading {}: {e:?}", path.display()))
}

#[test]
fn a_packet_is_counted_and_passed_on() {
    const PACKETS: u32 = 5;
    let mut object = load();
    let program: &mut SchedClassifier =
        object.program_mut("count").expect("program count").try_into().expect("a classifier");
    program.load().expect("the verifier takes it");
    // Any Ethernet frame: what test-run asks for is a full header.
    let frame = [0_u8; 60];
    let options = TestRunOptions { data_in: Some(&frame), repeat: PACKETS, ..TestRunOptions::default() };
    let outcome = program.test_run(options).expect("test run");
    assert_eq!(outcome.return_value, NEXT);

    let seen: PerCpuArray<_, u64> = object.map("SEEN").expect("map SEEN").try_into().expect("a per-CPU array");
    let seen: u64 = seen.get(&0, 0).expect("its value").iter().sum();
    assert_eq!(seen, u64::from(PACKETS));
}
