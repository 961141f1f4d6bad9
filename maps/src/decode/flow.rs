//! Flows: the four tables, and one form of a key for both families.

use osmia_ebpf::layout::{
    Addr, FlowEntry, FlowKey4, FlowKey6,
    flow::{
        F_HELD, F_NO_HOP, F_NODE_SOCKET, F_OPENER, F_OPPOSITE_OUT, F_REPLIED, F_REWRITE_DST, F_REWRITE_SRC, FlowAction,
        HOOK_DOOR, HOOK_TUNNEL, HOOK_UPLINK, HOOK_UPLINK_OUT, NO_MTU, T_ESTABLISHED, T_FIN, T_FIN_PEER, T_RST, T_SYN,
        T_SYN_ACK,
    },
};

use super::{
    Cell, Context, Record,
    codec::{Codec, exact},
    parse, protocol,
};
use crate::tables;

const KEY_HELP: &str = "PROTOCOL SOURCE:PORT DESTINATION:PORT [ZONE] (ICMP echo: the identifier at the end that asks, the number after it at the other; zone 1: out of the stack, 2: fragments without a first one)";
const EXAMPLE4: &str = "tcp 10.0.0.1:80 10.0.0.2:1234";
const EXAMPLE6: &str = "udp [fd00::1]:53 [fd00::2]:1234";

const FLAGS: [(u32, &str); 8] = [
    (F_OPENER as u32, "opener"),
    (F_REPLIED as u32, "replied"),
    (F_REWRITE_SRC as u32, "rewrite_src"),
    (F_REWRITE_DST as u32, "rewrite_dst"),
    (F_NODE_SOCKET as u32, "node_socket"),
    (F_NO_HOP as u32, "no_hop"),
    (F_HELD as u32, "held"),
    (F_OPPOSITE_OUT as u32, "opposite_out"),
];
const TCP: [(u32, &str); 6] = [
    (T_SYN as u32, "syn"),
    (T_SYN_ACK as u32, "syn_ack"),
    (T_ESTABLISHED as u32, "established"),
    (T_FIN as u32, "fin"),
    (T_FIN_PEER as u32, "fin_peer"),
    (T_RST as u32, "rst"),
];

/// Names of the actions, in the order of their values.
pub const ACTIONS: [(FlowAction, &str); 6] = [
    (FlowAction::Peer, "peer"),
    (FlowAction::Native, "native"),
    (FlowAction::Tunnel, "tunnel"),
    (FlowAction::Uplink, "uplink"),
    (FlowAction::Stack, "stack"),
    (FlowAction::Pass, "pass"),
];

/// The key of a direction, either family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowTuple {
    /// Source.
    pub src: Addr,
    /// Destination.
    pub dst: Addr,
    /// Source port, network order.
    pub sport: [u8; 2],
    /// Destination port, network order.
    pub dport: [u8; 2],
    /// Protocol.
    pub proto: u8,
    /// 1: packets of the node's stack at an uplink's egress.
    pub zone: u8,
}

impl From<FlowKey4> for FlowTuple {
    fn from(key: FlowKey4) -> Self {
        let FlowKey4 { src, dst, sport, dport, proto, zone, .. } = key;
        Self { src: Addr::v4(src), dst: Addr::v4(dst), sport, dport, proto, zone }
    }
}

impl From<FlowKey6> for FlowTuple {
    fn from(key: FlowKey6) -> Self {
        let FlowKey6 { src, dst, sport, dport, proto, zone, .. } = key;
        Self { src: Addr::v6(src), dst: Addr::v6(dst), sport, dport, proto, zone }
    }
}

impl FlowTuple {
    /// Its fields.
    #[must_use]
    pub fn record(&self) -> Record {
        let port = |port| Cell::nonzero(u16::from_be_bytes(port));
        Record::new()
            .with("proto", protocol::cell(self.proto))
            .with("src", Cell::Address(self.src))
            .with("sport", port(self.sport))
            .with("dst", Cell::Address(self.dst))
            .with("dport", port(self.dport))
            .with("zone", Cell::nonzero(self.zone))
    }

