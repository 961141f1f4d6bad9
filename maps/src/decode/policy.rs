//! Classes of addresses and the verdicts on them.

use osmia_ebpf::layout::{
    Addr, Asked, RouteKey, VerdictKey, VerdictRow,
    policy::{CLASS_BITS, LOOSE, PORT_BITS, PROTO_BITS, V_ALLOW, narrower},
};

use super::{Cell, Context, Prefix, Record, codec::Codec, codec::exact, ip, number, parse, protocol, route};
use crate::tables;

fn class(class: &u32, _: &Context) -> Record {
    Record::new().with("class", Cell::Number(u64::from(*class)))
}

pub(super) static PEERS: Codec<Addr, u32> = Codec {
    spec: tables::PEERS,
    about: "class of an address that is another one than its range",
    key_help: "ADDRESS",
    example: "10.1.0.5",
    parse: |text, _| parse::address(text),
    text: |addr| ip(*addr).to_string(),
    key: |addr, _| Record::new().with("address", Cell::Address(*addr)),
    value: class,
    used: |_| true,
    find: exact,
};

pub(super) static PEER_BLOCKS: Codec<RouteKey, u32> = Codec {
    spec: tables::PEER_BLOCKS,
    about: "class of a range of addresses: the longest prefix wins",
    key_help: "ADDRESS or PREFIX; gives the longest prefix that covers it",
    example: "10.1.0.5",
    parse: |text, _| {
        let Prefix { addr, bits } = text.parse()?;
        Ok(RouteKey { bits, addr: addr.0 })
    },
    text: |key| route::prefix(key).to_string(),
    key: |key, _| Record::new().with("prefix", Cell::Prefix(Addr(key.addr), key.bits)),
    value: class,
    used: |_| true,
    find: route::longest,
};

/// The ports of a row; `None` where it speaks of no port.
fn ports(key: &VerdictKey) -> Option<(u16, u16)> {
    let open = PORT_BITS.checked_sub(key.bits).filter(|open| *open < 16)?;
    let first = u16::from_be_bytes(key.asked.port);
    Some((first, first | (1_u16 << open).wrapping_sub(1)))
}

/// A key as `map get verdicts` takes it.
#[must_use]
pub fn text(key: &VerdictKey) -> String {
    let Asked { set, class, proto, .. } = key.asked;
    if key.bits <= CLASS_BITS {
        return format!("{set} {class}");
    }
    let proto = protocol::text(proto);
    match ports(key) {
        None => format!("{set} {class} {proto}"),
        Some((first, last)) if first == last => format!("{set} {class} {proto} {first}"),
        Some((first, last)) => format!("{set} {class} {proto} {first}-{last}"),
    }
}

fn scope(text: &str, asked: &mut Asked) -> Result<u32, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (number(first)?, number(last)?);
    let count = u32::from(last).checked_sub(u32::from(first)).map(|beyond| beyond + 1);
    let whole = count.filter(|count| count.is_power_of_two() && u32::from(first) % count == 0);
    let count = whole.ok_or_else(|| format!("`{text}` is no range that is one prefix of ports"))?;
    asked.port = first.to_be_bytes();
    Ok(PORT_BITS - count.trailing_zeros())
}

fn parse(text: &str) -> Result<VerdictKey, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (&[set, class, ref rest @ ..], true) = (words.as_slice(), words.len() <= 4) else {
        return Err(format!("`{text}` is not two to four words"));
    };
    let mut asked = Asked { set: number(set)?, class: number(class)?, ..Asked::default() };
    let mut bits = CLASS_BITS;
    if let Some(proto) = rest.first() {
        asked.proto = protocol::parse(proto)?;
        bits = PROTO_BITS;
    }
    if let Some(ports) = rest.get(1) {
        bits = scope(ports, &mut asked)?;
    }
    Ok(VerdictKey { bits, asked })
}

/// The fields of a key.
#[must_use]
pub fn key(key: &VerdictKey) -> Record {
    let narrow = key.bits > CLASS_BITS;
    let ports = match ports(key) {
        Some((first, last)) if first == last => Cell::Text(first.to_string().into()),
        Some((first, last)) => Cell::Text(format!("{first}-{last}").into()),
        None => Cell::Absent,
    };
    Record::new()
        .with("set", Cell::Number(u64::from(key.asked.set)))
        .with("class", Cell::Number(u64::from(key.asked.class)))
        .with("proto", if narrow { protocol::cell(key.asked.proto) } else { Cell::Absent })
        .with("ports", ports)
}

