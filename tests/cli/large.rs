//! How long the commands take on large maps: printed, not asserted, since the machine is shared. `-- --nocapture` shows it.

use std::{process::Stdio, time::Instant};

use osmia_maps::{
    Access,
    layout::{Addr, FlowEntry},
    tables,
};

use crate::fixture::{Machine, NOW, Sizes, create, flow4, osmia};

const ROWS: u32 = 10_000;

#[test]
fn ten_thousand_rows() {
    let machine = Machine::new();
    machine.inside(|pins| {
        create(pins, Sizes { flows: 2 * ROWS, addresses: 2 * ROWS });
        let addresses: Vec<_> = (0..ROWS).map(|i| (Addr::v4((0x0a01_0000 + i).to_be_bytes()), i)).collect();
        tables::ENDPOINT_ADDR.open(pins, Access::ReadWrite).unwrap().put_all(&addresses).unwrap();
        let entry = FlowEntry { action: 1, target: 50, last_seen: NOW, created: NOW, ..FlowEntry::default() };
        let flows: Vec<_> =
            (0..ROWS).map(|i| (flow4((0x0a01_0000 + i).to_be_bytes(), 1, [10, 2, 0, 7], 80, 6), entry)).collect();
        tables::FLOW4.open(pins, Access::ReadWrite).unwrap().put_all(&flows).unwrap();
    });
    for line in [
        "status",
        "map list",
        "map dump endpoint_addr",
        "map dump endpoint_addr --json",
        "map get endpoint_addr 10.1.0.5",
        "endpoint list --traffic",
        "flow list",
        "flow list --json",
        "flow list --pod 10.1.0.5",
        "map dump flow4 --json",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let mut times: Vec<u128> = (0..5)
            .map(|_| {
                let run = || {
                    let start = Instant::now();
                    let status = osmia(&arguments).stdout(Stdio::null()).status();
                    (status, start.elapsed().as_millis())
                };
                let (status, took) = machine.space.run(run).unwrap();
                assert!(status.unwrap().success(), "{line}");
                took
            })
            .collect();
        times.sort_unstable();
        eprintln!("{:>4} ms  osmia {line}  ({ROWS} rows, median of 5, with the start of the process)", times[2]);
    }
    let dumped = machine.json(&["map", "dump", "endpoint_addr"]);
    assert_eq!(dumped["rows"].as_array().unwrap().len(), ROWS as usize);
    assert_eq!(machine.json(&["flow", "list"])["matched"], ROWS);
}
