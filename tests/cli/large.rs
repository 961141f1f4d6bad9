//! Maps that no single call reads. What the commands take there is a matter of the bench.

use osmia_maps::{
    Access,
    layout::{Addr, FlowEntry},
    tables,
};

use crate::fixture::{Machine, NOW, Sizes, create, flow4};

const ROWS: u32 = 10_000;

#[test]
fn of_ten_thousand_rows_none_is_missing() {
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
    let dumped = machine.json(&["map", "dump", "endpoint_addr"]);
    assert_eq!(dumped["rows"].as_array().unwrap().len(), ROWS as usize);
    assert_eq!(machine.json(&["flow", "list"])["matched"], ROWS);
}
