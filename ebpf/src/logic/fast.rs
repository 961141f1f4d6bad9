//! The short way: a packet of a known flow, with the state that it brings (a first answer, FIN, RST). All else goes to a slow program.
//!
//! Invariant: nothing is decided here. Whatever is not plainly a packet of a living, current flow is left to the slow program, which sees
//! the packet as it came.

use super::flow::life::{self, Found};
use super::flow::{promote, timeout};
use super::packet::{ETH_LEN, Window};
use super::parse::{FIN, ICMP, ICMPV6, Parsed, Part, RST, SYN, TCP, UDP, query};
use super::tables::{Entry, Table, Tables};
use super::{FlowKey, Packet, Verdict, encap, forward};
use crate::layout::flow::{HOOK_DOOR, NO_MTU};
use crate::layout::{Addr, FlowKey4, FlowKey6};

/// A family whose usual headers are read without a loop.
pub trait Quick: FlowKey + Default {
    /// A key in words of 8 bytes.
    type Words: Copy;

    /// The headers of a whole packet without options or extension headers, all of them in the linear part, at [`ETH_LEN`].
    fn look<P: Packet>(packet: &P) -> Look<Self::Words>;
}

/// What the short way sees of a packet. No `Option`: on the way where there is nothing, its parts would be registers that nobody wrote, and
/// 5.10 refuses to load them back from the stack.
#[derive(Clone, Copy)]
pub struct Look<W> {
    words: W,
    length: u32,
    l4: usize,
    /// Bytes of IP and transport header; 0: not for the short way.
    headers: u32,
    tcp: u8,
    hops: u8,
}

impl<W: Copy> Look<W> {
    #[inline(always)]
    const fn nothing(words: W) -> Self {
        Self { words, length: 0, l4: 0, headers: 0, tcp: 0, hops: 0 }
    }

    /// Whether the packet goes the short way.
    #[inline(always)]
    pub(super) const fn is_plain(&self) -> bool {
        self.headers != 0
    }

    /// The headers; the key stays zero until it is filled in.
    #[inline(always)]
    pub(super) fn parsed<K: Quick<Words = W>>(&self) -> Parsed<K> {
        let Self { length, l4, headers, tcp, hops, .. } = *self;
        Parsed {
            key: K::default(),
            l3: ETH_LEN,
            l4,
            length,
            headers,
            id: [0; 4],
            tcp,
            icmp_type: 0,
            hops,
            part: Part::Whole,
        }
    }

    /// The key's words.
    #[inline(always)]
    pub(super) const fn words(&self) -> W {
        self.words
    }
}

const L4_V4: usize = ETH_LEN + 20;
const L4_V6: usize = ETH_LEN + 40;

impl Quick for FlowKey4 {
    type Words = [u64; 2];

    #[inline(always)]
    fn look<P: Packet>(packet: &P) -> Look<[u64; 2]> {
        let nothing = Look::nothing([0; 2]);
        // The IP header and the front of the transport header: one comparison with the packet's end.
        let Some(window) = packet.window::<28>(ETH_LEN) else { return nothing };
        let [version, _, t0, t1] = window.get::<0, 4>();
        let [f0, f1, hops, proto] = window.get::<6, 4>();
        let length = packet.length().wrapping_sub(ETH_LEN as u32);
        let total = u32::from(u16::from_be_bytes([t0, t1]));
        // No options; no fragment (DF may be set).
        let odd = u16::from(version ^ 0x45) | (u16::from_be_bytes([f0, f1]) & 0x3fff);
        if odd != 0 || total > length {
            return nothing;
        }
        let front = if matches!(proto, ICMP | ICMPV6) {
            asked(proto, window.get::<20, 1>(), window.get::<24, 2>())
        } else {
            front(packet, proto, L4_V4, window.get::<20, 4>())
        };
        if front.len == 0 || total < 20 + front.len {
            return nothing;
        }
        let words = [word(window.get::<12, 8>()), front.word(proto)];
        Look { words, length, l4: L4_V4, headers: 20 + front.len, tcp: front.tcp, hops }
    }
}

impl Quick for FlowKey6 {
    type Words = [u64; 5];

    #[inline(always)]
    fn look<P: Packet>(packet: &P) -> Look<[u64; 5]> {
        let nothing = Look::nothing([0; 5]);
        let Some(window) = packet.window::<48>(ETH_LEN) else { return nothing };
        let [version] = window.get::<0, 1>();
        let [p0, p1, proto, hops] = window.get::<4, 4>();
        let length = packet.length().wrapping_sub(ETH_LEN as u32);
        let payload = u32::from(u16::from_be_bytes([p0, p1]));
        if version >> 4 != 6 || payload + 40 > length {
            return nothing;
        }
        let front = if matches!(proto, ICMP | ICMPV6) {
            asked(proto, window.get::<40, 1>(), window.get::<44, 2>())
        } else {
            front(packet, proto, L4_V6, window.get::<40, 4>())
        };
        if front.len == 0 || payload < front.len {
            return nothing;
        }
        let (s0, s1) = (word(window.get::<8, 8>()), word(window.get::<16, 8>()));
        let (d0, d1) = (word(window.get::<24, 8>()), word(window.get::<32, 8>()));
        let words = [s0, s1, d0, d1, front.word(proto)];
        Look { words, length, l4: L4_V6, headers: 40 + front.len, tcp: front.tcp, hops }
    }
}

