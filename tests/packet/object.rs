//! The object in a namespace of its own, with the rows of a node with two pods.

use std::path::PathBuf;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, MapData, PerCpuArray, ProgramArray};
use aya::programs::SchedClassifier;
use aya::{Ebpf, EbpfLoader, Pod, TestRun, TestRunOptions};
use osmia_lab::Space;
use osmia_maps::layout::drops::DropCount;
use osmia_maps::layout::endpoint::{E_PRESENT, E_READY};
use osmia_maps::layout::programs;
use osmia_maps::layout::route::RouteKind;
use osmia_maps::layout::{
    Addr, Config, DropReason, Endpoint, FlowEntry, FlowKey4, FlowKey6, Route, RouteKey, Stat, maps,
};

/// `TC_ACT_SHOT`, linux/pkt_cls.h.
pub(crate) const SHOT: u32 = 2;
/// `TC_ACT_REDIRECT`.
pub(crate) const REDIRECT: u32 = 7;
/// `TCX_NEXT`, linux/bpf.h.
pub(crate) const NEXT: u32 = -1_i32 as u32;

/// Where a test-run's packet arrives: `lo`, the link of the sending pod here.
pub(crate) const LINK: u32 = 1;
/// The other pod's link. No such device: a redirect is asked for, not done.
pub(crate) const OTHER_LINK: u32 = 77;

/// The sending pod.
pub(crate) const A: [u8; 4] = [10, 0, 1, 2];
/// The other pod.
pub(crate) const B: [u8; 4] = [10, 0, 1, 3];
/// The sending pod's IPv6 address.
pub(crate) const A6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
/// The other pod's.
pub(crate) const B6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3];

/// What a program made of a packet.
pub(crate) struct Outcome {
    pub(crate) verdict: u32,
    pub(crate) packet: Vec<u8>,
}

/// The loaded object.
pub(crate) struct Object {
    ebpf: Ebpf,
    space: Space,
    /// A jump table that nobody holds is emptied by the kernel.
    jumps: ProgramArray<MapData>,
}

impl Object {
    /// Loads every program and writes the rows.
    pub(crate) fn load() -> Self {
        let path = std::env::var_os("OSMIA_OBJECT").expect("OSMIA_OBJECT is not set: run `cargo xtask test packet`");
        let space = Space::network("osm-packet").expect("a namespace");
        let mut loader = EbpfLoader::new();
        for name in [maps::FLOW4, maps::FLOW6, maps::FLOW4_NEW, maps::FLOW6_NEW] {
            loader.map_max_entries(name, 1024);
        }
        let mut ebpf = loader.load_file(PathBuf::from(path)).expect("the object's maps");
        let mut jumps = ProgramArray::try_from(ebpf.take_map(maps::PROGS).expect("map progs")).expect("a jump table");
        let attached = programs::ATTACHED.map(|hook| hook.name);
        for name in attached.into_iter().chain(programs::JUMPS).chain([programs::CLOCK]) {
            classifier(&mut ebpf, name).load().unwrap_or_else(|e| panic!("the verifier and {name}: {e:?}"));
        }
        for (row, name) in (0..).zip(programs::JUMPS) {
            let program = classifier(&mut ebpf, name).fd().expect("a loaded program");
            jumps.set(row, program, 0).expect("a row of the jump table");
        }
        let mut object = Self { ebpf, space, jumps };
        object.fill();
        object
    }

