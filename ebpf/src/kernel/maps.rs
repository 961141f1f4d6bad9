//! The maps, under the names and with the sizes of [`osmia_ebpf::layout::maps`].

use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::btf_maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, ProgramArray};
use aya_ebpf::macros::btf_map;
use osmia_ebpf::layout::drops::{DROP_ROWS as DROP_REASONS, DropCount};
use osmia_ebpf::layout::programs::JUMP_ROWS;
use osmia_ebpf::layout::stats::STAT_ROWS;
use osmia_ebpf::layout::{
    Addr, Config, DropKey, DropRow, Endpoint, FlowEntry, FlowKey4, FlowKey6, FragmentKey, FragmentRow, Meta, Node,
    Route, Uplink, VerdictKey, VerdictRow, maps,
};
use osmia_ebpf::logic::Scratch;

const ENDPOINT_ROWS: usize = maps::MAX_ENDPOINTS as usize;

#[btf_map(name = "progs")]
pub(super) static PROGS: ProgramArray<{ JUMP_ROWS as usize }> = ProgramArray::new();
#[btf_map(name = "meta")]
pub(super) static META: Array<Meta, 1> = Array::new();
#[btf_map(name = "config")]
pub(super) static CONFIG: Array<Config, 1> = Array::new();
#[btf_map(name = "epochs")]
pub(super) static EPOCHS: Array<u32, ENDPOINT_ROWS> = Array::new();
#[btf_map(name = "endpoints")]
pub(super) static ENDPOINTS: Array<Endpoint, ENDPOINT_ROWS> = Array::new();
#[btf_map(name = "endpoint_if")]
pub(super) static ENDPOINT_IF: HashMap<u32, u32, ENDPOINT_ROWS> = HashMap::new();
// Two addresses an endpoint.
#[btf_map(name = "endpoint_addr")]
pub(super) static ENDPOINT_ADDR: HashMap<Addr, u32, { 2 * ENDPOINT_ROWS }> = HashMap::new();
#[btf_map(name = "routes")]
pub(super) static ROUTES: LpmTrie<[u8; 16], Route, { maps::MAX_ROUTES as usize }> = LpmTrie::new();
// As many rows as the cluster has pods that rules speak of: memory is taken by row.
#[btf_map(name = "peers")]
pub(super) static PEERS: HashMap<Addr, u32, { maps::MAX_PEERS as usize }, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();
#[btf_map(name = "peer_blocks")]
pub(super) static PEER_BLOCKS: LpmTrie<[u8; 16], u32, { maps::MAX_PEER_BLOCKS as usize }> = LpmTrie::new();
#[btf_map(name = "verdicts")]
pub(super) static VERDICTS: HashMap<
    VerdictKey,
    VerdictRow,
    { maps::MAX_VERDICTS as usize },
    { BPF_F_NO_PREALLOC as usize },
> = HashMap::new();
#[btf_map(name = "nodes")]
pub(super) static NODES: Array<Node, { maps::MAX_NODES as usize }> = Array::new();
#[btf_map(name = "uplinks")]
pub(super) static UPLINKS: HashMap<u32, Uplink, { maps::MAX_UPLINKS as usize }> = HashMap::new();
#[btf_map(name = "flow4_new")]
pub(super) static FLOW4_NEW: LruHashMap<FlowKey4, FlowEntry, { maps::FLOWS_NEW as usize }> = LruHashMap::new();
#[btf_map(name = "flow4")]
pub(super) static FLOW4: HashMap<FlowKey4, FlowEntry, { maps::FLOWS as usize }> = HashMap::new();
#[btf_map(name = "flow6_new")]
pub(super) static FLOW6_NEW: LruHashMap<FlowKey6, FlowEntry, { maps::FLOWS_NEW as usize }> = LruHashMap::new();
#[btf_map(name = "flow6")]
pub(super) static FLOW6: HashMap<FlowKey6, FlowEntry, { maps::FLOWS as usize }> = HashMap::new();
#[btf_map(name = "fragments")]
pub(super) static FRAGMENTS: LruHashMap<FragmentKey, FragmentRow, { maps::MAX_FRAGMENTS as usize }> = LruHashMap::new();
#[btf_map(name = "drops")]
pub(super) static DROPS: PerCpuArray<DropCount, { DROP_REASONS as usize }> = PerCpuArray::new();
#[btf_map(name = "drop_rows")]
pub(super) static DROP_ROWS: LruHashMap<DropKey, DropRow, { maps::MAX_DROP_ROWS as usize }> = LruHashMap::new();
#[btf_map(name = "stats")]
pub(super) static STATS: PerCpuArray<u64, { STAT_ROWS as usize }> = PerCpuArray::new();
#[btf_map(name = "budgets")]
pub(super) static BUDGETS: Array<[u32; 2], ENDPOINT_ROWS> = Array::new();
/// Not pinned: has no meaning between two packets.
#[btf_map(name = "scratch")]
pub(super) static SCRATCH: PerCpuArray<Scratch, 1> = PerCpuArray::new();