    /// As a key is written.
    #[must_use]
    pub fn text(&self) -> String {
        let [src, dst] = [(self.src, self.sport), (self.dst, self.dport)].map(|(a, p)| parse::socket_text(a, p));
        let zone = if self.zone == 0 { String::new() } else { format!(" {}", self.zone) };
        format!("{} {src} {dst}{zone}", protocol::text(self.proto))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (proto, src, dst, zone) = match words[..] {
            [proto, src, dst] => (proto, src, dst, 0),
            [proto, src, dst, zone] => (proto, src, dst, super::number(zone)?),
            _ => return Err(format!("`{text}` is not three or four words")),
        };
        let ((src, sport), (dst, dport)) = (parse::socket(src)?, parse::socket(dst)?);
        Ok(Self { src, dst, sport, dport, proto: protocol::parse(proto)?, zone })
    }

    fn parse4(text: &str) -> Result<FlowKey4, String> {
        let Self { src, dst, sport, dport, proto, zone } = Self::parse(text)?;
        match src.is_v4() && dst.is_v4() {
            true => Ok(FlowKey4 { src: src.to_v4(), dst: dst.to_v4(), sport, dport, proto, zone, zero: [0; 2] }),
            false => Err("an IPv6 address; its flows are in flow6 and flow6_new".to_owned()),
        }
    }

    fn parse6(text: &str) -> Result<FlowKey6, String> {
        let Self { src, dst, sport, dport, proto, zone } = Self::parse(text)?;
        match src.is_v4() && dst.is_v4() {
            true => Err("IPv4 addresses; their flows are in flow4 and flow4_new".to_owned()),
            false => Ok(FlowKey6 { src: src.0, dst: dst.0, sport, dport, proto, zone, zero: [0; 2] }),
        }
    }
}

/// The name of an entry's action.
#[must_use]
pub fn action_name(entry: &FlowEntry) -> Option<&'static str> {
    let action = FlowAction::from_byte(entry.action)?;
    ACTIONS.iter().find(|(of, _)| *of == action).map(|(_, name)| *name)
}

/// The node that an entry's packets go to or come from; 0 for none.
#[must_use]
pub fn node_of(entry: &FlowEntry) -> u32 {
    match FlowAction::from_byte(entry.action) {
        Some(FlowAction::Native | FlowAction::Tunnel) => entry.target,
        _ => u32::from(entry.from_node),
    }
}

/// Where an entry's packets may arrive: the kind of place, and the device of a pod.
#[must_use]
pub fn hook(entry: &FlowEntry, context: &Context) -> (Cell, Cell) {
    let name = match entry.hook {
        HOOK_UPLINK => "uplink",
        HOOK_TUNNEL => "tunnel",
        HOOK_DOOR => "door",
        HOOK_UPLINK_OUT => "uplink_out",
        _ => return (Cell::name("pod"), context.device(entry.hook)),
    };
    (Cell::name(name), Cell::Absent)
}

/// Where an entry's packets go: the device, or the node.
#[must_use]
pub fn target(entry: &FlowEntry, context: &Context) -> (Cell, Cell) {
    match FlowAction::from_byte(entry.action) {
        Some(FlowAction::Peer | FlowAction::Uplink) => (context.device(entry.target), Cell::Absent),
        Some(FlowAction::Native | FlowAction::Tunnel) => (Cell::Absent, context.node(entry.target)),
        Some(FlowAction::Stack | FlowAction::Pass) => (Cell::Absent, Cell::Absent),
        // Nobody knows what the number means.
        None => (Cell::Text(format!("{:#x}", entry.target).into()), Cell::Absent),
    }
}

/// The TCP bits of an entry.
#[must_use]
pub fn tcp(entry: &FlowEntry) -> Cell {
    Cell::flags(u32::from(entry.tcp), &TCP)
}

