//! The upper-layer header: ports, TCP flags, ICMP type and identifier.

use super::{ICMP, ICMPV6, SCTP, TCP, UDP, query};
use crate::layout::DropReason;
use crate::logic::Packet;

/// TCP flag: no more data from the sender.
pub const FIN: u8 = 0x01;
/// TCP flag: synchronise.
pub const SYN: u8 = 0x02;
/// TCP flag: reset.
pub const RST: u8 = 0x04;
/// TCP flag: the acknowledgment field counts.
pub const ACK: u8 = 0x10;

/// What the upper-layer header tells.
pub(super) struct Transport {
    pub(super) sport: [u8; 2],
    pub(super) dport: [u8; 2],
    pub(super) tcp: u8,
    pub(super) icmp_type: u8,
    /// Bytes of the header.
    pub(super) len: u32,
}

impl Transport {
    /// Of a protocol without ports, or of a later fragment.
    pub(super) const NONE: Self = Self { sport: [0; 2], dport: [0; 2], tcp: 0, icmp_type: 0, len: 0 };
}

/// Parses the header of `proto` at `l4`.
#[inline(always)]
pub(super) fn parse<P: Packet>(packet: &mut P, proto: u8, l4: usize) -> Result<Transport, DropReason> {
    let need = match proto {
        TCP => 20,
        SCTP => 12,
        UDP | ICMP | ICMPV6 => 8,
        _ => return Ok(Transport::NONE),
    };
    let short = DropReason::Malformed;
    packet.pull(l4 as u32 + need).ok_or(short)?;
    let first: [u8; 8] = packet.read(l4).ok_or(short)?;
    let [s0, s1, d0, d1, i0, i1, ..] = first;
    let mut transport = Transport { sport: [s0, s1], dport: [d0, d1], tcp: 0, icmp_type: 0, len: need };
    match proto {
        TCP => {
            let [offset, flags] = packet.read(l4 + 12).ok_or(short)?;
            transport.tcp = flags;
            transport.len = u32::from(offset >> 4) * 4;
            if transport.len < need {
                return Err(short);
            }
        }
        ICMP | ICMPV6 => {
            transport.icmp_type = s0;
            (transport.sport, transport.dport) = query::ports(proto, s0, [i0, i1]).unwrap_or_default();
        }
        _ => {}
    }
    Ok(transport)
}