    fn fill(&mut self) {
        let config = Config {
            mark: 0x0100_0000,
            door_host: 5,
            door_pods: 6,
            pod_mtu: 1450,
            gateway_mac: [2, 0x6f, 0x73, 0x6d, 0, 1],
            node4: [192, 168, 0, 1],
            endpoint_flows: 1000,
            too_big_rate: 10,
            masq_min: 61_000,
            masq_max: 65_535,
            tunnel_port: 4789_u16.to_be_bytes(),
            vni: 1,
            ..Config::default()
        };
        self.array::<Config>(maps::CONFIG).set(0, &config, 0).expect("config");
        for (slot, ifindex, v4, v6) in [(1_u32, LINK, A, A6), (2, OTHER_LINK, B, B6)] {
            let row = Endpoint { ifindex, flags: E_PRESENT | E_READY, v4, v6, ..Endpoint::default() };
            self.array::<Endpoint>(maps::ENDPOINTS).set(slot, &row, 0).expect("an endpoint");
            self.array::<u32>(maps::EPOCHS).set(slot, &(slot * 100), 0).expect("an epoch");
            self.hash::<u32, u32>(maps::ENDPOINT_IF).insert(&ifindex, &slot, 0).expect("a link");
            self.hash::<Addr, u32>(maps::ENDPOINT_ADDR).insert(&Addr::v4(v4), &slot, 0).expect("an address");
            self.hash::<Addr, u32>(maps::ENDPOINT_ADDR).insert(&Addr::v6(v6), &slot, 0).expect("an address");
        }
        self.array::<u32>(maps::EPOCHS).set(0, &7, 0).expect("the route generation");
        self.route(Addr::MAPPED_BITS + 24, Addr::v4([10, 0, 1, 0]));
        self.route(64, Addr::v6([0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]));
    }

    fn route(&mut self, bits: u32, addr: Addr) {
        let key = RouteKey { bits, addr: addr.0 };
        let map = self.ebpf.map_mut(maps::ROUTES).expect("map routes");
        let mut routes: LpmTrie<_, [u8; 16], Route> = map.try_into().expect("a trie");
        let row = Route { kind: RouteKind::LocalBlock as u8, zero: 0, node: 0 };
        routes.insert(&Key::new(key.bits, key.addr), &row, 0).expect("a route");
    }

    /// Takes the programs behind away, so that only what the fast programs do alone is done.
    pub(crate) fn empty_jumps(&mut self) {
        for row in 0..programs::JUMPS.len() as u32 {
            self.jumps.clear_index(&row).expect("a row of the jump table");
        }
    }

    /// Runs a program on a packet.
    pub(crate) fn run(&mut self, name: &str, packet: &[u8]) -> Outcome {
        let mut out = vec![0; packet.len() + 256];
        let program = classifier(&mut self.ebpf, name);
        let options = TestRunOptions { data_in: Some(packet), data_out: Some(&mut out), ..TestRunOptions::default() };
        let result = self.space.run(|| program.test_run(options)).expect("in the namespace").expect("a test run");
        out.truncate(result.data_size_out as usize);
        Outcome { verdict: result.return_value, packet: out }
    }

    /// Packets dropped for a reason.
    pub(crate) fn drops(&self, reason: DropReason) -> u64 {
        let map = self.ebpf.map(maps::DROPS).expect("map drops");
        let rows: PerCpuArray<_, DropCount> = map.try_into().expect("a per-CPU array");
        rows.get(&(reason as u32), 0).expect("a row").iter().map(|count| count.packets).sum()
    }

    /// A counter.
    pub(crate) fn stat(&self, stat: Stat) -> u64 {
        let map = self.ebpf.map(maps::STATS).expect("map stats");
        let rows: PerCpuArray<_, u64> = map.try_into().expect("a per-CPU array");
        rows.get(&(stat as u32), 0).expect("a row").iter().sum()
    }

    /// An IPv4 flow's entry.
    pub(crate) fn flow4(&mut self, map: &str, key: &FlowKey4) -> Option<FlowEntry> {
        self.hash::<FlowKey4, FlowEntry>(map).get(key, 0).ok()
    }

    /// An IPv6 flow's entry.
    pub(crate) fn flow6(&mut self, map: &str, key: &FlowKey6) -> Option<FlowEntry> {
        self.hash::<FlowKey6, FlowEntry>(map).get(key, 0).ok()
    }

    /// Rows of an array.
    pub(crate) fn array<V: Pod>(&mut self, name: &str) -> Array<&mut MapData, V> {
        self.ebpf.map_mut(name).expect(name).try_into().expect("an array")
    }

    /// Rows of a hash.
    pub(crate) fn hash<K: Pod, V: Pod>(&mut self, name: &str) -> HashMap<&mut MapData, K, V> {
        self.ebpf.map_mut(name).expect(name).try_into().expect("a hash")
    }
}

fn classifier<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut SchedClassifier {
    ebpf.program_mut(name).expect(name).try_into().expect("a classifier")
}
