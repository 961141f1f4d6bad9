//! A machine with a bpffs of its own, the pins of a node on it, and the binary run there.

pub(crate) mod policed;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use aya::maps::{Array, HashMap, LpmTrie, PerCpuArray, PerCpuValues};
use osmia_lab::{Ended, Space, bin_dir};
use osmia_maps::{
    Access, Pins,
    layout::{
        Addr, Config, DropKey, DropReason, DropRow, Endpoint, FlowEntry, FlowKey4, FlowKey6, FragmentKey, FragmentRow,
        LAYOUT, Meta, Node, Route, RouteKey, Stat, Uplink, VerdictKey, VerdictRow, config,
        drops::{self, DropCount},
        endpoint::{E_PRESENT, E_READY},
        flow::{
            F_OPENER, F_REPLIED, F_REWRITE_DST, F_REWRITE_SRC, FlowAction, HOOK_TUNNEL, HOOK_UPLINK, NO_MTU,
            T_ESTABLISHED,
        },
        maps, meta,
        node::{N_PRESENT, N_TUNNEL},
        route::RouteKind,
        stats,
    },
    pins::DEFAULT_ROOT,
    tables,
};
use serde_json::Value;

pub(crate) use self::policed::Policed;

/// `BPF_F_NO_PREALLOC`, linux/bpf.h: LPM tries need it.
const NO_PREALLOC: u32 = 1;
/// The tick at which [`Machine::known_rows`] writes its rows; its clock has 250 Hz and ticks of 16 ms.
pub(crate) const NOW: u32 = 1_000_000;
/// The generation of the catalogue that the meta row has.
pub(crate) const GENERATION: u64 = 12;
/// Ten seconds in ticks.
pub(crate) const TEN_SECONDS: u32 = 625;
/// The node's address, which is local on the machine.
pub(crate) const NODE: [u8; 4] = [192, 0, 2, 1];
/// Node 3.
pub(crate) const OTHER: Addr = Addr::v4([192, 0, 2, 3]);
/// The two pods of the node, and one of node 3.
pub(crate) const POD_A: [u8; 4] = [10, 1, 0, 5];
pub(crate) const POD_B: [u8; 4] = [10, 1, 0, 6];
pub(crate) const FAR: [u8; 4] = [10, 2, 0, 7];
pub(crate) const POD_A6: [u8; 16] = [0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
pub(crate) const FAR6: [u8; 16] = [0xfd, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// Rows of `peers`: a hash takes its memory whole when it is made, and the kernel gives it back late.
const PEERS: u32 = 16_384;

/// Rows of `verdicts`.
const VERDICTS: u32 = 262_144;

/// Rows of the flow tables and of `endpoint_addr`.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) flows: u32,
    pub(crate) addresses: u32,
}

/// A mount and a network namespace with an empty bpffs.
pub(crate) struct Machine {
    pub(crate) space: Space,
    /// The agent's run folder, empty.
    pub(crate) run: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // What can not be removed stays in the temporary folder.
        let _ = fs::remove_dir_all(&self.run);
    }
}

impl Machine {
    pub(crate) fn new() -> Self {
        let space = Space::machine("osm-cli", Path::new("/sys/fs/bpf")).unwrap();
        let run = std::env::temp_dir().join(format!("osm-cli-{:x}", osmia_lab::random()));
        fs::create_dir(&run).unwrap();
        Self { space, run }
    }

    /// With all maps of the layout and rows that the tests know.
    pub(crate) fn with_rows() -> Self {
        let machine = Self::new();
        machine
            .space
            .ip("link add osmia0 index 40 type veth peer name osmia1 index 41\naddr add 192.0.2.1/32 dev lo")
            .unwrap();
        machine.inside(|pins| {
            create(pins, Sizes { flows: 64, addresses: 64 });
            known_rows(pins);
        });
        machine
    }

    /// Runs `f` with the pins of this build's layout, inside.
    pub(crate) fn inside<T: Send>(&self, f: impl FnOnce(&Pins) -> T + Send) -> T {
        self.space.run(|| f(&Pins::new(DEFAULT_ROOT))).unwrap()
    }

    /// Runs the binary, inside, with this machine's run folder.
    pub(crate) fn osmia(&self, arguments: &[&str]) -> Ended {
        self.space.feed(osmia(arguments).arg("--run").arg(&self.run), "").unwrap()
    }

