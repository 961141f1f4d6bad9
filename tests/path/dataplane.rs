//! The object on one node: loaded, attached, its rows written by hand.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, MapData, PerCpuArray, ProgramArray};
use aya::programs::{SchedClassifier, tc::TcAttachType};
use aya::{Ebpf, EbpfLoader, TestRun, TestRunOptions};
use osmia_lab::{Node as LabNode, Space, UPLINK};
use osmia_maps::layout::config::C_IPV6;
use osmia_maps::layout::drops::DropCount;
use osmia_maps::layout::endpoint::{E_PRESENT, E_READY, E_SLOW_PATH};
use osmia_maps::layout::programs::{self, Attached};
use osmia_maps::layout::route::RouteKind;
use osmia_maps::layout::{Addr, Config, DropReason, Endpoint, Node, Route, Stat, Uplink, maps};

use crate::bench::object;

/// The pods' gateway MAC.
pub(crate) const GATEWAY_MAC: &str = "02:6f:73:6d:00:01";
const GATEWAY: [u8; 6] = [0x02, 0x6f, 0x73, 0x6d, 0x00, 0x01];
/// Jiffies a second that times are made from; only the speed of clocks depends on it.
const HZ: u32 = 250;

pub(crate) struct Dataplane {
    ebpf: Ebpf,
    space: Space,
    pub(crate) uplink: u32,
    pub(crate) config: Config,
    slots: u32,
}

impl Dataplane {
    /// Door, tunnel device, programs.
    pub(crate) fn start(node: &LabNode, pod_mtu: u16) -> Result<Self> {
        let space = node.space.try_clone()?;
        devices(node, pod_mtu)?;
        let ebpf = space.run(load)??;
        let uplink = ifindex(&space, UPLINK)?;
        let config = Config {
            mark: 0x0100_0000,
            flags: C_IPV6,
            door_host: ifindex(&space, "osmia0")?,
            door_pods: ifindex(&space, "osmia1")?,
            tunnel_dev: ifindex(&space, "osmia-vx")?,
            vni: 1,
            tunnel_port: 4789_u16.to_be_bytes(),
            pod_mtu,
            masq_min: 61_000,
            masq_max: 65_535,
            gateway_mac: GATEWAY,
            node4: node.v4().octets(),
            node6: node.v6().octets(),
            endpoint_flows: 10_000,
            too_big_rate: 10,
            ticks_per_second: HZ,
            ..Config::default()
        };
        let mut plane = Self { ebpf, space, uplink, config, slots: 0 };
        plane.configure(config)?;
        let row = Uplink { v4: config.node4, mtu: 1500, v6: config.node6, ..Uplink::default() };
        plane.hash::<u32, Uplink>(maps::UPLINKS)?.insert(&uplink, &row, 0)?;
        // Row 0 of the epochs, the route generation.
        plane.array::<u32>(maps::EPOCHS)?.set(0, &1, 0)?;
        plane.attach(programs::FROM_UPLINK, uplink)?;
        plane.attach(programs::TO_UPLINK, uplink)?;
        plane.attach(programs::TO_DOOR, config.door_host)?;
        plane.attach(programs::FROM_DOOR, config.door_pods)?;
        plane.attach(programs::FROM_TUNNEL_DEVICE, config.tunnel_dev)?;
        Ok(plane)
    }

    pub(crate) fn configure(&mut self, config: Config) -> Result<()> {
        self.config = config;
        Ok(self.array::<Config>(maps::CONFIG)?.set(0, &config, 0)?)
    }

    pub(crate) fn route(&mut self, prefix: impl Into<IpAddr>, bits: u32, kind: RouteKind, node: u16) -> Result<()> {
        let prefix = prefix.into();
        let bits = if prefix.is_ipv4() { Addr::MAPPED_BITS + bits } else { bits };
        let map = self.ebpf.map_mut(maps::ROUTES).context("map routes")?;
        let mut routes: LpmTrie<_, [u8; 16], Route> = map.try_into()?;
        Ok(routes.insert(&Key::new(bits, addr(prefix).0), &Route { kind: kind as u8, zero: 0, node }, 0)?)
    }

    pub(crate) fn node(&mut self, number: u16, row: &Node) -> Result<()> {
        Ok(self.array::<Node>(maps::NODES)?.set(number.into(), row, 0)?)
    }

    pub(crate) fn node_row(&mut self, number: u16) -> Result<Node> {
        Ok(self.array::<Node>(maps::NODES)?.get(&number.into(), 0)?)
    }

    pub(crate) fn next_slot(&mut self) -> u32 {
        self.slots += 1;
        self.slots
    }

    pub(crate) fn endpoint(&mut self, slot: u32, link: &str, v4: Ipv4Addr, v6: Ipv6Addr) -> Result<()> {
        let ifindex = ifindex(&self.space, link)?;
        let row =
            Endpoint { ifindex, flags: E_PRESENT | E_READY, v4: v4.octets(), v6: v6.octets(), ..Endpoint::default() };
        self.array::<u32>(maps::EPOCHS)?.set(slot, &(slot * 1000), 0)?;
        self.array::<Endpoint>(maps::ENDPOINTS)?.set(slot, &row, 0)?;
        self.hash::<Addr, u32>(maps::ENDPOINT_ADDR)?.insert(&addr(v4.into()), &slot, 0)?;
        self.hash::<Addr, u32>(maps::ENDPOINT_ADDR)?.insert(&addr(v6.into()), &slot, 0)?;
        self.hash::<u32, u32>(maps::ENDPOINT_IF)?.insert(&ifindex, &slot, 0)?;
        self.attach(programs::FROM_POD, ifindex)?;
        self.attach(programs::TO_POD, ifindex)
    }

