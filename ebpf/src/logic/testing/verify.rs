//! What a receiver proves of a packet before it takes it.

use super::build::checksum;

/// Panics where a length or checksum of this Ethernet packet, or of one that an ICMP error quotes in whole, is wrong.
pub(crate) fn verify(frame: &[u8]) {
    ip(&frame[14..], true);
}

fn ip(b: &[u8], whole: bool) {
    match b[0] >> 4 {
        4 => {
            let header = usize::from(b[0] & 0xf) * 4;
            assert_eq!(checksum(&[&b[..header]]), 0, "IPv4 header checksum of {b:02x?}");
            let total = usize::from(u16::from_be_bytes([b[2], b[3]]));
            if whole {
                assert_eq!(total, b.len(), "IPv4 length");
            }
            let first_and_only = u16::from_be_bytes([b[6], b[7]]) & 0x3fff == 0;
            if total == b.len() && first_and_only {
                transport(&b[12..20], b[9], &b[header..]);
            }
        }
        6 => {
            let payload = usize::from(u16::from_be_bytes([b[4], b[5]]));
            if whole {
                assert_eq!(payload + 40, b.len(), "IPv6 length");
            }
            if payload + 40 == b.len() {
                transport(&b[8..40], b[6], &b[40..]);
            }
        }
        other => panic!("IP version {other}"),
    }
}

fn transport(addresses: &[u8], proto: u8, b: &[u8]) {
    let mut pseudo = addresses.to_vec();
    pseudo.extend([0, proto]);
    pseudo.extend((b.len() as u16).to_be_bytes());
    match proto {
        17 if b[6..8] == [0, 0] => {}
        6 | 17 | 58 => assert_eq!(checksum(&[&pseudo, b]), 0, "transport checksum, protocol {proto}, {b:02x?}"),
        1 => assert_eq!(checksum(&[b]), 0, "ICMP checksum of {b:02x?}"),
        _ => {}
    }
    let error = (proto == 1 && matches!(b[0], 3 | 4 | 5 | 11 | 12)) || (proto == 58 && b[0] < 128);
    if error {
        ip(&b[8..], false);
    }
}