    /// What it prints, when it ends well.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let ended = self.osmia(arguments);
        assert!(ended.status.success(), "osmia {arguments:?}: {}: {}", ended.status, ended.text());
        ended.stdout
    }

    /// Runs `status`, which is red on this machine since no program runs; gives its exit code and document.
    pub(crate) fn status(&self, arguments: &[&str]) -> (i32, Value) {
        let ended = self.osmia(&[&["status", "--json"], arguments].concat());
        let document = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.text()));
        (ended.status.code().unwrap(), document)
    }

    /// As [`Self::text`], with `--json`.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.text(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("osmia {arguments:?}: {error}: {text}"))
    }
}

/// The binary, to be run.
pub(crate) fn osmia(arguments: &[&str]) -> Command {
    let mut command = Command::new(bin_dir().unwrap().join("osmia"));
    command.args(arguments);
    command
}

/// Makes and pins every map of the layout, empty. LRU hashes are plain ones here: no row goes by itself.
pub(crate) fn create(pins: &Pins, sizes: Sizes) {
    fs::create_dir_all(pins.links()).unwrap();
    let at = |name: &str| pins.map(name);
    macro_rules! array {
        ($($name:expr, $value:ty, $rows:expr);+ $(;)?) => { $(
            Array::<_, $value>::create($rows, 0).unwrap().pin(at($name)).unwrap();
        )+ };
    }
    macro_rules! hash {
        ($($name:expr, $key:ty, $value:ty, $rows:expr);+ $(;)?) => { $(
            HashMap::<_, $key, $value>::create($rows, 0).unwrap().pin(at($name)).unwrap();
        )+ };
    }
    array! {
        maps::META, Meta, 1;
        maps::CONFIG, Config, 1;
        maps::EPOCHS, u32, maps::MAX_ENDPOINTS;
        maps::ENDPOINTS, Endpoint, maps::MAX_ENDPOINTS;
        maps::NODES, Node, maps::MAX_NODES;
        maps::BUDGETS, u64, maps::MAX_ENDPOINTS;
    }
    hash! {
        maps::ENDPOINT_IF, u32, u32, maps::MAX_ENDPOINTS;
        maps::ENDPOINT_ADDR, Addr, u32, sizes.addresses;
        maps::PEERS, Addr, u32, PEERS;
        maps::UPLINKS, u32, Uplink, maps::MAX_UPLINKS;
        maps::FLOW4_NEW, FlowKey4, FlowEntry, sizes.flows;
        maps::FLOW4, FlowKey4, FlowEntry, sizes.flows;
        maps::FLOW6_NEW, FlowKey6, FlowEntry, sizes.flows;
        maps::FLOW6, FlowKey6, FlowEntry, sizes.flows;
        maps::FRAGMENTS, FragmentKey, FragmentRow, maps::MAX_FRAGMENTS;
        maps::DROP_ROWS, DropKey, DropRow, maps::MAX_DROP_ROWS;
    }
    LpmTrie::<_, [u8; 16], Route>::create(maps::MAX_ROUTES, NO_PREALLOC).unwrap().pin(at(maps::ROUTES)).unwrap();
    LpmTrie::<_, [u8; 16], u32>::create(maps::MAX_PEER_BLOCKS, NO_PREALLOC)
        .unwrap()
        .pin(at(maps::PEER_BLOCKS))
        .unwrap();
    HashMap::<_, VerdictKey, VerdictRow>::create(VERDICTS, NO_PREALLOC).unwrap().pin(at(maps::VERDICTS)).unwrap();
    PerCpuArray::<_, u64>::create(stats::STAT_ROWS, 0).unwrap().pin(at(maps::STATS)).unwrap();
    PerCpuArray::<_, DropCount>::create(drops::DROP_ROWS, 0).unwrap().pin(at(maps::DROPS)).unwrap();
    put_meta(pins, LAYOUT);
}

/// The meta row: the clock shows [`NOW`] at this moment.
pub(crate) fn put_meta(pins: &Pins, layout: u32) {
    let mut version = [0; 32];
    version[..9].copy_from_slice(b"0.1.0-cli");
    let now = osmia_maps::clock::monotonic_ns();
    let row = Meta {
        magic: meta::MAGIC,
        layout,
        tick_shift: 2,
        hz: 250,
        clock_ns: now,
        jiffies: u64::from(NOW) << 2,
        loaded_ns: now.saturating_sub(5_000_000_000),
        object: 0xab,
        catalogue: GENERATION,
        version,
        ..Meta::default()
    };
    tables::META.open(pins, Access::ReadWrite).unwrap().put(&0, &row).unwrap();
}

