//! Tables in `BTreeMap`s. Entries are leaked boxes, so that a handle is `Copy` as the kernel's pointers are.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;

use crate::layout::endpoint::{E_PRESENT, E_READY};
use crate::layout::node::N_PRESENT;
use crate::layout::policy::CLASS_BITS;
use crate::layout::route::RouteKind;
use crate::layout::{
    Addr, Config, Endpoint, FlowEntry, FlowKey4, FlowKey6, FragmentKey, FragmentRow, Node, Route, Stat, Uplink,
    VerdictKey, VerdictRow,
};
use crate::logic::tables::{Entry, FlowRef, Insert, InsertError, PolicyTables, Table, Tables};

type Rows<K> = RefCell<BTreeMap<K, &'static RefCell<FlowEntry>>>;

/// Tables that a test fills.
#[derive(Default)]
pub(crate) struct FakeTables {
    pub(crate) config: Config,
    pub(crate) epochs: RefCell<BTreeMap<u32, u32>>,
    pub(crate) endpoints: BTreeMap<u32, Endpoint>,
    /// Rows by address that lag behind the endpoints: their slot has got another pod since.
    pub(crate) stale_addresses: BTreeMap<Addr, u32>,
    /// Prefix bits (mapped form), address, what lies there.
    pub(crate) routes: Vec<(u32, Addr, Route)>,
    /// Classes of addresses.
    pub(crate) peers: BTreeMap<Addr, u32>,
    /// Prefix bits (mapped form), address, class.
    pub(crate) peer_blocks: Vec<(u32, Addr, u32)>,
    pub(crate) verdicts: BTreeMap<VerdictKey, VerdictRow>,
    pub(crate) nodes: BTreeMap<u16, Node>,
    pub(crate) uplinks: BTreeMap<u32, Uplink>,
    pub(crate) flow4: Rows<FlowKey4>,
    pub(crate) flow4_new: Rows<FlowKey4>,
    pub(crate) flow6: Rows<FlowKey6>,
    pub(crate) flow6_new: Rows<FlowKey6>,
    /// Most entries of an established table; 0: no limit.
    pub(crate) established_limit: usize,
    pub(crate) fragments: RefCell<Vec<(FragmentKey, FragmentRow)>>,
    pub(crate) budgets: RefCell<BTreeMap<u32, (u32, u32)>>,
    pub(crate) stats: RefCell<BTreeMap<Stat, u64>>,
    /// Who sent the tunnel packet.
    pub(crate) outer: Cell<Addr>,
    /// Lookups of the two flow tables.
    pub(crate) lookups: Cell<u32>,
    /// Questions to the verdicts.
    pub(crate) judged: Cell<u32>,
    /// A slot whose epoch is raised at each question to the verdicts, as by a change of policy on another CPU.
    pub(crate) changing: Cell<u32>,
}

