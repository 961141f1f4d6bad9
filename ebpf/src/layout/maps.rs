//! Names and sizes of the maps: the name is the map's in the object and the pin's file name.
//!
//! Kernel names are cut to 15 bytes; the prefix `osm_` is not used, since pins are found by folder.

/// Jump table of the slow paths; pinned once a program generation, not adopted.
pub const PROGS: &str = "progs";
/// `Array<Meta>`, 1 row.
pub const META: &str = "meta";
/// `Array<Config>`, 1 row.
pub const CONFIG: &str = "config";
/// `Array<u32>`: row 0 the route generation, row s the epoch of endpoint slot s.
pub const EPOCHS: &str = "epochs";
/// `Array<Endpoint>` by slot.
pub const ENDPOINTS: &str = "endpoints";
/// `Hash<u32 ifindex, u32 slot>`.
pub const ENDPOINT_IF: &str = "endpoint_if";
/// `Hash<Addr, u32 slot>`.
pub const ENDPOINT_ADDR: &str = "endpoint_addr";
/// `LpmTrie<RouteKey, Route>`.
pub const ROUTES: &str = "routes";
/// `Hash<Addr, u32 class>`: addresses that are another class than their range.
pub const PEERS: &str = "peers";
/// `LpmTrie<RouteKey, u32 class>`: ranges of addresses.
pub const PEER_BLOCKS: &str = "peer_blocks";
/// `Hash<VerdictKey, VerdictRow>`: what rule sets say.
pub const VERDICTS: &str = "verdicts";
/// `Array<Node>` by number.
pub const NODES: &str = "nodes";
/// `Hash<u32 ifindex, Uplink>`.
pub const UPLINKS: &str = "uplinks";
/// `LruHash<FlowKey4, FlowEntry>`: flows on probation.
pub const FLOW4_NEW: &str = "flow4_new";
/// `Hash<FlowKey4, FlowEntry>`, preallocated: established flows.
pub const FLOW4: &str = "flow4";
/// As `flow4_new`, IPv6.
pub const FLOW6_NEW: &str = "flow6_new";
/// As `flow4`, IPv6.
pub const FLOW6: &str = "flow6";
/// `LruHash<FragmentKey, FragmentRow>`.
pub const FRAGMENTS: &str = "fragments";
/// `PerCpuArray<DropCount>` by reason.
pub const DROPS: &str = "drops";
/// `LruHash<DropKey, DropRow>`.
pub const DROP_ROWS: &str = "drop_rows";
/// `PerCpuArray<u64>` by [`super::Stat`].
pub const STATS: &str = "stats";
/// `Array<u64>` by slot: established flows an endpoint has opened (low half) and its packet-too-big bucket (high half).
pub const BUDGETS: &str = "budgets";

/// Endpoint slots of a node; slot 0 is the route generation.
pub const MAX_ENDPOINTS: u32 = 1024;
/// Node numbers; number 0 is this node.
pub const MAX_NODES: u32 = 8192;
/// Prefixes of the route table.
pub const MAX_ROUTES: u32 = 65_536;
/// Addresses with a class of their own. Memory is taken by row.
pub const MAX_PEERS: u32 = 262_144;
/// Ranges with a class. Memory is taken by row.
pub const MAX_PEER_BLOCKS: u32 = 1_048_576;
/// Verdict rows. Memory is taken by row, and 16 bytes of each place in the table.
pub const MAX_VERDICTS: u32 = 2_097_152;
/// Uplinks.
pub const MAX_UPLINKS: u32 = 64;
/// Default rows of the probation tables, before the agent sizes them from its memory setting.
pub const FLOWS_NEW: u32 = 65_536;
/// Default rows of the established tables.
pub const FLOWS: u32 = 131_072;
/// Datagrams in flight as fragments.
pub const MAX_FRAGMENTS: u32 = 8192;
/// Drop rows kept.
pub const MAX_DROP_ROWS: u32 = 4096;
