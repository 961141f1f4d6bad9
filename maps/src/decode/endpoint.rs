//! Endpoints: the rows by slot, and the two ways to a slot.

use osmia_ebpf::layout::{
    Addr, Endpoint,
    endpoint::{E_PRESENT, E_READY, E_SLOW_PATH},
};

use super::{
    Cell, Context, Record,
    codec::{Codec, exact},
    ip, parse, slots,
};
use crate::tables;

const FLAGS: [(u32, &str); 3] = [(E_PRESENT, "present"), (E_READY, "ready"), (E_SLOW_PATH, "slow_path")];

/// The fields of an endpoint.
#[must_use]
pub fn value(endpoint: &Endpoint, context: &Context) -> Record {
    Record::new()
        .with("device", context.device(endpoint.ifindex))
        .with("v4", Cell::v4(endpoint.v4))
        .with("v6", Cell::address(Addr::v6(endpoint.v6)))
        .with("mac", if endpoint.mac == [0; 6] { Cell::Absent } else { Cell::Mac(endpoint.mac) })
        .with("flags", Cell::flags(endpoint.flags, &FLAGS))
        .with("egress_rules", Cell::nonzero(endpoint.egress_rules))
        .with("ingress_rules", Cell::nonzero(endpoint.ingress_rules))
}

pub(super) static ENDPOINTS: Codec<u32, Endpoint> = Codec {
    spec: tables::ENDPOINTS,
    about: "the pods of this node by slot",
    key_help: "SLOT",
    example: "1",
    parse: slots::plain,
    text: u32::to_string,
    key: slots::slot_key,
    value,
    used: |endpoint| *endpoint != Endpoint::default(),
    find: exact,
};

pub(super) static ENDPOINT_IF: Codec<u32, u32> = Codec {
    spec: tables::ENDPOINT_IF,
    about: "slot by the host-side device",
    key_help: "IFINDEX or device name",
    example: "12",
    parse: slots::device,
    text: u32::to_string,
    key: slots::device_key,
    value: slots::slot_key,
    used: |_| true,
    find: exact,
};

pub(super) static ENDPOINT_ADDR: Codec<Addr, u32> = Codec {
    spec: tables::ENDPOINT_ADDR,
    about: "slot by address",
    key_help: "ADDRESS",
    example: "10.1.0.5",
    parse: |text, _| parse::address(text),
    text: |addr| ip(*addr).to_string(),
    key: |addr, _| Record::new().with("address", Cell::Address(*addr)),
    value: slots::slot_key,
    used: |_| true,
    find: exact,
};

#[cfg(test)]
mod tests {
    use super::super::testing::{context, json};
    use super::*;

    #[test]
    fn an_endpoint_is_shown_by_names() {
        let endpoint = Endpoint {
            ifindex: 12,
            flags: E_PRESENT | E_READY,
            v4: [10, 1, 0, 5],
            egress_rules: 3,
            mac: [2, 0, 0, 0, 0, 9],
            ..Endpoint::default()
        };
        assert_eq!(
            json(&value(&endpoint, &context())),
            r#"{"device":{"ifindex":12,"name":null},"v4":"10.1.0.5","v6":null,"mac":"02:00:00:00:00:09","flags":["present","ready"],"egress_rules":3,"ingress_rules":null}"#
        );
    }

    #[test]
    fn bytes_nobody_writes_are_shown_as_they_are() {
        let odd = Endpoint {
            ifindex: u32::MAX,
            flags: u32::MAX,
            v4: [255; 4],
            egress_rules: u32::MAX,
            v6: [255; 16],
            ingress_rules: u32::MAX,
            mac: [255; 6],
            zero: [255; 2],
        };
        assert_eq!(
            value(&odd, &context()).to_string(),
            "device=#4294967295 v4=255.255.255.255 v6=ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff mac=ff:ff:ff:ff:ff:ff \
             flags=present,ready,slow_path,0xfffffff8 egress_rules=4294967295 ingress_rules=4294967295"
        );
    }

    #[test]
    fn keys_come_back_from_their_text() {
        for addr in [Addr::v4([10, 1, 0, 5]), Addr::NONE, Addr([255; 16]), Addr::v4([0; 4])] {
            assert_eq!((ENDPOINT_ADDR.parse)(&(ENDPOINT_ADDR.text)(&addr), &context()), Ok(addr));
        }
        for ifindex in [0, 12, u32::MAX] {
            assert_eq!((ENDPOINT_IF.parse)(&(ENDPOINT_IF.text)(&ifindex), &context()), Ok(ifindex));
        }
        let why = (ENDPOINT_IF.parse)("eth0", &context()).unwrap_err();
        assert!(why.contains("another network namespace"), "{why}");
    }
}