/// 8 bytes as they lie in memory.
#[inline(always)]
const fn word(bytes: [u8; 8]) -> u64 {
    u64::from_ne_bytes(bytes)
}

/// What the front of a transport header tells.
struct Front {
    /// Both ports as they lie in memory.
    ports: u32,
    tcp: u8,
    /// Bytes of the header; 0: not for the short way.
    len: u32,
}

const NOTHING: Front = Front { ports: 0, tcp: 0, len: 0 };

impl Front {
    /// The last 8 bytes of a key, as they lie in memory: ports, protocol, zone 0.
    #[inline(always)]
    const fn word(&self, proto: u8) -> u64 {
        let ports = u32::from_le(self.ports) as u64;
        (ports | (proto as u64) << 32).to_le()
    }
}

/// Ports, TCP flags and header length.
#[inline(always)]
fn front<P: Packet>(packet: &P, proto: u8, l4: usize, ports: [u8; 4]) -> Front {
    let ports = u32::from_ne_bytes(ports);
    match proto {
        TCP => {
            // As far as the shortest header goes.
            let Some(window) = packet.window::<8>(l4 + 12) else { return NOTHING };
            let [offset, tcp] = window.get::<0, 2>();
            let len = if offset < 0x50 { 0 } else { u32::from(offset >> 4) * 4 };
            Front { ports, tcp, len }
        }
        UDP => Front { ports, tcp: 0, len: 8 },
        _ => NOTHING,
    }
}

/// ICMP queries and their answers; all other ICMP goes the slow way.
#[inline(always)]
fn asked(proto: u8, [kind]: [u8; 1], identifier: [u8; 2]) -> Front {
    let Some(([s0, s1], [d0, d1])) = query::ports(proto, kind, identifier) else { return NOTHING };
    Front { ports: u32::from_ne_bytes([s0, s1, d0, d1]), tcp: 0, len: 8 }
}

/// Sends a packet of a known flow on; `None` leaves it to the slow program.
#[inline(always)]
pub fn known<K: Quick, P: Packet, T: Tables>(packet: &mut P, tables: &T, hook: u32, now: u32) -> Option<Verdict> {
    let look = K::look(packet);
    if !look.is_plain() {
        return None;
    }
    let mut parsed: Parsed<K> = look.parsed();
    P::fill(&mut parsed, look.words());
    let entry = hit(packet, tables, &parsed, hook, &Addr::NONE, now)?;
    Some(forward::forward(packet, tables, &parsed, entry, false))
}

/// The entry of a packet that may just be sent on as it says: counted, times kept, and with the state that the packet brings. `hook` is where
/// the packet is, `outer` who sent the tunnel packet that it came in ([`Addr::NONE`]: none).
#[inline(always)]
pub fn hit<K: FlowKey, P: Packet, T: Tables>(
    packet: &P,
    tables: &T,
    parsed: &Parsed<K>,
    hook: u32,
    outer: &Addr,
    now: u32,
) -> Option<T::Flow> {
    let key = &parsed.key;
    let proto = key.proto();
    if life::opens(proto, parsed.tcp) {
        return None;
    }
    let Found { entry, table } = life::find(tables, key, false)?;
    if entry.get(|e| e.hook) != hook || !life::is_current(tables, entry) {
        return None;
    }
    // At the door the mark alone tells a socket of the node.
    if hook == HOOK_DOOR && entry.get(|e| life::is_node_sockets(e.flags)) && packet.mark() & tables.mark() == 0 {
        return None;
    }
    let last = entry.get(|e| e.last_seen);
    if last != now {
        let seconds = entry.get(|e| timeout::seconds(proto, e.flags, e.tcp));
        if timeout::expired(now, last, seconds, tables.ticks_per_second()) {
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
    if !outer.is_none() && !encap::still_from(tables, entry.get(|e| e.from_node), outer) {
        return None;
    }
    // A stream may be promoted before it is answered or, seen from its middle, before it counts as established.
    let learns = table == Table::Probation || entry.get(|e| life::learns(e, proto));
    if learns || parsed.tcp & (SYN | FIN | RST) != 0 {
        advance(tables, parsed, Found { entry, table }, now)?;
    }
    life::touch(entry, parsed.length, now);
    Some(entry)
}

/// The state that a packet brings; `None` where its flow has lost a direction, or is due for the established table.
#[inline(always)]
fn advance<K: FlowKey, T: Tables>(tables: &T, parsed: &Parsed<K>, found: Found<T::Flow>, now: u32) -> Option<()> {
    let Found { entry, table } = found;
    let proto = parsed.key.proto();
    let change = entry.get(|e| life::change(e, proto, parsed.tcp));
    if change.is_new(entry.get(|e| e.tcp)) {
        let opposite = parsed.key.opposite(&entry.view()).find(tables, table)?;
        life::apply(entry, opposite, &change, now);
    }
    let due = table == Table::Probation && entry.get(|e| promote::is_due(e, proto, now, tables.ticks_per_second()));
    if due { None } else { Some(()) }
}

#[cfg(test)]
mod tests;