/// What a set says of anybody, if that is nothing but what isolates.
pub(crate) fn base(set: u32, cookie: u32) -> (VerdictKey, VerdictRow) {
    (VerdictKey::head(set, 0), VerdictRow { cookie, ..VerdictRow::default() })
}

/// Writes rows of tables by name.
macro_rules! put {
    ($pins:ident, $($table:ident: $($key:expr => $value:expr),+ ;)+) => { $(
        tables::$table.open($pins, Access::ReadWrite).unwrap().put_all(&[$(($key, $value)),+]).unwrap();
    )+ };
}

pub(crate) fn flow4(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16, proto: u8) -> FlowKey4 {
    FlowKey4 { src, dst, sport: sport.to_be_bytes(), dport: dport.to_be_bytes(), proto, ..FlowKey4::default() }
}

pub(crate) fn route(bits: u32, addr: [u8; 4], kind: RouteKind, node: u16) -> (RouteKey, Route) {
    (RouteKey { bits: Addr::MAPPED_BITS + bits, addr: Addr::v4(addr).0 }, Route { kind: kind as u8, zero: 0, node })
}

pub(crate) use put;

/// A row in every map: two pods, one other node by tunnel, one uplink, flows to it, within the node and outside.
fn known_rows(pins: &Pins) {
    let pod = |ifindex, v4, v6, flags| Endpoint {
        ifindex,
        flags,
        v4,
        v6,
        mac: [2, 0, 0, 0, 0, ifindex as u8],
        ..Endpoint::default()
    };
    let mut outer = [0; 72];
    outer[12..16].copy_from_slice(&NODE);
    let node = Node {
        flags: N_PRESENT | N_TUNNEL,
        uplink: 42,
        mtu: 1450,
        zero: [0; 6],
        tunnel: OTHER,
        next_hop4: Addr::NONE,
        next_hop6: Addr::NONE,
        next_hop_tunnel: OTHER,
        outer,
    };
    let config = Config {
        mark: 0x100_0000,
        flags: config::C_IPV6,
        door_host: 40,
        door_pods: 41,
        tunnel_dev: 43,
        vni: 1,
        tunnel_port: 4789_u16.to_be_bytes(),
        pod_mtu: 1450,
        masq_min: 61000,
        masq_max: 65535,
        node4: NODE,
        ..Config::default()
    };
    // Decided under epoch 7 of slot 1 and route generation 9.
    let entry = FlowEntry {
        mtu: NO_MTU,
        src_slot: 1,
        src_epoch: 7,
        route_gen: 9,
        packets: 10,
        bytes: 5000,
        created: NOW - 2 * TEN_SECONDS,
        last_seen: NOW - TEN_SECONDS,
        ..FlowEntry::default()
    };
    let to_far = FlowEntry {
        hook: 50,
        action: FlowAction::Tunnel as u8,
        target: 3,
        flags: F_OPENER | F_REPLIED,
        tcp: T_ESTABLISHED,
        ..entry
    };
    let from_far = FlowEntry {
        hook: HOOK_TUNNEL,
        from_node: 3,
        action: FlowAction::Peer as u8,
        target: 50,
        src_slot: 0,
        src_epoch: 0,
        dst_slot: 1,
        dst_epoch: 7,
        last_seen: NOW - TEN_SECONDS / 2,
        ..entry
    };
    let stale = FlowEntry { src_epoch: 6, last_seen: NOW - 3 * TEN_SECONDS, ..to_far };
    let outside = FlowEntry {
        hook: 50,
        action: FlowAction::Uplink as u8,
        target: 42,
        flags: F_OPENER | F_REWRITE_SRC,
        new_src: Addr::v4(NODE),
        new_sport: 61001_u16.to_be_bytes(),
        last_seen: NOW,
        ..entry
    };
    let back = FlowEntry {
        hook: HOOK_UPLINK,
        action: FlowAction::Peer as u8,
        target: 50,
        flags: F_REWRITE_DST,
        new_dst: Addr::v4(POD_A),
        new_dport: 53_u16.to_be_bytes(),
        src_slot: 0,
        dst_slot: 1,
        dst_epoch: 7,
        ..entry
    };
    let v6 = FlowKey6 {
        src: POD_A6,
        dst: FAR6,
        sport: 40_000_u16.to_be_bytes(),
        dport: 443_u16.to_be_bytes(),
        proto: 6,
        ..FlowKey6::default()
    };
    let drop = DropKey {
        src: Addr::v4(POD_A),
        dst: Addr::v4([10, 9, 9, 9]),
        sport: 40_000_u16.to_be_bytes(),
        dport: 25_u16.to_be_bytes(),
        proto: 6,
        reason: DropReason::Unowned as u8,
        zero: [0; 2],
        ifindex: 50,
        cookie: 0,
    };
    let fragment =
        FragmentKey { src: Addr::v4(POD_A), dst: Addr::v4(FAR), id: [0x1f, 0x3a, 0, 0], proto: 17, zero: [0; 3] };
    put! { pins,
        CONFIG: 0 => config;
        EPOCHS: 0 => 9, 1 => 7, 2 => 8;
        ENDPOINTS: 1 => pod(50, POD_A, POD_A6, E_PRESENT | E_READY), 2 => pod(51, POD_B, [0; 16], E_PRESENT);
        BUDGETS: 1 => (5 << 32) + 2;
        ENDPOINT_IF: 50 => 1, 51 => 2;
        PEERS: Addr::v4([10, 2, 0, 9]) => 1;
        PEER_BLOCKS: route(24, [203, 0, 113, 0], RouteKind::Unowned, 0).0 => 2;
        ENDPOINT_ADDR: Addr::v4(POD_A) => 1, Addr::v6(POD_A6) => 1, Addr::v4(POD_B) => 2;
        NODES: 3 => node;
        UPLINKS: 42 => Uplink { v4: NODE, mtu: 1500, mac: [2, 0, 0, 0, 0, 42], ..Uplink::default() };
        FLOW4: flow4(POD_A, 40_000, FAR, 80, 6) => to_far, flow4(FAR, 80, POD_A, 40_000, 6) => from_far;
        FLOW4_NEW: flow4(POD_A, 53, [198, 51, 100, 1], 53, 17) => outside, flow4([198, 51, 100, 1], 53, NODE, 61_001, 17) => back;
        FLOW6: v6 => stale;
        FLOW6_NEW: FlowKey6 { zone: 1, ..v6 } => stale;
        FRAGMENTS: fragment => FragmentRow { sport: [0, 53], dport: [0x10, 0], proto: 17, zero: [0; 3], seen: NOW };
        DROP_ROWS: drop => DropRow { packets: 3, first: NOW - 2 * TEN_SECONDS, last: NOW - TEN_SECONDS },
            DropKey { reason: DropReason::Multicast as u8, ..drop } => DropRow { packets: 1, first: NOW, last: NOW };
    }
    tables::VERDICTS.open(pins, Access::ReadWrite).unwrap().put_all(&[base(9, 99)]).unwrap();
    let routes = [
        route(16, [10, 0, 0, 0], RouteKind::Unowned, 0),
        route(24, [10, 1, 0, 0], RouteKind::LocalBlock, 0),
        route(24, [10, 2, 0, 0], RouteKind::RemoteBlock, 3),
        route(32, [192, 0, 2, 3], RouteKind::RemoteNode, 3),
    ];
    tables::ROUTES.open(pins, Access::ReadWrite).unwrap().put_all(&routes).unwrap();
    count_drop(pins, DropReason::Unowned, DropCount { packets: 3, bytes: 300 });
    count_drop(pins, DropReason::Multicast, DropCount { packets: 1, bytes: 60 });
    count(pins, Stat::ForwardPeer, 1000);
}

/// Sets a counter.
pub(crate) fn count(pins: &Pins, stat: Stat, sum: u64) {
    put_per_cpu(pins, maps::STATS, stat as u32, sum, 0);
}

/// Sets the count of a reason.
pub(crate) fn count_drop(pins: &Pins, reason: DropReason, count: DropCount) {
    put_per_cpu(pins, maps::DROPS, reason as u32, count, DropCount::default());
}

/// All on the last CPU: a sum that looks at the first alone is wrong.
fn put_per_cpu<V: aya::Pod>(pins: &Pins, map: &str, row: u32, last: V, rest: V) {
    let data = aya::maps::MapData::from_pin(pins.map(map)).unwrap();
    let mut array: PerCpuArray<_, V> = aya::maps::Map::from_map_data(data).unwrap().try_into().unwrap();
    let cpus = aya::util::nr_cpus().unwrap().get() as usize;
    let mut values = vec![rest; cpus];
    *values.last_mut().unwrap() = last;
    array.set(row, PerCpuValues::try_from(values).unwrap(), 0).unwrap();
}
