//! The object in a namespace of its own, with the rows of a node that has one pod, another node behind a tunnel, and a way out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, MapData, ProgramArray};
use aya::programs::SchedClassifier;
use aya::{Ebpf, EbpfLoader, TestRun, TestRunOptions};
use osmia_lab::Space;
use osmia_maps::layout::config::C_IPV6;
use osmia_maps::layout::drops::DropCount;
use osmia_maps::layout::endpoint::{E_PRESENT, E_READY};
use osmia_maps::layout::node::{N_OUTER_V6, N_PRESENT, N_TUNNEL};
use osmia_maps::layout::route::RouteKind;
use osmia_maps::layout::{Addr, Config, DropReason, Endpoint, Node, Route, RouteKey, Uplink, maps, programs};

/// `TC_ACT_SHOT`.
pub(crate) const SHOT: u32 = 2;
/// `TC_ACT_REDIRECT`.
pub(crate) const REDIRECT: u32 = 7;

/// The pods' gateway.
pub(crate) const GATEWAY: [u8; 6] = [0x02, 0x6f, 0x73, 0x6d, 0, 1];
/// The pod.
pub(crate) const POD_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const POD4: Ipv4Addr = Ipv4Addr::new(10, 1, 1, 2);
pub(crate) const POD6: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 1, 0, 0, 0, 2);
/// A pod of the other node.
pub(crate) const FAR4: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 2);
pub(crate) const FAR6: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 2, 0, 0, 0, 2);
/// This node.
pub(crate) const HERE4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const HERE6: Ipv6Addr = Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 1);
/// The other node.
pub(crate) const THERE4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub(crate) const THERE6: Ipv6Addr = Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 2);
/// Outside.
pub(crate) const OUTSIDE4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
pub(crate) const OUTSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
/// What passes on the way to the other node.
pub(crate) const TUNNEL_MTU: u16 = 1430;

/// Test-run's device, which stands for the pod's link as well.
const LOOPBACK: u32 = 1;
const OTHER: u16 = 2;
const SLOT: u32 = 1;

/// A node with one pod.
pub(crate) struct Cluster {
    ebpf: Ebpf,
    space: Space,
}

impl Cluster {
    /// `outer_v6`: the family of the nodes' tunnel.
    pub(crate) fn new(outer_v6: bool) -> Result<Self> {
        let space = Space::network("packet")?;
        space.ip("link add door type veth peer name uplink
link set door up
link set uplink up
address add 192.0.2.1/24 dev uplink
address add fd02::1/64 dev uplink nodad
route add default via 192.0.2.254
route add default via fd02::fe
")?;
        space.sysctl(&[("net/ipv4/conf/door/forwarding", "1"), ("net/ipv6/conf/door/forwarding", "1")])?;
        let ebpf = space.run(load)??;
        let mut object = Self { ebpf, space };
        object.rows(outer_v6)?;
        Ok(object)
    }

    fn rows(&mut self, outer_v6: bool) -> Result<()> {
        let (door, uplink) = (self.ifindex("door")?, self.ifindex("uplink")?);
        let config = config(door, HERE4, HERE6, TUNNEL_MTU);
        self.array::<Config>(maps::CONFIG)?.set(0, &config, 0)?;
        let row = Uplink { v4: config.node4, mtu: 1500, v6: config.node6, ..Uplink::default() };
        self.hash::<u32, Uplink>(maps::UPLINKS)?.insert(&uplink, &row, 0)?;
        self.array::<u32>(maps::EPOCHS)?.set(0, &1, 0)?;
        self.array::<u32>(maps::EPOCHS)?.set(SLOT, &100, 0)?;
        let pod = Endpoint {
            ifindex: LOOPBACK,
            flags: E_PRESENT | E_READY,
            v4: POD4.octets(),
            v6: POD6.octets(),
            ..Endpoint::default()
        };
        self.array::<Endpoint>(maps::ENDPOINTS)?.set(SLOT, &pod, 0)?;
        self.hash::<u32, u32>(maps::ENDPOINT_IF)?.insert(&LOOPBACK, &SLOT, 0)?;
        for address in [IpAddr::from(POD4), POD6.into()] {
            self.hash::<Addr, u32>(maps::ENDPOINT_ADDR)?.insert(&addr(address), &SLOT, 0)?;
        }
        self.route(Ipv4Addr::new(10, 1, 1, 0), 24, RouteKind::LocalBlock, 0)?;
        self.route(Ipv4Addr::new(10, 1, 2, 0), 24, RouteKind::RemoteBlock, OTHER)?;
        self.route(Ipv6Addr::new(0xfd01, 0, 0, 1, 0, 0, 0, 0), 64, RouteKind::LocalBlock, 0)?;
        self.route(Ipv6Addr::new(0xfd01, 0, 0, 2, 0, 0, 0, 0), 64, RouteKind::RemoteBlock, OTHER)?;
        for (address, kind, node) in [
            (IpAddr::from(HERE4), RouteKind::LocalNode, 0),
            (HERE6.into(), RouteKind::LocalNode, 0),
            (THERE4.into(), RouteKind::RemoteNode, OTHER),
            (THERE6.into(), RouteKind::RemoteNode, OTHER),
        ] {
            self.route(address, if address.is_ipv4() { 32 } else { 128 }, kind, node)?;
        }
        let there = if outer_v6 { THERE6.into() } else { THERE4.into() };
        let node = Node {
            flags: N_PRESENT | N_TUNNEL | if outer_v6 { N_OUTER_V6 } else { 0 },
            uplink,
            mtu: TUNNEL_MTU,
            zero: [0; 6],
            tunnel: addr(there),
            next_hop4: addr(there),
            next_hop6: addr(there),
            next_hop_tunnel: addr(there),
            outer: if outer_v6 { template(HERE6.into(), THERE6.into()) } else { template(HERE4.into(), THERE4.into()) },
        };
        Ok(self.array::<Node>(maps::NODES)?.set(OTHER.into(), &node, 0)?)
    }

    /// What a program makes of a frame, and its result.
    pub(crate) fn run(&self, program: programs::Attached, frame: &[u8]) -> Result<(u32, Vec<u8>)> {
        let program: &SchedClassifier = self.ebpf.program(program.name).context(program.name)?.try_into()?;
        let mut out = vec![0; 4096];
        let options = TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::new() };
        let outcome = self.space.run(|| program.test_run(options))??;
        let length = outcome.data_size_out as usize;
        out.truncate(length);
        Ok((outcome.return_value, out))
    }

