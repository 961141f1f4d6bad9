//! IP protocols by name.

use std::borrow::Cow;

use super::Cell;

/// ICMP (RFC 792).
pub const ICMP: u8 = 1;
/// ICMPv6 (RFC 4443).
pub const ICMPV6: u8 = 58;

/// Names as `/etc/protocols` has them, of what pods send.
const NAMES: [(u8, &str); 12] = [
    (ICMP, "icmp"),
    (2, "igmp"),
    (4, "ipip"),
    (6, "tcp"),
    (17, "udp"),
    (33, "dccp"),
    (41, "ipv6"),
    (47, "gre"),
    (50, "esp"),
    (51, "ah"),
    (ICMPV6, "icmpv6"),
    (132, "sctp"),
];

/// The name of a protocol, or its number.
#[must_use]
pub fn text(proto: u8) -> Cow<'static, str> {
    let name = NAMES.iter().find(|(number, _)| *number == proto).map(|(_, name)| *name);
    name.map_or_else(|| proto.to_string().into(), Cow::Borrowed)
}

/// As [`text`]. JSON: a string also where it is a number.
#[must_use]
pub fn cell(proto: u8) -> Cell {
    Cell::Text(text(proto))
}

/// A protocol by name or number.
///
/// # Errors
/// Neither; the message says what there is.
pub fn parse(text: &str) -> Result<u8, String> {
    let name = NAMES.iter().find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(number, _)| *number);
    name.or_else(|| text.parse().ok()).ok_or_else(|| {
        let names: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
        format!("`{text}` is no protocol: a number up to 255, or one of {}", names.join(", "))
    })
}

/// Whether the "ports" of a dropped packet are the ICMP type and code.
#[must_use]
pub const fn is_icmp(proto: u8) -> bool {
    matches!(proto, ICMP | ICMPV6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_comes_back_from_its_text() {
        for proto in 0..=u8::MAX {
            assert_eq!(parse(&text(proto)), Ok(proto));
        }
        assert_eq!(parse("TCP"), Ok(6));
        assert!(parse("256").is_err());
        assert!(parse("").is_err());
    }
}