/// The fields of an entry. Which of them mean something depends on action and flags; the others are absent.
#[must_use]
pub fn value(entry: &FlowEntry, context: &Context) -> Record {
    let (hook, hook_device) = hook(entry, context);
    let (device, node) = target(entry, context);
    let with = |flag: u8, cell: Cell| if entry.flags & flag != 0 { cell } else { Cell::Absent };
    let port = |port| Cell::nonzero(u16::from_be_bytes(port));
    let number = |n: u32| Cell::Number(u64::from(n));
    let slot = |slot: u32, cell: u32| if slot == 0 { Cell::Absent } else { number(cell) };
    Record::with_capacity(40)
        .with("hook", hook)
        .with("hook_device", hook_device)
        .with("from_node", context.node(u32::from(entry.from_node)))
        .with("action", Cell::name_or(action_name(entry), entry.action))
        .with("device", device)
        .with("node", node)
        .with("next_hop", Cell::address(entry.next_hop))
        .with("new_src", with(F_REWRITE_SRC, Cell::Address(entry.new_src)))
        .with("new_sport", with(F_REWRITE_SRC, port(entry.new_sport)))
        .with("new_dst", with(F_REWRITE_DST, Cell::Address(entry.new_dst)))
        .with("new_dport", with(F_REWRITE_DST, port(entry.new_dport)))
        .with("flags", Cell::flags(u32::from(entry.flags), &FLAGS))
        .with("tcp", tcp(entry))
        .with("mtu", if entry.mtu == NO_MTU { Cell::Absent } else { number(entry.mtu.into()) })
        .with("packets", Cell::Number(entry.packets))
        .with("bytes", Cell::Number(entry.bytes))
        .with("age", context.age_cell(entry.created))
        .with("replied", with(F_REPLIED, context.age_cell(entry.replied)))
        .with("idle", context.age_cell(entry.last_seen))
        .with("src_slot", Cell::nonzero(entry.src_slot))
        .with("src_epoch", slot(entry.src_slot, entry.src_epoch))
        .with("dst_slot", Cell::nonzero(entry.dst_slot))
        .with("dst_epoch", slot(entry.dst_slot, entry.dst_epoch))
        .with("route_generation", number(entry.route_gen))
        .with("egress_cookie", Cell::nonzero(entry.egress_cookie))
        .with("ingress_cookie", Cell::nonzero(entry.ingress_cookie))
}

/// Whether an entry was decided under the epochs and the route generation that hold now; one that was not is judged again.
#[must_use]
pub fn is_current(entry: &FlowEntry, epochs: &[u32]) -> bool {
    let holds = |slot: u32, epoch| slot == 0 || epochs.get(slot as usize) == Some(&epoch);
    epochs.first() == Some(&entry.route_gen)
        && holds(entry.src_slot, entry.src_epoch)
        && holds(entry.dst_slot, entry.dst_epoch)
}

macro_rules! table {
    ($name:ident, $key:ty, $parse:ident, $example:ident, $about:literal) => {
        pub(super) static $name: Codec<$key, FlowEntry> = Codec {
            spec: tables::$name,
            about: $about,
            key_help: KEY_HELP,
            example: $example,
            parse: |text, _| FlowTuple::$parse(text),
            text: |key| FlowTuple::from(*key).text(),
            key: |key, _| FlowTuple::from(*key).record(),
            value,
            used: |_| true,
            find: exact,
        };
    };
}

table!(FLOW4, FlowKey4, parse4, EXAMPLE4, "established IPv4 flows, an entry a direction");
table!(FLOW4_NEW, FlowKey4, parse4, EXAMPLE4, "IPv4 flows on probation");
table!(FLOW6, FlowKey6, parse6, EXAMPLE6, "established IPv6 flows, an entry a direction");
table!(FLOW6_NEW, FlowKey6, parse6, EXAMPLE6, "IPv6 flows on probation");

#[cfg(test)]
mod tests;