    /// Results of programs on frames, one after the other.
    pub(crate) fn verdicts(&self, runs: &[(programs::Attached, &[u8])]) -> Result<Vec<u32>> {
        let run = |(program, frame): &(programs::Attached, &[u8])| {
            let program: &SchedClassifier = self.ebpf.program(program.name).context(program.name)?.try_into()?;
            let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() };
            Ok(program.test_run(options)?.return_value)
        };
        self.space.run(|| runs.iter().map(run).collect())?
    }

    /// Packets dropped for a reason.
    pub(crate) fn dropped(&self, reason: DropReason) -> Result<u64> {
        let map = self.ebpf.map(maps::DROPS).context("map drops")?;
        let rows: aya::maps::PerCpuArray<_, DropCount> = map.try_into()?;
        Ok(rows.get(&(reason as u32), 0)?.iter().map(|c| c.packets).sum())
    }

    fn route(&mut self, prefix: impl Into<IpAddr>, bits: u32, kind: RouteKind, node: u16) -> Result<()> {
        let RouteKey { bits, addr } = self::prefix(prefix.into(), bits);
        let map = self.ebpf.map_mut(maps::ROUTES).context("map routes")?;
        let mut routes: LpmTrie<_, [u8; 16], Route> = map.try_into()?;
        Ok(routes.insert(&Key::new(bits, addr), &Route { kind: kind as u8, zero: 0, node }, 0)?)
    }

    fn array<V: aya::Pod>(&mut self, name: &str) -> Result<Array<&mut MapData, V>> {
        Ok(Array::try_from(self.ebpf.map_mut(name).with_context(|| format!("map {name}"))?)?)
    }

    fn hash<K: aya::Pod, V: aya::Pod>(&mut self, name: &str) -> Result<HashMap<&mut MapData, K, V>> {
        Ok(HashMap::try_from(self.ebpf.map_mut(name).with_context(|| format!("map {name}"))?)?)
    }

    fn ifindex(&self, name: &str) -> Result<u32> {
        let link = self.space.output(std::process::Command::new("ip").args(["-o", "link", "show", name]))?;
        link.split(':').next().and_then(|n| n.trim().parse().ok()).with_context(|| format!("ip says {link:?}"))
    }
}

/// A node with these addresses, whose pods' door and tunnel are one device.
pub(crate) fn config(door: u32, node4: Ipv4Addr, node6: Ipv6Addr, pod_mtu: u16) -> Config {
    Config {
        mark: 0x0100_0000,
        flags: C_IPV6,
        door_host: door,
        door_pods: door,
        tunnel_dev: door,
        vni: 1,
        tunnel_port: 4789_u16.to_be_bytes(),
        pod_mtu,
        masq_min: 61_000,
        masq_max: 65_535,
        gateway_mac: GATEWAY,
        node4: node4.octets(),
        node6: node6.octets(),
        endpoint_flows: 1000,
        too_big_rate: 10,
        ..Config::default()
    }
}

/// A prefix as the routes have it.
pub(crate) fn prefix(address: IpAddr, bits: u32) -> RouteKey {
    RouteKey { bits: if address.is_ipv4() { Addr::MAPPED_BITS + bits } else { bits }, addr: addr(address).0 }
}

/// An address as the tables have it.
pub(crate) fn addr(ip: IpAddr) -> Addr {
    match ip {
        IpAddr::V4(a) => Addr::v4(a.octets()),
        IpAddr::V6(a) => Addr::v6(a.octets()),
    }
}

/// As the agent writes it: lengths, IPv4 checksum, source port and inner EtherType zero.
pub(crate) fn template(from: IpAddr, to: IpAddr) -> [u8; 72] {
    let mut bytes = match (from, to) {
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            [&[0x60, 0, 0, 0, 0, 0, 17, 64][..], &from.octets(), &to.octets()].concat()
        }
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            [&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0][..], &from.octets(), &to.octets()].concat()
        }
        _ => panic!("{from} and {to} are of two families"),
    };
    bytes.extend([0, 0, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0, 2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4]);
    bytes.resize(72, 0);
    bytes.try_into().expect("72 bytes")
}

/// Every program through the verifier, and the jump table.
pub(crate) fn load() -> Result<Ebpf> {
    let path = std::env::var_os("OSMIA_OBJECT").context("OSMIA_OBJECT is not set: run `cargo xtask test packet`")?;
    let mut loader = EbpfLoader::new();
    for name in [maps::FLOW4, maps::FLOW6, maps::FLOW4_NEW, maps::FLOW6_NEW] {
        loader.map_max_entries(name, 4096);
    }
    let mut ebpf = loader.load_file(&path).with_context(|| format!("load {}", path.display()))?;
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
