//! What a receiver proves of a packet before it takes it.

/// Panics where a length or checksum of an Ethernet packet, or of one that an ICMP error quotes whole, is wrong.
pub(crate) fn takes(frame: &[u8]) {
    ip(&frame[14..], true);
}

/// The IPv4 header alone: of a fragment.
pub(crate) fn header(frame: &[u8]) {
    assert_eq!(sum(&[&frame[14..34]]), 0, "IPv4 header checksum of {frame:02x?}");
}

fn ip(b: &[u8], whole: bool) {
    let v6 = b[0] >> 4 == 6;
    let header = if v6 { 40 } else { usize::from(b[0] & 0xf) * 4 };
    let (length, proto, addresses) = if v6 {
        (usize::from(u16::from_be_bytes([b[4], b[5]])) + 40, b[6], &b[8..40])
    } else {
        assert_eq!(sum(&[&b[..header]]), 0, "IPv4 header checksum of {b:02x?}");
        (usize::from(u16::from_be_bytes([b[2], b[3]])), b[9], &b[12..20])
    };
    assert!(!whole || length == b.len(), "{length} bytes by its header, {} in all", b.len());
    if length == b.len() {
        transport(addresses, proto, &b[header..]);
    }
}

fn transport(addresses: &[u8], proto: u8, b: &[u8]) {
    let length = (b.len() as u32).to_be_bytes();
    match proto {
        17 if b[6..8] == [0, 0] => {}
        6 | 17 | 58 => assert_eq!(sum(&[addresses, &length, &[0, 0, 0, proto], b]), 0, "checksum, protocol {proto}"),
        1 => assert_eq!(sum(&[b]), 0, "ICMP checksum of {b:02x?}"),
        _ => {}
    }
    if (proto == 1 && matches!(b[0], 3 | 11)) || (proto == 58 && b[0] < 128) {
        ip(&b[8..], false);
    }
}

/// RFC 1071; 0 for bytes that hold their own checksum.
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|p| p.chunks(2));
    let mut sum: u32 = words.map(|w| u32::from(u16::from_be_bytes([w[0], w.get(1).copied().unwrap_or(0)]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