impl FakeTables {
    /// A node with its own blocks 10.0.1.0/24 and fd00:0:0:1::/64, inside the cluster's 10.0.0.0/16 and fd00::/48.
    pub(crate) fn node() -> Self {
        let mut tables = Self {
            config: Config {
                mark: 0x0100_0000,
                flags: crate::layout::config::C_IPV6,
                door_host: 50,
                door_pods: 51,
                tunnel_dev: 52,
                vni: 1,
                tunnel_port: 4789_u16.to_be_bytes(),
                pod_mtu: 1450,
                masq_min: 61_000,
                masq_max: 65_535,
                gateway_mac: super::build::GATEWAY,
                endpoint_flows: 1000,
                too_big_rate: 10,
                ticks_per_second: 64,
                node4: [192, 168, 0, 1],
                node6: [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                ..Config::default()
            },
            ..Self::default()
        };
        let route = |kind, node| Route { kind: kind as u8, zero: 0, node };
        tables.routes = vec![
            (96 + 16, Addr::v4([10, 0, 0, 0]), route(RouteKind::Unowned, 0)),
            (96 + 24, Addr::v4([10, 0, 1, 0]), route(RouteKind::LocalBlock, 0)),
            (96 + 24, Addr::v4([10, 0, 2, 0]), route(RouteKind::RemoteBlock, 2)),
            (96 + 32, Addr::v4([192, 168, 0, 1]), route(RouteKind::LocalNode, 0)),
            (96 + 32, Addr::v4([192, 168, 0, 2]), route(RouteKind::RemoteNode, 2)),
            (48, Addr::v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), route(RouteKind::Unowned, 0)),
            (64, Addr::v6([0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), route(RouteKind::LocalBlock, 0)),
            (64, Addr::v6([0xfd, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]), route(RouteKind::RemoteBlock, 2)),
        ];
        tables.epochs.borrow_mut().insert(0, 1);
        tables
    }

    /// Adds a committed pod: slot, ifindex, last byte of its addresses.
    pub(crate) fn pod(&mut self, slot: u32, ifindex: u32, last: u8) {
        let endpoint = Endpoint {
            ifindex,
            flags: E_PRESENT | E_READY,
            v4: [10, 0, 1, last],
            v6: pod6(last),
            ..Endpoint::default()
        };
        self.endpoints.insert(slot, endpoint);
        self.epochs.borrow_mut().insert(slot, slot * 100);
    }

    pub(crate) fn stat(&self, stat: Stat) -> u64 {
        self.stats.borrow().get(&stat).copied().unwrap_or(0)
    }
}

/// The row of another node behind uplink 4, reached and tunnelled to by this address.
pub(crate) fn node_row(address: Addr, flags: u32) -> Node {
    Node {
        flags: N_PRESENT | flags,
        uplink: 4,
        mtu: 1450,
        zero: [0; 6],
        tunnel: address,
        next_hop4: address,
        next_hop6: address,
        next_hop_tunnel: address,
        outer: [0; 72],
    }
}

/// Address of a pod of the node of [`FakeTables::node`].
pub(crate) fn pod6(last: u8) -> [u8; 16] {
    [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, last]
}

impl Entry for &'static RefCell<FlowEntry> {
    fn view(self) -> impl Deref<Target = FlowEntry> {
        self.borrow()
    }

    fn get<R>(self, read: impl FnOnce(&FlowEntry) -> R) -> R {
        read(&self.borrow())
    }
}

impl FlowRef for &'static RefCell<FlowEntry> {
    fn copy(self, into: &mut FlowEntry) {
        *into = *self.borrow();
    }

    fn set(self, change: impl FnOnce(&mut FlowEntry)) {
        change(&mut self.borrow_mut());
    }
}

/// The value of the longest prefix.
fn longest<V: Copy>(rows: &[(u32, Addr, V)], addr: &Addr) -> Option<V> {
    let bits = |a: &Addr| u128::from_be_bytes(a.0);
    let covers = |len: u32, prefix: &Addr| len == 0 || (bits(prefix) ^ bits(addr)) >> (128 - len) == 0;
    rows.iter().filter(|(len, prefix, _)| covers(*len, prefix)).max_by_key(|(len, ..)| *len).map(|(.., v)| *v)
}

fn put<K: Ord + Copy>(
    rows: &Rows<K>,
    key: &K,
    entry: &FlowEntry,
    how: Insert,
    limit: usize,
) -> Result<(), InsertError> {
    let mut rows = rows.borrow_mut();
    if how == Insert::New && rows.contains_key(key) {
        return Err(InsertError::Exists);
    }
    if limit != 0 && rows.len() >= limit && !rows.contains_key(key) {
        return Err(InsertError::Full);
    }
    rows.insert(*key, Box::leak(Box::new(RefCell::new(*entry))));
    Ok(())
}

impl PolicyTables for FakeTables {
    fn peer(&self, addr: &Addr) -> Option<u32> {
        self.peers.get(addr).copied()
    }

    fn peer_block(&self, addr: &Addr) -> Option<u32> {
        longest(&self.peer_blocks, addr)
    }

    fn verdict(&self, key: &VerdictKey) -> Option<VerdictRow> {
        self.judged.set(self.judged.get() + u32::from(key.bits == CLASS_BITS));
        if let Some(epoch) = self.epochs.borrow_mut().get_mut(&self.changing.get()).filter(|_| self.changing.get() != 0)
        {
            *epoch += 1;
        }
        self.verdicts.get(key).copied()
    }
}

impl Tables for FakeTables {
    type Flow = &'static RefCell<FlowEntry>;

    fn mark(&self) -> u32 {
        self.config.mark
    }

