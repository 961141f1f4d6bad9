//! The maps of a run: [`Tables`] over BPF maps.

use aya_ebpf::btf_maps::lpm_trie::Key;
use osmia_ebpf::layout::endpoint::E_PRESENT;
use osmia_ebpf::layout::node::N_PRESENT;
use osmia_ebpf::layout::{
    Addr, Config, Endpoint, FlowEntry, FlowKey4, FlowKey6, FragmentKey, FragmentRow, Node, Route, Stat, Uplink,
    VerdictKey, VerdictRow,
};
use osmia_ebpf::logic::tables::{Insert, InsertError, PolicyTables, Table, Tables};

use super::constants::{MARK, TICKS_PER_SECOND};
use super::maps::{
    BUDGETS, CONFIG, ENDPOINT_ADDR, ENDPOINT_IF, ENDPOINTS, EPOCHS, FLOW4, FLOW4_NEW, FLOW6, FLOW6_NEW, FRAGMENTS,
    NODES, PEER_BLOCKS, PEERS, ROUTES, SCRATCH, STATS, UPLINKS, VERDICTS,
};
use super::raw::{self, Flow};

/// `BPF_ANY`.
const ANY: u64 = 0;
/// `BPF_NOEXIST`.
const NOEXIST: u64 = 1;
/// `EEXIST`.
const EEXIST: i32 = -17;

/// All maps.
pub(super) struct Maps;

#[inline(always)]
const fn flag(how: Insert) -> u64 {
    match how {
        Insert::Any => ANY,
        Insert::New => NOEXIST,
    }
}

#[inline(always)]
fn inserted(result: Result<(), i32>) -> Result<(), InsertError> {
    match result {
        Ok(()) => Ok(()),
        Err(EEXIST) => Err(InsertError::Exists),
        Err(_) => Err(InsertError::Full),
    }
}

impl PolicyTables for Maps {
    #[inline(always)]
    fn peer(&self, addr: &Addr) -> Option<u32> {
        raw::copied(PEERS.get_ptr(addr))
    }

    #[inline(always)]
    fn peer_block(&self, addr: &Addr) -> Option<u32> {
        PEER_BLOCKS.get(&Key::new(128, addr.0)).copied()
    }

    #[inline(always)]
    fn verdict(&self, key: &VerdictKey) -> Option<VerdictRow> {
        raw::copied(VERDICTS.get_ptr(key))
    }
}

impl Tables for Maps {
    type Flow = Flow;

    #[inline(always)]
    fn mark(&self) -> u32 {
        MARK.load()
    }

    #[inline(always)]
    fn ticks_per_second(&self) -> u32 {
        TICKS_PER_SECOND.load()
    }

    #[inline(always)]
    fn config(&self) -> Option<&Config> {
        raw::row(CONFIG.get_ptr(0))
    }

    #[inline(always)]
    fn epoch(&self, slot: u32) -> u32 {
        raw::copied(EPOCHS.get_ptr(slot)).unwrap_or(0)
    }

    #[inline(always)]
    fn slot_by_ifindex(&self, ifindex: u32) -> Option<u32> {
        raw::copied(ENDPOINT_IF.get_ptr(&ifindex))
    }

    #[inline(always)]
    fn slot_by_addr(&self, addr: &Addr) -> Option<u32> {
        raw::copied(ENDPOINT_ADDR.get_ptr(addr))
    }

    #[inline(always)]
    fn endpoint(&self, slot: u32) -> Option<&Endpoint> {
        raw::row(ENDPOINTS.get_ptr(slot)).filter(|e| e.flags & E_PRESENT != 0)
    }

    #[inline(always)]
    fn route(&self, addr: &Addr) -> Option<Route> {
        ROUTES.get(&Key::new(128, addr.0)).copied()
    }

    #[inline(always)]
    fn node(&self, number: u16) -> Option<&Node> {
        raw::row(NODES.get_ptr(u32::from(number))).filter(|n| n.flags & N_PRESENT != 0)
    }

    #[inline(always)]
    fn uplink(&self, ifindex: u32) -> Option<&Uplink> {
        raw::row(UPLINKS.get_ptr(&ifindex))
    }

    #[inline(always)]
    fn flow4(&self, key: &FlowKey4, table: Table) -> Option<Flow> {
        raw::flow(match table {
            Table::Probation => FLOW4_NEW.get_ptr_mut(key),
            Table::Established => FLOW4.get_ptr_mut(key),
        })
    }

    #[inline(always)]
    fn flow6(&self, key: &FlowKey6, table: Table) -> Option<Flow> {
        raw::flow(match table {
            Table::Probation => FLOW6_NEW.get_ptr_mut(key),
            Table::Established => FLOW6.get_ptr_mut(key),
        })
    }

    #[inline(always)]
    fn put_flow4(&self, key: &FlowKey4, entry: &FlowEntry, table: Table, how: Insert) -> Result<(), InsertError> {
        inserted(match table {
            Table::Probation => FLOW4_NEW.insert(key, entry, flag(how)),
            Table::Established => FLOW4.insert(key, entry, flag(how)),
        })
    }

    #[inline(always)]
    fn put_flow6(&self, key: &FlowKey6, entry: &FlowEntry, table: Table, how: Insert) -> Result<(), InsertError> {
        inserted(match table {
            Table::Probation => FLOW6_NEW.insert(key, entry, flag(how)),
            Table::Established => FLOW6.insert(key, entry, flag(how)),
        })
    }

    #[inline(always)]
    fn remove_flow4(&self, key: &FlowKey4, table: Table) {
        let _ = match table {
            Table::Probation => FLOW4_NEW.remove(key),
            Table::Established => FLOW4.remove(key),
        };
    }

    #[inline(always)]
    fn remove_flow6(&self, key: &FlowKey6, table: Table) {
        let _ = match table {
            Table::Probation => FLOW6_NEW.remove(key),
            Table::Established => FLOW6.remove(key),
        };
    }

    #[inline(always)]
    fn fragment(&self, key: &FragmentKey) -> Option<FragmentRow> {
        raw::copied(FRAGMENTS.get_ptr(key))
    }

    #[inline(always)]
    fn put_fragment(&self, key: &FragmentKey, row: &FragmentRow) {
        // An LRU takes everything but when it is busy: then the later fragments of this datagram do not find it.
        let _ = FRAGMENTS.insert(key, row, ANY);
    }

    #[inline(always)]
    fn endpoint_flows(&self, slot: u32) -> u32 {
        raw::row(BUDGETS.get_ptr(slot)).map_or(0, |[flows, _]| *flows)
    }

    #[inline(always)]
    fn set_endpoint_flows(&self, slot: u32, flows: u32) {
        if let Some(row) = raw::row_mut(BUDGETS.get_ptr_mut(slot)) {
            row[0] = flows;
        }
    }

    #[inline(always)]
    fn bucket(&self, slot: u32) -> u32 {
        raw::row(BUDGETS.get_ptr(slot)).map_or(0, |[_, bucket]| *bucket)
    }

    #[inline(always)]
    fn set_bucket(&self, slot: u32, bucket: u32) {
        if let Some(row) = raw::row_mut(BUDGETS.get_ptr_mut(slot)) {
            row[1] = bucket;
        }
    }

    #[inline(always)]
    fn keep_outer(&self, outer: &Addr) {
        if let Some(scratch) = raw::row_mut(SCRATCH.get_ptr_mut(0)) {
            scratch.outer = *outer;
        }
    }

    #[inline(always)]
    fn count(&self, stat: Stat) {
        raw::bump(STATS.get_ptr_mut(stat as u32), 1);
    }
}
