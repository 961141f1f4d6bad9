//! Maps whose key is a number: a slot, an ifindex, a node number, the one row.

use osmia_ebpf::layout::{Addr, Uplink};

use super::{Cell, Context, Record, codec::Codec, codec::exact, number};
use crate::tables;

/// The key of a map of one row.
pub(super) fn only_row(text: &str, _: &Context) -> Result<u32, String> {
    match text {
        "" | "0" => Ok(0),
        _ => Err(format!("`{text}`, but there is one row")),
    }
}

pub(super) fn plain(text: &str, _: &Context) -> Result<u32, String> {
    number(text)
}

pub(super) fn device(text: &str, context: &Context) -> Result<u32, String> {
    context.ifindex(text)
}

pub(super) fn row_key(row: &u32, _: &Context) -> Record {
    Record::new().with("row", Cell::Number(u64::from(*row)))
}

pub(super) fn slot_key(slot: &u32, _: &Context) -> Record {
    Record::new().with("slot", Cell::Number(u64::from(*slot)))
}

pub(super) fn device_key(ifindex: &u32, context: &Context) -> Record {
    Record::new().with("device", Cell::Device(*ifindex, context.devices.name(*ifindex)))
}

pub(super) static EPOCHS: Codec<u32, u32> = Codec {
    spec: tables::EPOCHS,
    about: "row 0 the route generation, row s the epoch of endpoint slot s",
    key_help: "SLOT (0: the route generation)",
    example: "0",
    parse: plain,
    text: u32::to_string,
    key: |slot, context| {
        let of = if *slot == 0 { "route generation" } else { "endpoint" };
        slot_key(slot, context).with("of", Cell::name(of))
    },
    value: |epoch, _| Record::new().with("epoch", Cell::Number(u64::from(*epoch))),
    used: |epoch| *epoch != 0,
    find: exact,
};

pub(super) static BUDGETS: Codec<u32, u64> = Codec {
    spec: tables::BUDGETS,
    about: "what an endpoint has used of its shares",
    key_help: "SLOT",
    example: "1",
    parse: plain,
    text: u32::to_string,
    key: slot_key,
    value: |budget, _| {
        Record::new()
            .with("established_flows", Cell::Number(budget & u64::from(u32::MAX)))
            .with("too_big_bucket", Cell::Number(budget >> 32))
    },
    used: |budget| *budget != 0,
    find: exact,
};

pub(super) static UPLINKS: Codec<u32, Uplink> = Codec {
    spec: tables::UPLINKS,
    about: "devices that lead to other nodes and outside",
    key_help: "IFINDEX or device name",
    example: "eth0",
    parse: device,
    text: u32::to_string,
    key: device_key,
    value: |uplink, _| {
        Record::new()
            .with("v4", Cell::v4(uplink.v4))
            .with("v6", Cell::address(Addr::v6(uplink.v6)))
            .with("mtu", Cell::Number(u64::from(uplink.mtu)))
            .with("mac", Cell::Mac(uplink.mac))
    },
    used: |_| true,
    find: exact,
};