    fn ticks_per_second(&self) -> u32 {
        self.config.ticks_per_second
    }

    fn config(&self) -> Option<&Config> {
        Some(&self.config)
    }

    fn epoch(&self, slot: u32) -> u32 {
        self.epochs.borrow().get(&slot).copied().unwrap_or(0)
    }

    fn slot_by_ifindex(&self, ifindex: u32) -> Option<u32> {
        self.endpoints.iter().find(|(_, e)| e.ifindex == ifindex).map(|(slot, _)| *slot)
    }

    fn slot_by_addr(&self, addr: &Addr) -> Option<u32> {
        if let Some(slot) = self.stale_addresses.get(addr) {
            return Some(*slot);
        }
        let is = |e: &Endpoint| Addr::v4(e.v4) == *addr || Addr::v6(e.v6) == *addr;
        self.endpoints.iter().find(|(_, e)| is(e)).map(|(slot, _)| *slot)
    }

    fn endpoint(&self, slot: u32) -> Option<&Endpoint> {
        self.endpoints.get(&slot)
    }

    fn route(&self, addr: &Addr) -> Option<Route> {
        longest(&self.routes, addr)
    }

    fn node(&self, number: u16) -> Option<&Node> {
        self.nodes.get(&number)
    }

    fn uplink(&self, ifindex: u32) -> Option<&Uplink> {
        self.uplinks.get(&ifindex)
    }

    fn flow4(&self, key: &FlowKey4, table: Table) -> Option<Self::Flow> {
        self.lookups.set(self.lookups.get() + 1);
        let rows = if table == Table::Established { &self.flow4 } else { &self.flow4_new };
        rows.borrow().get(key).copied()
    }

    fn flow6(&self, key: &FlowKey6, table: Table) -> Option<Self::Flow> {
        self.lookups.set(self.lookups.get() + 1);
        let rows = if table == Table::Established { &self.flow6 } else { &self.flow6_new };
        rows.borrow().get(key).copied()
    }

    fn put_flow4(&self, key: &FlowKey4, entry: &FlowEntry, table: Table, how: Insert) -> Result<(), InsertError> {
        match table {
            Table::Probation => put(&self.flow4_new, key, entry, how, 0),
            Table::Established => put(&self.flow4, key, entry, how, self.established_limit),
        }
    }

    fn put_flow6(&self, key: &FlowKey6, entry: &FlowEntry, table: Table, how: Insert) -> Result<(), InsertError> {
        match table {
            Table::Probation => put(&self.flow6_new, key, entry, how, 0),
            Table::Established => put(&self.flow6, key, entry, how, self.established_limit),
        }
    }

    fn remove_flow4(&self, key: &FlowKey4, table: Table) {
        let rows = if table == Table::Established { &self.flow4 } else { &self.flow4_new };
        rows.borrow_mut().remove(key);
    }

    fn remove_flow6(&self, key: &FlowKey6, table: Table) {
        let rows = if table == Table::Established { &self.flow6 } else { &self.flow6_new };
        rows.borrow_mut().remove(key);
    }

    fn fragment(&self, key: &FragmentKey) -> Option<FragmentRow> {
        self.fragments.borrow().iter().find(|(k, _)| k == key).map(|(_, row)| *row)
    }

    fn put_fragment(&self, key: &FragmentKey, row: &FragmentRow) {
        let mut rows = self.fragments.borrow_mut();
        rows.retain(|(k, _)| k != key);
        rows.push((*key, *row));
    }

    fn endpoint_flows(&self, slot: u32) -> u32 {
        self.budgets.borrow().get(&slot).map_or(0, |b| b.0)
    }

    fn set_endpoint_flows(&self, slot: u32, flows: u32) {
        self.budgets.borrow_mut().entry(slot).or_default().0 = flows;
    }

    fn bucket(&self, slot: u32) -> u32 {
        self.budgets.borrow().get(&slot).map_or(0, |b| b.1)
    }

    fn set_bucket(&self, slot: u32, bucket: u32) {
        self.budgets.borrow_mut().entry(slot).or_default().1 = bucket;
    }

    fn keep_outer(&self, outer: &Addr) {
        self.outer.set(*outer);
    }

    fn count(&self, stat: Stat) {
        *self.stats.borrow_mut().entry(stat).or_default() += 1;
    }
}
