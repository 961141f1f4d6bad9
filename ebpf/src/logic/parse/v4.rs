//! IPv4 with options (RFC 791).

use super::transport::{self, Transport};
use super::{Parsed, Part};
use crate::layout::{DropReason, FlowKey4};
use crate::logic::Packet;

/// Fragment offset bits of the flags-and-offset field.
const OFFSET: u16 = 0x1fff;
/// "More fragments" of the same field.
const MORE: u16 = 0x2000;

#[inline(always)]
pub(super) fn parse<P: Packet>(packet: &mut P, l3: usize) -> Result<Parsed<FlowKey4>, DropReason> {
    let short = DropReason::Malformed;
    packet.pull(l3 as u32 + 20).ok_or(short)?;
    let [version, _, t0, t1, i0, i1, f0, f1] = packet.read(l3).ok_or(short)?;
    let [hops, proto] = packet.read(l3 + 8).ok_or(short)?;
    let src = packet.read(l3 + 12).ok_or(short)?;
    let dst = packet.read(l3 + 16).ok_or(short)?;

    let header = usize::from(version & 0x0f) * 4;
    let total = u32::from(u16::from_be_bytes([t0, t1]));
    let length = packet.length().wrapping_sub(l3 as u32);
    if version >> 4 != 4 || header < 20 {
        return Err(short);
    }
    let fragment = u16::from_be_bytes([f0, f1]);
    let part = if fragment & OFFSET != 0 {
        Part::Later
    } else if fragment & MORE != 0 {
        Part::First
    } else {
        Part::Whole
    };
    let l4 = l3 + header;
    let transport = if part == Part::Later { Transport::NONE } else { transport::parse(packet, proto, l4)? };
    let headers = header as u32 + transport.len;
    // A GSO packet may be longer than the field can say.
    if (total < headers || total > length) && packet.gso_size() == 0 {
        return Err(short);
    }
    let key = FlowKey4 { src, dst, sport: transport.sport, dport: transport.dport, proto, zone: 0, zero: [0; 2] };
    Ok(Parsed {
        key,
        l3,
        l4,
        length,
        headers,
        tcp: transport.tcp,
        icmp_type: transport.icmp_type,
        hops,
        part,
        id: [i0, i1, 0, 0],
    })
}
