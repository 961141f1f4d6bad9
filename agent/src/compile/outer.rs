//! The outer header as the programs write it in front of an inner IP packet: IP, UDP, VXLAN, inner Ethernet.
//!
//! Lengths, checksum, UDP source port and inner EtherType are the program's; everything else stands here.

use std::net::IpAddr;

use osmia_maps::layout::node::{OUTER_V4_LEN, OUTER_V6_LEN};

/// Source MAC inside the tunnel. No device of ours holds it: the kernel's VXLAN receiver drops what comes from its own address.
pub const INNER_SOURCE: [u8; 6] = [0x02, 0x6f, 0x73, 0x6d, 0x00, 0x02];
/// Destination MAC inside the tunnel.
pub const INNER_DESTINATION: [u8; 6] = [0x02, 0x6f, 0x73, 0x6d, 0x00, 0x03];

/// Hops between nodes.
const TTL: u8 = 64;
const UDP: u8 = 17;
/// IPv4 flags: do not fragment. A cut outer packet would cost more than the packet too big it saves.
const DF: [u8; 2] = [0x40, 0];
/// VXLAN flags: the network identifier is valid (RFC 7348).
const VNI_VALID: u8 = 0x08;

/// Bytes the tunnel adds in front of an inner IP packet.
pub(super) fn overhead(v6: bool) -> u32 {
    (if v6 { OUTER_V6_LEN } else { OUTER_V4_LEN }) as u32
}

/// The template for packets from `source` to `destination`, both of one family; `None` if they are not.
pub(super) fn template(source: IpAddr, destination: IpAddr, port: u16, vni: u32) -> Option<[u8; 72]> {
    let mut header = Vec::with_capacity(72);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            header.extend([0x45, 0, 0, 0, 0, 0]);
            header.extend(DF);
            header.extend([TTL, UDP, 0, 0]);
            header.extend(source.octets());
            header.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            header.extend([0x60, 0, 0, 0, 0, 0, UDP, TTL]);
            header.extend(source.octets());
            header.extend(destination.octets());
        }
        _ => return None,
    }
    header.extend([0, 0]);
    header.extend(port.to_be_bytes());
    // Length; checksum 0: allowed for tunnels over IPv6 too (RFC 6935).
    header.extend([0; 4]);
    let [_, vni @ ..] = vni.to_be_bytes();
    header.extend([VNI_VALID, 0, 0, 0]);
    header.extend(vni);
    header.push(0);
    header.extend(INNER_DESTINATION);
    header.extend(INNER_SOURCE);
    header.resize(72, 0);
    header.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_is_20_8_8_14_bytes() {
        let t = template("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap(), 4789, 0x01_02_03).unwrap();
        assert_eq!(t[..20], [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        assert_eq!(t[20..28], [0, 0, 0x12, 0xb5, 0, 0, 0, 0]);
        assert_eq!(t[28..36], [8, 0, 0, 0, 1, 2, 3, 0]);
        assert_eq!(t[36..48], [2, 0x6f, 0x73, 0x6d, 0, 3, 2, 0x6f, 0x73, 0x6d, 0, 2]);
        assert_eq!(t[48..], [0; 24]);
    }

    #[test]
    fn v6_is_40_8_8_14_bytes() {
        let t = template("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap(), 4789, 1).unwrap();
        assert_eq!(t[..8], [0x60, 0, 0, 0, 0, 0, 17, 64]);
        assert_eq!((t[23], t[39]), (1, 2));
        assert_eq!(t[40..48], [0, 0, 0x12, 0xb5, 0, 0, 0, 0]);
        assert_eq!(t[48..56], [8, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(t[68..], [0; 4]);
    }

    #[test]
    fn families_do_not_mix() {
        assert_eq!(template("192.0.2.1".parse().unwrap(), "2001:db8::2".parse().unwrap(), 4789, 1), None);
    }
}
