//! Every pinned map with its types.

use osmia_ebpf::layout::{
    Addr, Config, DropKey, DropRow, Endpoint, FlowEntry, FlowKey4, FlowKey6, FragmentKey, FragmentRow, Meta, Node,
    Route, RouteKey, Uplink, VerdictKey, VerdictRow, drops::DropCount, maps,
};

use crate::{PerCpuSpec, Spec};

/// Every map that is pinned by its own name. The jump table has a pin a generation, [`crate::Pins::progs`].
pub const NAMES: [&str; 21] = [
    maps::META,
    maps::CONFIG,
    maps::EPOCHS,
    maps::ENDPOINTS,
    maps::ENDPOINT_IF,
    maps::ENDPOINT_ADDR,
    maps::ROUTES,
    maps::PEERS,
    maps::PEER_BLOCKS,
    maps::VERDICTS,
    maps::NODES,
    maps::UPLINKS,
    maps::FLOW4_NEW,
    maps::FLOW4,
    maps::FLOW6_NEW,
    maps::FLOW6,
    maps::FRAGMENTS,
    maps::DROPS,
    maps::DROP_ROWS,
    maps::STATS,
    maps::BUDGETS,
];

/// What the other pins are; row 0.
pub const META: Spec<u32, Meta> = Spec::new(maps::META);
/// The running configuration; row 0.
pub const CONFIG: Spec<u32, Config> = Spec::new(maps::CONFIG);
/// Row 0 the route generation, row s the epoch of slot s.
pub const EPOCHS: Spec<u32, u32> = Spec::new(maps::EPOCHS);
/// Endpoints by slot.
pub const ENDPOINTS: Spec<u32, Endpoint> = Spec::new(maps::ENDPOINTS);
/// Slot by host-side ifindex.
pub const ENDPOINT_IF: Spec<u32, u32> = Spec::new(maps::ENDPOINT_IF);
/// Slot by address.
pub const ENDPOINT_ADDR: Spec<Addr, u32> = Spec::new(maps::ENDPOINT_ADDR);
/// Prefixes.
pub const ROUTES: Spec<RouteKey, Route> = Spec::new(maps::ROUTES);
/// Class of an address that is another one than its range.
pub const PEERS: Spec<Addr, u32> = Spec::new(maps::PEERS);
/// Class of a range.
pub const PEER_BLOCKS: Spec<RouteKey, u32> = Spec::new(maps::PEER_BLOCKS);
/// What rule sets say.
pub const VERDICTS: Spec<VerdictKey, VerdictRow> = Spec::new(maps::VERDICTS);
/// Nodes by number.
pub const NODES: Spec<u32, Node> = Spec::new(maps::NODES);
/// Uplinks by ifindex.
pub const UPLINKS: Spec<u32, Uplink> = Spec::new(maps::UPLINKS);
/// IPv4 flows on probation.
pub const FLOW4_NEW: Spec<FlowKey4, FlowEntry> = Spec::new(maps::FLOW4_NEW);
/// Established IPv4 flows.
pub const FLOW4: Spec<FlowKey4, FlowEntry> = Spec::new(maps::FLOW4);
/// IPv6 flows on probation.
pub const FLOW6_NEW: Spec<FlowKey6, FlowEntry> = Spec::new(maps::FLOW6_NEW);
/// Established IPv6 flows.
pub const FLOW6: Spec<FlowKey6, FlowEntry> = Spec::new(maps::FLOW6);
/// Datagrams in flight as fragments.
pub const FRAGMENTS: Spec<FragmentKey, FragmentRow> = Spec::new(maps::FRAGMENTS);
/// What was dropped lately.
pub const DROP_ROWS: Spec<DropKey, DropRow> = Spec::new(maps::DROP_ROWS);
/// Budgets of endpoints by slot.
pub const BUDGETS: Spec<u32, u64> = Spec::new(maps::BUDGETS);
/// Drops by reason.
pub const DROPS: PerCpuSpec<DropCount> = PerCpuSpec::new(maps::DROPS);
/// Counters by [`osmia_ebpf::layout::Stat`].
pub const STATS: PerCpuSpec<u64> = PerCpuSpec::new(maps::STATS);