/// The fields of a row.
#[must_use]
pub fn value(row: &VerdictRow) -> Record {
    Record::new()
        .with("verdict", Cell::name(if row.flags & V_ALLOW != 0 { "allow" } else { "deny" }))
        .with("cookie", Cell::nonzero(row.cookie))
        .with("narrower", list(narrower_bits(row).map(|bits| bits.to_string())))
        .with("fragments", list(loose(row).map(|(proto, cookie)| format!("{}:{cookie}", protocol::text(proto)))))
}

/// How many bits of the port the rows have that are asked before this one, the most first.
fn narrower_bits(row: &VerdictRow) -> impl Iterator<Item = u32> {
    (PROTO_BITS..=PORT_BITS).rev().filter(|bits| row.flags & narrower(*bits) != 0).map(|bits| bits - PROTO_BITS)
}

/// Protocols of which fragments without a first one pass, and by which cookie.
fn loose(row: &VerdictRow) -> impl Iterator<Item = (u8, u32)> {
    LOOSE.into_iter().zip(row.loose).filter(|(_, cookie)| *cookie != 0)
}

fn list(texts: impl Iterator<Item = String>) -> Cell {
    match texts.collect::<Vec<_>>().join(",") {
        none if none.is_empty() => Cell::Absent,
        texts => Cell::Text(texts.into()),
    }
}

pub(super) static VERDICTS: Codec<VerdictKey, VerdictRow> = Codec {
    spec: tables::VERDICTS,
    about: "what a rule set says of a class: the narrowest row decides",
    key_help: "SET CLASS [PROTOCOL [PORTS]]; PORTS: a port, or FIRST-LAST as the row has it",
    example: "3 7 tcp 80",
    parse: |text, _| parse(text),
    text,
    key: |of, _| key(of),
    value: |row, _| value(row),
    used: |_| true,
    find: exact,
};

#[cfg(test)]
mod tests {
    use super::super::testing::context;
    use super::*;

    #[test]
    fn keys_come_back_from_their_text() {
        for key in ["3 0", "3 7", "3 7 tcp 80", "3 7 udp 0-65535", "3 7 sctp 65535", "3 7 tcp 8-15"] {
            let parsed = (VERDICTS.parse)(key, &context()).unwrap();
            let whole = key.replace(" 0-65535", "");
            assert_eq!((VERDICTS.text)(&parsed), whole);
        }
        for wrong in ["", "a", "3", "3 7 tcp 8-16", "3 7 tcp 9-10", "3 7 tcp 80 81", "3 7 none 80"] {
            assert!((VERDICTS.parse)(wrong, &context()).is_err(), "{wrong}");
        }
        for key in ["10.0.0.0/8", "fd00::/64"] {
            assert_eq!((PEER_BLOCKS.text)(&(PEER_BLOCKS.parse)(key, &context()).unwrap()), key);
        }
    }

    #[test]
    fn a_verdict_is_shown_by_names() {
        let asked = Asked { set: 3, class: 7, part: 0, proto: 6, port: 8_u16.to_be_bytes() };
        let key = (VERDICTS.key)(&VerdictKey { bits: 93, asked }, &context());
        assert_eq!(key.to_string(), "set=3 class=7 proto=tcp ports=8-15");
        let row = VerdictRow { flags: V_ALLOW, cookie: 9, ..VerdictRow::default() };
        assert_eq!((VERDICTS.value)(&row, &context()).to_string(), "verdict=allow cookie=9");
        let flags = narrower(PORT_BITS) | narrower(93) | narrower(PROTO_BITS);
        let head = (VERDICTS.value)(&VerdictRow { flags, cookie: 9, loose: [0, 11, 12] }, &context());
        assert_eq!(head.to_string(), "verdict=deny cookie=9 narrower=16,13,0 fragments=udp:11,sctp:12");
        // Bytes nobody writes.
        let odd = Asked { set: u32::MAX, class: u32::MAX, part: 255, proto: 255, port: [255; 2] };
        for bits in [0, 33, 70, 81, 97, u32::MAX] {
            let key = VerdictKey { bits, asked: odd };
            assert!(!(VERDICTS.text)(&key).is_empty() && !(VERDICTS.key)(&key, &context()).to_string().is_empty());
        }
    }
}
