//! Datagrams in flight as fragments.

use osmia_ebpf::layout::{FragmentKey, FragmentRow};

use super::{
    Cell, Context, Record,
    codec::{Codec, exact},
    ip, number, parse, protocol,
};
use crate::tables;

/// The identification as a number: IPv4 has 16 bits, in the first two bytes.
fn id(key: &FragmentKey) -> u32 {
    let [a, b, ..] = key.id;
    if key.src.is_v4() { u32::from(u16::from_be_bytes([a, b])) } else { u32::from_be_bytes(key.id) }
}

fn key(key: &FragmentKey, _: &Context) -> Record {
    Record::new()
        .with("src", Cell::Address(key.src))
        .with("dst", Cell::Address(key.dst))
        .with("id", Cell::Number(u64::from(id(key))))
        .with("proto", if key.proto == 0 { Cell::Absent } else { protocol::cell(key.proto) })
}

fn text(key: &FragmentKey) -> String {
    let proto = if key.proto == 0 { String::new() } else { format!(" {}", protocol::text(key.proto)) };
    format!("{} {} {:#x}{proto}", ip(key.src), ip(key.dst), id(key))
}

fn parse(text: &str) -> Result<FragmentKey, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (src, dst, id, proto) = match words[..] {
        [src, dst, id] => (src, dst, id, 0),
        [src, dst, id, proto] => (src, dst, id, protocol::parse(proto)?),
        _ => return Err(format!("`{text}` is not three or four words")),
    };
    let (src, dst) = (parse::address(src)?, parse::address(dst)?);
    let id = match src.is_v4() {
        true => {
            let [a, b] = number::<u16>(id)?.to_be_bytes();
            [a, b, 0, 0]
        }
        false => number::<u32>(id)?.to_be_bytes(),
    };
    Ok(FragmentKey { src, dst, id, proto, zero: [0; 3] })
}

fn value(row: &FragmentRow, context: &Context) -> Record {
    Record::new()
        .with("upper", protocol::cell(row.proto))
        .with("sport", Cell::nonzero(u16::from_be_bytes(row.sport)))
        .with("dport", Cell::nonzero(u16::from_be_bytes(row.dport)))
        .with("age", context.age_cell(row.seen))
}

pub(super) static FRAGMENTS: Codec<FragmentKey, FragmentRow> = Codec {
    spec: tables::FRAGMENTS,
    about: "datagrams in flight as fragments: the ports their first one had",
    key_help: "SOURCE DESTINATION ID [PROTOCOL], the protocol for IPv4",
    example: "10.0.0.1 10.0.0.2 0x1f3a udp",
    parse: |text, _| parse(text),
    text,
    key,
    value,
    used: |_| true,
    find: exact,
};

#[cfg(test)]
mod tests {
    use osmia_ebpf::layout::Addr;

    use super::super::testing::context;
    use super::*;

    #[test]
    fn keys_come_back_from_their_text() {
        let v4 = FragmentKey {
            src: Addr::v4([10, 0, 0, 1]),
            dst: Addr::v4([10, 0, 0, 2]),
            id: [0x1f, 0x3a, 0, 0],
            proto: 17,
            zero: [0; 3],
        };
        assert_eq!(text(&v4), "10.0.0.1 10.0.0.2 0x1f3a udp");
        let v6 = FragmentKey { src: Addr([253; 16]), dst: Addr([254; 16]), id: [255; 4], proto: 0, ..v4 };
        for key in [v4, v6] {
            assert_eq!(parse(&text(&key)), Ok(key));
        }
        assert!(parse("10.0.0.1 10.0.0.2 0x10000 udp").is_err(), "IPv4 has 16 bits");
        assert!(parse("10.0.0.1 10.0.0.2").is_err());
        assert!(parse(FRAGMENTS.example).is_ok());
    }

    #[test]
    fn a_row_is_shown_by_names() {
        let row = FragmentRow { sport: [0, 53], dport: [0x10, 0], proto: 17, zero: [0; 3], seen: 900 };
        assert_eq!(value(&row, &context()).to_string(), "upper=udp sport=53 dport=4096 age=1.6s");
        let odd = FragmentRow { sport: [255; 2], dport: [255; 2], proto: 255, zero: [255; 3], seen: u32::MAX };
        // A tick of before the boot: 16 ms times 1001 ago.
        assert_eq!(value(&odd, &context()).to_string(), "upper=255 sport=65535 dport=65535 age=16.0s");
    }
}
