//! Drops: what was dropped lately, by reason and flow.

use osmia_ebpf::layout::{DropKey, DropReason, DropRow};

use super::{
    Cell, Context, Record,
    codec::{Codec, exact},
    number, parse, protocol,
};
use crate::tables;

/// The name of a stored reason.
#[must_use]
pub fn reason_cell(reason: u8) -> Cell {
    Cell::name_or(DropReason::from_byte(reason).map(DropReason::name), reason)
}

/// A reason by name or number.
pub(super) fn parse_reason(text: &str) -> Result<u8, String> {
    let named = DropReason::ALL.into_iter().find(|reason| reason.name().eq_ignore_ascii_case(text));
    match named {
        Some(reason) => Ok(reason as u8),
        None => number(text).map_err(|_| format!("`{text}` is no drop reason (`osmia drop` lists them)")),
    }
}

/// The fields of a key. The "ports" of ICMP are its type and code.
#[must_use]
pub fn key(key: &DropKey, context: &Context) -> Record {
    let icmp = protocol::is_icmp(key.proto);
    let port = |port| if icmp { Cell::Absent } else { Cell::nonzero(u16::from_be_bytes(port)) };
    let [icmp_type, icmp_code] = key.dport.map(|b| if icmp { Cell::Number(b.into()) } else { Cell::Absent });
    Record::new()
        .with("reason", reason_cell(key.reason))
        .with("proto", protocol::cell(key.proto))
        .with("src", Cell::address(key.src))
        .with("sport", port(key.sport))
        .with("dst", Cell::address(key.dst))
        .with("dport", port(key.dport))
        .with("icmp_type", icmp_type)
        .with("icmp_code", icmp_code)
        .with("device", context.device(key.ifindex))
        .with("cookie", Cell::nonzero(key.cookie))
}

/// The fields of a row.
#[must_use]
pub fn value(row: &DropRow, context: &Context) -> Record {
    Record::new()
        .with("packets", Cell::Number(row.packets))
        .with("first", context.age_cell(row.first))
        .with("last", context.age_cell(row.last))
}

fn text(key: &DropKey) -> String {
    let reason = DropReason::from_byte(key.reason).map_or_else(|| key.reason.to_string(), |r| r.name().to_owned());
    let [src, dst] = [(key.src, key.sport), (key.dst, key.dport)].map(|(a, p)| parse::socket_text(a, p));
    let cookie = if key.cookie == 0 { String::new() } else { format!(" {}", key.cookie) };
    format!("{reason} {} {src} {dst} {}{cookie}", protocol::text(key.proto), key.ifindex)
}

fn parse(text: &str, context: &Context) -> Result<DropKey, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (reason, proto, src, dst, device, cookie) = match words[..] {
        [reason, proto, src, dst, device] => (reason, proto, src, dst, device, 0),
        [reason, proto, src, dst, device, cookie] => (reason, proto, src, dst, device, number(cookie)?),
        _ => return Err(format!("`{text}` is not five or six words")),
    };
    let ((src, sport), (dst, dport)) = (parse::socket(src)?, parse::socket(dst)?);
    let (reason, proto) = (parse_reason(reason)?, protocol::parse(proto)?);
    Ok(DropKey { src, dst, sport, dport, proto, reason, zero: [0; 2], ifindex: context.ifindex(device)?, cookie })
}

pub(super) static DROP_ROWS: Codec<DropKey, DropRow> = Codec {
    spec: tables::DROP_ROWS,
    about: "what was dropped lately, by reason and flow",
    key_help: "REASON PROTOCOL SOURCE:PORT DESTINATION:PORT IFINDEX [COOKIE] (the last port of ICMP is type * 256 + code)",
    example: "POLICY_INGRESS tcp 10.0.0.1:4000 10.0.0.2:80 12",
    parse,
    text,
    key,
    value,
    used: |_| true,
    find: exact,
};

#[cfg(test)]
mod tests {
    use osmia_ebpf::layout::Addr;

    use super::super::testing::{context, json};
    use super::*;

    fn tcp() -> DropKey {
        DropKey {
            src: Addr::v4([10, 0, 0, 1]),
            dst: Addr::v4([10, 0, 0, 2]),
            sport: 4000_u16.to_be_bytes(),
            dport: 80_u16.to_be_bytes(),
            proto: 6,
            reason: DropReason::PolicyIngress as u8,
            zero: [0; 2],
            ifindex: 12,
            cookie: 0,
        }
    }

    #[test]
    fn a_drop_is_shown_by_names() {
        let of = |key| super::key(&key, &context()).to_string();
        assert_eq!(
            of(tcp()),
            "reason=POLICY_INGRESS proto=tcp src=10.0.0.1 sport=4000 dst=10.0.0.2 dport=80 device=#12"
        );
        let icmp = DropKey { proto: 1, sport: [0; 2], dport: [8, 0], ..tcp() };
        assert_eq!(
            of(icmp),
            "reason=POLICY_INGRESS proto=icmp src=10.0.0.1 dst=10.0.0.2 icmp_type=8 icmp_code=0 device=#12"
        );
        let row = DropRow { packets: 3, first: 0, last: 900 };
        assert_eq!(json(&value(&row, &context())), r#"{"packets":3,"first":16.0,"last":1.6}"#);
    }

    #[test]
    fn bytes_nobody_writes_are_shown_as_they_are() {
        for reason in [0, 35, 255] {
            let text = super::key(&DropKey { reason, ..tcp() }, &context()).to_string();
            assert!(text.starts_with(&format!("reason=unknown({reason}) ")), "{text}");
        }
    }

    #[test]
    fn keys_come_back_from_their_text() {
        let odd = DropKey {
            src: Addr([255; 16]),
            dst: Addr::NONE,
            sport: [255; 2],
            dport: [0, 1],
            proto: 255,
            reason: 200,
            zero: [0; 2],
            ifindex: u32::MAX,
            cookie: u32::MAX,
        };
        for key in [tcp(), odd] {
            assert_eq!(parse(&text(&key), &context()), Ok(key));
        }
        assert_eq!(parse(DROP_ROWS.example, &context()), Ok(tcp()));
        for reason in DropReason::ALL {
            assert_eq!(parse_reason(&reason.name().to_lowercase()), Ok(reason as u8));
        }
    }
}