    /// Puts an endpoint onto the slow path.
    pub(crate) fn slow_path(&mut self, slot: u32) -> Result<()> {
        let mut rows = self.array::<Endpoint>(maps::ENDPOINTS)?;
        let row = rows.get(&slot, 0)?;
        Ok(rows.set(slot, &Endpoint { flags: row.flags | E_SLOW_PATH, ..row }, 0)?)
    }

    pub(crate) fn drops(&self) -> Result<Vec<(DropReason, u64)>> {
        let map = self.ebpf.map(maps::DROPS).context("map drops")?;
        let rows: PerCpuArray<_, DropCount> = map.try_into()?;
        let mut drops = Vec::new();
        for reason in DropReason::ALL {
            let packets = rows.get(&(reason as u32), 0)?.iter().map(|c| c.packets).sum();
            if packets != 0 {
                drops.push((reason, packets));
            }
        }
        Ok(drops)
    }

    pub(crate) fn stat(&self, stat: Stat) -> Result<u64> {
        let map = self.ebpf.map(maps::STATS).context("map stats")?;
        let rows: PerCpuArray<_, u64> = map.try_into()?;
        Ok(rows.get(&(stat as u32), 0)?.iter().sum())
    }

    fn attach(&mut self, hook: Attached, ifindex: u32) -> Result<()> {
        let kind = if hook.ingress { TcAttachType::Ingress } else { TcAttachType::Egress };
        let program: &mut SchedClassifier = self.ebpf.program_mut(hook.name).context(hook.name)?.try_into()?;
        self.space.run(|| program.attach(ifindex, kind))?.with_context(|| format!("attach {}", hook.name))?;
        Ok(())
    }

    fn array<V: aya::Pod>(&mut self, name: &str) -> Result<Array<&mut MapData, V>> {
        let map = self.ebpf.map_mut(name).with_context(|| format!("map {name}"))?;
        Ok(Array::try_from(map)?)
    }

    fn hash<K: aya::Pod, V: aya::Pod>(&mut self, name: &str) -> Result<HashMap<&mut MapData, K, V>> {
        let map = self.ebpf.map_mut(name).with_context(|| format!("map {name}"))?;
        Ok(HashMap::try_from(map)?)
    }
}

/// An address as the tables have it.
pub(crate) fn addr(ip: IpAddr) -> Addr {
    match ip {
        IpAddr::V4(a) => Addr::v4(a.octets()),
        IpAddr::V6(a) => Addr::v6(a.octets()),
    }
}

/// The door and the collect-metadata device, as the agent makes them.
fn devices(node: &LabNode, pod_mtu: u16) -> Result<()> {
    let (v4, v6) = (node.v4(), node.v6());
    node.space.ip(&format!(
        "link add osmia0 address {GATEWAY_MAC} mtu {pod_mtu} type veth peer name osmia1 mtu {pod_mtu}
link set osmia0 addrgenmode none arp off
link set osmia1 addrgenmode none
link set osmia1 up
link set osmia0 up
route add 10.1.0.0/16 dev osmia0 src {v4}
route add fd01::/48 dev osmia0 src {v6}
link add osmia-vx address 02:6f:73:6d:00:04 type vxlan external dstport 4789 udp6zerocsumrx
link set osmia-vx addrgenmode none up
"
    ))?;
    // `bpf_fib_lookup` answers for a device that forwards; nothing else is forwarded, as no route leads from it.
    node.space.sysctl(&[("net/ipv4/conf/osmia0/forwarding", "1"), ("net/ipv6/conf/osmia0/forwarding", "1")])
}

/// Every program through the verifier, and the jump table.
fn load() -> Result<Ebpf> {
    let path = object()?;
    let known = {
        let mut probe = loader().load_file(&path)?;
        let program: &mut SchedClassifier = probe.program_mut(programs::HAS_CSUM_IPV6).context("probe")?.try_into()?;
        program.load()?;
        program.test_run(TestRunOptions { data_in: Some(&[0; 128]), ..TestRunOptions::new() })?.return_value
    };
    let mut loader = loader();
    loader.override_global("HAVE_CSUM_IPV6", &known, true).override_global(programs::TICKS_PER_SECOND, &HZ, true);
    let ebpf = loader.load_file(&path);
    let mut ebpf = ebpf.with_context(|| format!("load {}", path.display()))?;
    let mut table = ProgramArray::try_from(ebpf.take_map(maps::PROGS).context("map progs")?)?;
    for name in programs::ATTACHED.iter().map(|p| p.name).chain(programs::JUMPS) {
        let program: &mut SchedClassifier = ebpf.program_mut(name).context(name)?.try_into()?;
        program.load().with_context(|| format!("the verifier and {name}"))?;
    }
    for (row, name) in (0..).zip(programs::JUMPS) {
        let program: &mut SchedClassifier = ebpf.program_mut(name).context(name)?.try_into()?;
        table.set(row, program.fd()?, 0)?;
    }
    // A jump table that nobody holds is emptied by the kernel.
    std::mem::forget(table);
    Ok(ebpf)
}

/// Maps of a size that a test needs.
fn loader() -> EbpfLoader<'static> {
    let mut loader = EbpfLoader::new();
    for name in [maps::FLOW4, maps::FLOW6, maps::FLOW4_NEW, maps::FLOW6_NEW] {
        loader.map_max_entries(name, 4096);
    }
    loader
}

pub(crate) fn ifindex(space: &Space, name: &str) -> Result<u32> {
    let path = format!("/sys/class/net/{name}/ifindex");
    let text = space.run(|| std::fs::read_to_string(&path))?.with_context(|| format!("read {path}"))?;
    text.trim().parse().with_context(|| format!("{path} says {text:?}"))
}
