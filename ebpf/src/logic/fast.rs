//! The short way: a packet of a known flow that changes nothing about it. All else goes to a slow program.
//!
//! Invariant: nothing is decided here. Whatever is not plainly a packet of a living, current flow is left to the slow program, which sees
//! the packet as it came.

use super::flow::{life, promote, timeout};
use super::packet::ETH_LEN;
use super::parse::{FIN, ICMP, ICMPV6, Parsed, Part, RST, SYN, TCP, UDP};
use super::tables::{Entry, Table, Tables};
use super::{FlowKey, Packet, Verdict, forward};
use crate::layout::flow::{F_OPENER, F_REPLIED, NO_MTU, T_ESTABLISHED};
use crate::layout::{Config, FlowEntry, FlowKey4, FlowKey6};

/// A family whose usual headers are read without a loop.
pub trait Quick: FlowKey {
    /// The headers of a whole packet without options or extension headers, all of them in the linear part; else `None`. Always at
    /// [`ETH_LEN`].
    fn quick<P: Packet>(packet: &P) -> Option<Parsed<Self>>;
}

const L4_V4: usize = ETH_LEN + 20;
const L4_V6: usize = ETH_LEN + 40;

impl Quick for FlowKey4 {
    #[inline(always)]
    fn quick<P: Packet>(packet: &P) -> Option<Parsed<Self>> {
        let [version, _, t0, t1]: [u8; 4] = packet.read(ETH_LEN)?;
        let [f0, f1, hops, proto]: [u8; 4] = packet.read(ETH_LEN + 6)?;
        let length = packet.length().wrapping_sub(ETH_LEN as u32);
        let total = u32::from(u16::from_be_bytes([t0, t1]));
        // No options; no fragment (DF may be set).
        if version != 0x45 || f0 & 0x3f != 0 || f1 != 0 || total > length {
            return None;
        }
        let src = packet.read(ETH_LEN + 12)?;
        let dst = packet.read(ETH_LEN + 16)?;
        let front = front(packet, proto, L4_V4);
        if front.len == 0 {
            return None;
        }
        let Front { sport, dport, tcp, len } = front;
        let key = Self { src, dst, sport, dport, proto, zone: 0, zero: [0; 2] };
        Some(parsed(key, L4_V4, length, 20 + len, tcp, hops))
    }
}

impl Quick for FlowKey6 {
    #[inline(always)]
    fn quick<P: Packet>(packet: &P) -> Option<Parsed<Self>> {
        let [version]: [u8; 1] = packet.read(ETH_LEN)?;
        let [p0, p1, proto, hops]: [u8; 4] = packet.read(ETH_LEN + 4)?;
        let length = packet.length().wrapping_sub(ETH_LEN as u32);
        let payload = u32::from(u16::from_be_bytes([p0, p1]));
        if version >> 4 != 6 || payload + 40 > length {
            return None;
        }
        let src = packet.read(ETH_LEN + 8)?;
        let dst = packet.read(ETH_LEN + 24)?;
        let front = front(packet, proto, L4_V6);
        if front.len == 0 {
            return None;
        }
        let Front { sport, dport, tcp, len } = front;
        let key = Self { src, dst, sport, dport, proto, zone: 0, zero: [0; 2] };
        Some(parsed(key, L4_V6, length, 40 + len, tcp, hops))
    }
}

#[inline(always)]
const fn parsed<K>(key: K, l4: usize, length: u32, headers: u32, tcp: u8, hops: u8) -> Parsed<K> {
    Parsed { key, l3: ETH_LEN, l4, length, headers, tcp, icmp_type: 0, hops, part: Part::Whole, id: [0; 4] }
}

/// What the front of a transport header tells. No `Option`: on the way where there is nothing, its parts would be registers that nobody
/// wrote, and 5.10 refuses to load them back from the stack.
struct Front {
    sport: [u8; 2],
    dport: [u8; 2],
    tcp: u8,
    /// Bytes of the header; 0: not for the short way.
    len: u32,
}

