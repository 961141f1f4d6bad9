//! IPv6 with extension headers (RFC 8200): at most 8 of them, at most 256 bytes.

use super::transport::{self, Transport};
use super::{Parsed, Part};
use crate::layout::{DropReason, FlowKey6};
use crate::logic::Packet;

/// Extension headers that are walked over.
const MAX_HEADERS: u32 = 8;
/// Bytes of extension headers that are walked over.
const MAX_BYTES: usize = 256;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

#[inline(always)]
pub(super) fn parse<P: Packet>(packet: &mut P, l3: usize) -> Result<Parsed<FlowKey6>, DropReason> {
    let short = DropReason::Malformed;
    packet.pull(l3 as u32 + 40).ok_or(short)?;
    let [version, _, _, _, p0, p1, next, hops] = packet.read(l3).ok_or(short)?;
    let src = packet.read(l3 + 8).ok_or(short)?;
    let dst = packet.read(l3 + 24).ok_or(short)?;
    if is_ipv4(&src) || is_ipv4(&dst) {
        return Err(DropReason::Martian);
    }

    let length = packet.length().wrapping_sub(l3 as u32);
    let payload = u32::from(u16::from_be_bytes([p0, p1]));
    if version >> 4 != 6 || payload + 40 > length {
        return Err(short);
    }

    let mut proto = next;
    let mut part = Part::Whole;
    let mut id = [0; 4];
    let mut extension = 0_usize;
    let mut done = false;
    for _ in 0..=MAX_HEADERS {
        if !matches!(proto, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION) || part == Part::Later {
            done = true;
            break;
        }
        let at = l3 + 40 + extension;
        packet.pull(at as u32 + 8).ok_or(short)?;
        let [following, units, o0, o1, rest @ ..]: [u8; 8] = packet.read(at).ok_or(short)?;
        extension += match proto {
            FRAGMENT => {
                let field = u16::from_be_bytes([o0, o1]);
                id = rest;
                if field & 0xfff8 != 0 {
                    part = Part::Later;
                } else if field & 1 != 0 {
                    part = Part::First;
                }
                8
            }
            // RFC 4302: 4-byte units, minus 2.
            AUTHENTICATION => (usize::from(units) + 2) * 4,
            _ => (usize::from(units) + 1) * 8,
        };
        if extension > MAX_BYTES {
            return Err(DropReason::ExtHdr);
        }
        proto = following;
    }
    if !done {
        return Err(DropReason::ExtHdr);
    }
    let l4 = l3 + 40 + extension;
    let transport = if part == Part::Later { Transport::NONE } else { transport::parse(packet, proto, l4)? };
    let behind = extension as u32 + transport.len;
    // A GSO packet longer than the field can say has 0 there.
    if payload < behind && packet.gso_size() == 0 {
        return Err(short);
    }
    let key = FlowKey6 { src, dst, sport: transport.sport, dport: transport.dport, proto, zone: 0, zero: [0; 2] };
    Ok(Parsed {
        key,
        l3,
        l4,
        length,
        headers: 40 + behind,
        tcp: transport.tcp,
        icmp_type: transport.icmp_type,
        hops,
        part,
        id,
    })
}

/// An IPv4 address in IPv6's form (RFC 4291 2.5.5.2): none that a packet has. In the tables IPv4 lies there, so that it would be taken for
/// one of IPv4 by routes and policy.
#[inline(always)]
const fn is_ipv4(address: &[u8; 16]) -> bool {
    matches!(address, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..])
}