const NOTHING: Front = Front { sport: [0; 2], dport: [0; 2], tcp: 0, len: 0 };

/// Ports, TCP flags and header length. ICMP queries have their identifier for both ports; all other ICMP goes the slow way.
#[inline(always)]
fn front<P: Packet>(packet: &P, proto: u8, l4: usize) -> Front {
    match proto {
        TCP => {
            let Some([s0, s1, d0, d1]) = packet.read::<4>(l4) else { return NOTHING };
            // As far as the shortest header goes.
            let Some([offset, flags, _, _, _, _, _, _]) = packet.read::<8>(l4 + 12) else { return NOTHING };
            let len = if offset < 0x50 { 0 } else { u32::from(offset >> 4) * 4 };
            Front { sport: [s0, s1], dport: [d0, d1], tcp: flags, len }
        }
        UDP => match packet.read::<8>(l4) {
            Some([s0, s1, d0, d1, ..]) => Front { sport: [s0, s1], dport: [d0, d1], tcp: 0, len: 8 },
            None => NOTHING,
        },
        ICMP | ICMPV6 => {
            let Some([kind, _, _, _, i0, i1, _, _]) = packet.read::<8>(l4) else { return NOTHING };
            let echo = if proto == ICMP { matches!(kind, 0 | 8) } else { matches!(kind, 128 | 129) };
            Front { sport: [i0, i1], dport: [i0, i1], tcp: 0, len: if echo { 8 } else { 0 } }
        }
        _ => NOTHING,
    }
}

/// Sends a packet of a known flow on; `None` leaves it to the slow program.
#[inline(always)]
pub fn known<K: Quick, P: Packet, T: Tables>(
    packet: &mut P,
    tables: &T,
    config: &Config,
    hook: u32,
    now: u32,
) -> Option<Verdict> {
    let parsed = K::quick(packet)?;
    let entry = hit(packet, tables, config, &parsed, hook, now)?;
    Some(forward::forward(packet, tables, config, &parsed, entry, false))
}

/// The entry of a packet that may just be sent on as it says: counted, times kept. `hook` is where the packet is.
#[inline(always)]
pub fn hit<K: FlowKey, P: Packet, T: Tables>(
    packet: &P,
    tables: &T,
    config: &Config,
    parsed: &Parsed<K>,
    hook: u32,
    now: u32,
) -> Option<T::Flow> {
    let proto = parsed.key.proto();
    if parsed.tcp & (SYN | FIN | RST) != 0 {
        return None;
    }
    let entry = match parsed.key.find(tables, Table::Established) {
        Some(entry) => entry,
        None => {
            let entry = parsed.key.find(tables, Table::Probation)?;
            if entry.get(|e| changes(e, proto, now, config.ticks_per_second)) {
                return None;
            }
            entry
        }
    };
    if entry.get(|e| e.hook) != hook || !life::is_current(tables, entry) {
        return None;
    }
    let last = entry.get(|e| e.last_seen);
    if last != now {
        let seconds = entry.get(|e| timeout::seconds(proto, e.flags, e.tcp));
        if timeout::expired(now, last, seconds, config.ticks_per_second) {
            return None;
        }
    }
    let mtu = entry.get(|e| e.mtu);
    if mtu != NO_MTU && parsed.length > u32::from(mtu) && parsed.wire_length(packet) > u32::from(mtu) {
        return None;
    }
    if forward::hops_used_up(parsed, entry) {
        return None;
    }
    life::touch(entry, parsed.length, now);
    Some(entry)
}

/// Whether a packet changes the state of a flow on probation.
#[inline(always)]
fn changes(entry: &FlowEntry, proto: u8, now: u32, ticks_per_second: u32) -> bool {
    // First packet of the opposite direction.
    if entry.flags & (F_OPENER | F_REPLIED) == 0 {
        return true;
    }
    if proto == TCP && entry.flags & (F_OPENER | F_REPLIED) == F_OPENER | F_REPLIED && entry.tcp & T_ESTABLISHED == 0 {
        return true;
    }
    promote::is_due(entry, proto, now, ticks_per_second)
}
