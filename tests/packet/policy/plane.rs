//! The object with the rows of a node: five pods' links, one node reached as it is and one by tunnel, and a way out. Policy rows and endpoints
//! are what a test writes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use anyhow::{Context, Result};
use aya::maps::lpm_trie::{Key as TrieKey, LpmTrie};
use aya::maps::{Array, HashMap, MapData};
use aya::programs::SchedClassifier;
use aya::{Ebpf, Pod, TestRun, TestRunOptions};
use osmia_agent::compile::policy::{CLOSED, Change, Rules};
use osmia_lab::Space;
use osmia_lab::packet::{Ip, frame};
use osmia_maps::layout::config::C_IPV6;
use osmia_maps::layout::endpoint::{E_PRESENT, E_READY};
use osmia_maps::layout::node::{N_PRESENT, N_TUNNEL};
use osmia_maps::layout::programs::{Attached, FROM_POD, FROM_UPLINK};
use osmia_maps::layout::route::RouteKind;
use osmia_maps::layout::{
    Addr, Asked, Config, DropKey, DropReason, DropRow, Endpoint, FlowEntry, FlowKey4, FlowKey6, Node, Route, Uplink,
    VerdictRow, maps,
};
use osmia_oracle::stories::{LOCALS, local_addresses};
use proptest::prop_assert_eq;
use proptest::test_runner::TestCaseError;

use super::ask::{Key, Question};
use crate::cluster::{self, GATEWAY, POD_MAC, REDIRECT, SHOT, addr};

const HERE4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const HERE6: Ipv6Addr = Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 1);
/// The node behind a tunnel.
const FAR4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);
/// Numbers of the node that is reached as it is, and of the other.
const NEAR: u16 = 2;
const FAR: u16 = 3;
const MTU: u16 = 1430;
/// The stories' pods of other nodes; the second half is behind the tunnel.
pub(crate) const REMOTE: [&str; 8] =
    ["10.0.0.20", "10.0.0.21", "fd00::20", "fd00::21", "10.0.0.22", "10.0.0.23", "fd00::22", "fd00::23"];
/// Ports that no question asks about.
const PORTS: std::ops::Range<u16> = 20_000..60_000;

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Passed,
    /// By this reason (a [`DropReason`]), by a rule set of this cookie.
    Dropped(u8, u32),
}

impl Outcome {
    pub(crate) fn is(self, reason: DropReason) -> bool {
        matches!(self, Self::Dropped(byte, _) if byte == reason as u8)
    }
}

/// The loaded object. Lives inside the namespace of [`devices`].
pub(crate) struct Plane {
    ebpf: Ebpf,
    links: Vec<u32>,
    uplink: u32,
    endpoints: Array<MapData, Endpoint>,
    epochs: Array<MapData, u32>,
    by_link: HashMap<MapData, u32, u32>,
    by_address: HashMap<MapData, Addr, u32>,
    peers: HashMap<MapData, Addr, u32>,
    blocks: LpmTrie<MapData, [u8; 16], u32>,
    verdicts: LpmTrie<MapData, Asked, VerdictRow>,
    flow4: HashMap<MapData, FlowKey4, FlowEntry>,
    flow6: HashMap<MapData, FlowKey6, FlowEntry>,
    drops: HashMap<MapData, DropKey, DropRow>,
    next_port: u16,
}

/// Pods' links, an uplink and routes.
pub(crate) fn devices(space: &Space) -> Result<()> {
    let links = (0..LOCALS).map(|pod| format!("link add pod{pod} type veth peer name eth{pod}\n"));
    space.ip(&(links.collect::<String>()
        + "link add door type veth peer name uplink
link set door up
link set uplink up
address add 198.18.0.1/24 dev uplink
address add fd02::1/64 dev uplink nodad
route add default via 198.18.0.254
route add default via fd02::fe
"))?;
    space.sysctl(&[("net/ipv4/conf/door/forwarding", "1"), ("net/ipv6/conf/door/forwarding", "1")])
}

fn ifindex(name: &str) -> Result<u32> {
    let out = Command::new("ip").args(["-o", "link", "show", name]).output().context("ip")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.split(':').next().and_then(|n| n.trim().parse().ok()).with_context(|| format!("ip says {text:?}"))
}

fn hash<K: Pod, V: Pod>(ebpf: &mut Ebpf, name: &str) -> Result<HashMap<MapData, K, V>> {
    Ok(HashMap::try_from(ebpf.take_map(name).with_context(|| format!("map {name}"))?)?)
}

fn array<V: Pod>(ebpf: &mut Ebpf, name: &str) -> Result<Array<MapData, V>> {
    Ok(Array::try_from(ebpf.take_map(name).with_context(|| format!("map {name}"))?)?)
}

fn trie<K: Pod, V: Pod>(ebpf: &mut Ebpf, name: &str) -> Result<LpmTrie<MapData, K, V>> {
    Ok(LpmTrie::try_from(ebpf.take_map(name).with_context(|| format!("map {name}"))?)?)
}

impl Plane {
    /// Loads it and writes the rows that are the same for every story.
    pub(crate) fn load() -> Result<Self> {
        let mut ebpf = cluster::load()?;
        let uplink = ifindex("uplink")?;
        let links = (0..LOCALS).map(|pod| ifindex(&format!("pod{pod}"))).collect::<Result<_>>()?;
        rows(&mut ebpf, uplink)?;
        Ok(Self {
            links,
            uplink,
            endpoints: array(&mut ebpf, maps::ENDPOINTS)?,
            epochs: array(&mut ebpf, maps::EPOCHS)?,
            by_link: hash(&mut ebpf, maps::ENDPOINT_IF)?,
            by_address: hash(&mut ebpf, maps::ENDPOINT_ADDR)?,
            peers: hash(&mut ebpf, maps::PEERS)?,
            blocks: trie(&mut ebpf, maps::PEER_BLOCKS)?,
            verdicts: trie(&mut ebpf, maps::VERDICTS)?,
            flow4: hash(&mut ebpf, maps::FLOW4_NEW)?,
            flow6: hash(&mut ebpf, maps::FLOW6_NEW)?,
            drops: hash(&mut ebpf, maps::DROP_ROWS)?,
            next_port: PORTS.start,
            ebpf,
        })
    }

    /// No pod, no policy, no flow.
    pub(crate) fn reset(&mut self) -> Result<(), TestCaseError> {
        for pod in 0..LOCALS {
            self.remove_endpoint(pod)?;
        }
        empty(&mut self.peers)?;
        empty(&mut self.flow4)?;
        empty(&mut self.flow6)?;
        empty(&mut self.drops)?;
        for key in self.blocks.keys().collect::<Result<Vec<_>, _>>()? {
            self.blocks.remove(&key)?;
        }
        for key in self.verdicts.keys().collect::<Result<Vec<_>, _>>()? {
            self.verdicts.remove(&key)?;
        }
        Ok(())
    }

    /// A pod is here, held to these rules from its first packet on.
    pub(crate) fn put_endpoint(&mut self, pod: u32, rules: Rules) -> Result<(), TestCaseError> {
        let (slot, link) = (pod + 1, self.links[pod as usize]);
        let mut row = Endpoint { ifindex: link, flags: E_PRESENT | E_READY, ..Endpoint::default() };
        row.egress_rules = rules.egress;
        row.ingress_rules = rules.ingress;
        for address in local_addresses(pod) {
            match address {
                IpAddr::V4(a) => row.v4 = a.octets(),
                IpAddr::V6(a) => row.v6 = a.octets(),
            }
            self.by_address.insert(&addr(address), &slot, 0)?;
        }
        self.endpoints.set(slot, &row, 0)?;
        self.raise(slot)?;
        Ok(self.by_link.insert(&link, &slot, 0)?)
    }

    /// It is gone.
    pub(crate) fn remove_endpoint(&mut self, pod: u32) -> Result<(), TestCaseError> {
        let _ = self.by_link.remove(&self.links[pod as usize]);
        for address in local_addresses(pod) {
            let _ = self.by_address.remove(&addr(address));
        }
        self.endpoints.set(pod + 1, &Endpoint::default(), 0)?;
        self.raise(pod + 1)
    }

    fn raise(&mut self, slot: u32) -> Result<(), TestCaseError> {
        let epoch = self.epochs.get(&slot, 0)?;
        Ok(self.epochs.set(slot, &(epoch + 1), 0)?)
    }

    fn set_rules(&mut self, slot: u32, rules: Rules) -> Result<(), TestCaseError> {
        let row = self.endpoints.get(&slot, 0)?;
        if row.flags & E_PRESENT != 0 {
            let row = Endpoint { egress_rules: rules.egress, ingress_rules: rules.ingress, ..row };
            self.endpoints.set(slot, &row, 0)?;
        }
        Ok(())
    }

    /// Writes a change in its order, of one map what goes first, as the agent does; `look` is asked after each write.
    pub(crate) fn apply(
        &mut self,
        change: &Change,
        mut look: impl FnMut(&mut Self, &str) -> Result<(), TestCaseError>,
    ) -> Result<(), TestCaseError> {
        for (key, verdict) in &change.verdicts {
            let row = key.row();
            self.verdicts.insert(&TrieKey::new(row.bits, row.asked), &verdict.row(key), 0)?;
            look(self, "between new verdicts")?;
        }
        for slot in &change.closing {
            self.set_rules(*slot, Rules { egress: CLOSED, ingress: CLOSED })?;
            look(self, "while shutting endpoints")?;
        }
        for (address, class) in gone_first(&change.peers) {
            match class {
                Some(class) => self.peers.insert(&addr(*address), class, 0)?,
                None => self.peers.remove(&addr(*address))?,
            }
            look(self, "between two addresses")?;
        }
        for (range, class) in gone_first(&change.blocks) {
            let front = if range.addr().is_ipv4() { Addr::MAPPED_BITS } else { 0 };
            let key = TrieKey::new(front + u32::from(range.prefix_len()), addr(range.addr()).0);
            match class {
                Some(class) => self.blocks.insert(&key, class, 0)?,
                None => self.blocks.remove(&key)?,
            }
            look(self, "between two ranges")?;
        }
        for (slot, rules) in &change.endpoints {
            self.set_rules(*slot, *rules)?;
            look(self, "between two endpoints")?;
        }
        for slot in &change.epochs {
            self.raise(*slot)?;
            look(self, "between two epochs")?;
        }
        for key in &change.old_verdicts {
            self.verdicts.remove(&TrieKey::new(key.bits, key.asked))?;
            look(self, "between old verdicts")?;
        }
        Ok(())
    }

    /// A source port that no question had for long.
    pub(crate) fn port(&mut self) -> u16 {
        self.next_port = if self.next_port + 1 < PORTS.end { self.next_port + 1 } else { PORTS.start };
        self.next_port
    }

    /// The first packet of a question from this port, at the hook where it is judged; and what left.
    pub(crate) fn first(&mut self, question: &Question, mine: u16) -> Result<(Outcome, Vec<u8>), TestCaseError> {
        self.opener(question, &question.packet(mine))
    }

    /// A packet of the question's opener.
    pub(crate) fn opener(&mut self, question: &Question, packet: &[u8]) -> Result<(Outcome, Vec<u8>), TestCaseError> {
        match question.from.pod {
            Some(pod) => self.run(FROM_POD, self.links[pod as usize], packet),
            None => self.arrive(question.from.address, packet),
        }
    }

    /// A packet of the other end.
    pub(crate) fn answerer(&mut self, question: &Question, packet: &[u8]) -> Result<Outcome, TestCaseError> {
        let (outcome, _) = match question.to.pod {
            Some(pod) => self.run(FROM_POD, self.links[pod as usize], packet)?,
            None => self.arrive(question.to.address, packet)?,
        };
        Ok(outcome)
    }

    /// At an uplink, in a tunnel where its sender's node has one.
    fn arrive(&mut self, from: IpAddr, packet: &[u8]) -> Result<(Outcome, Vec<u8>), TestCaseError> {
        if REMOTE[4..].iter().any(|far| far.parse() == Ok(from)) {
            let wrapped = Ip::new(FAR4, HERE4).vxlan(50_000, 4789, 1, &frame([2; 6], [4; 6], packet));
            return self.run(FROM_UPLINK, self.uplink, &wrapped);
        }
        self.run(FROM_UPLINK, self.uplink, packet)
    }

    /// Where answers of a flow out of the cluster are sent, by what left.
    pub(crate) fn masqueraded(left: &[u8]) -> (IpAddr, u16) {
        let v6 = left[12] == 0x86;
        let l4 = 14 + if v6 { 40 } else { 20 };
        (if v6 { HERE6.into() } else { HERE4.into() }, u16::from_be_bytes([left[l4], left[l4 + 1]]))
    }

    fn run(&mut self, program: Attached, ifindex: u32, packet: &[u8]) -> Result<(Outcome, Vec<u8>), TestCaseError> {
        // struct __sk_buff, linux/bpf.h.
        let mut context = [0_u8; 192];
        context[40..44].copy_from_slice(&ifindex.to_ne_bytes());
        let bytes = frame(GATEWAY, POD_MAC, packet);
        let mut out = vec![0; 512];
        let program: &SchedClassifier = self.ebpf.program(program.name).expect(program.name).try_into()?;
        let options = TestRunOptions {
            data_in: Some(&bytes),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ..TestRunOptions::new()
        };
        let result = program.test_run(options)?;
        out.truncate(result.data_size_out as usize);
        if result.return_value == REDIRECT {
            return Ok((Outcome::Passed, out));
        }
        prop_assert_eq!(result.return_value, SHOT, "of {:02x?}", packet);
        let key = self.drops.keys().next().expect("a drop without a row")?;
        self.drops.remove(&key)?;
        Ok((Outcome::Dropped(key.reason, key.cookie), out))
    }

    /// The entry of a question's flow.
    pub(crate) fn entry(&self, key: &Key) -> Option<FlowEntry> {
        match key {
            Key::V4(key) => self.flow4.get(key, 0).ok(),
            Key::V6(key) => self.flow6.get(key, 0).ok(),
        }
    }

    /// Forgets a question's flow.
    pub(crate) fn forget(&mut self, key: &Key) {
        let Some(entry) = self.entry(key) else { return };
        // One that was denied may have lost either.
        let _ = match key {
            Key::V4(key) => self.flow4.remove(key).and(self.flow4.remove(&key.opposite(&entry))),
            Key::V6(key) => self.flow6.remove(key).and(self.flow6.remove(&key.opposite(&entry))),
        };
    }
}

fn gone_first<T>(pointers: &BTreeMap<T, Option<u32>>) -> impl Iterator<Item = (&T, &Option<u32>)> {
    let gone = pointers.iter().filter(|(_, class)| class.is_none());
    gone.chain(pointers.iter().filter(|(_, class)| class.is_some()))
}

fn empty<K: Pod, V: Pod>(map: &mut HashMap<MapData, K, V>) -> Result<(), TestCaseError> {
    for key in map.keys().collect::<Result<Vec<_>, _>>()? {
        map.remove(&key)?;
    }
    Ok(())
}

fn rows(ebpf: &mut Ebpf, uplink: u32) -> Result<()> {
    let door = ifindex("door")?;
    let config = Config {
        mark: 0x0100_0000,
        flags: C_IPV6,
        door_host: door,
        door_pods: door,
        tunnel_dev: door,
        vni: 1,
        tunnel_port: 4789_u16.to_be_bytes(),
        pod_mtu: MTU,
        masq_min: 61_000,
        masq_max: 65_535,
        gateway_mac: GATEWAY,
        node4: HERE4.octets(),
        node6: HERE6.octets(),
        endpoint_flows: 1000,
        too_big_rate: 10,
        ..Config::default()
    };
    let mut configs: Array<&mut MapData, Config> = ebpf.map_mut(maps::CONFIG).context("map config")?.try_into()?;
    configs.set(0, &config, 0)?;
    let row = Uplink { v4: config.node4, mtu: 1500, v6: config.node6, ..Uplink::default() };
    let mut uplinks: HashMap<&mut MapData, u32, Uplink> =
        ebpf.map_mut(maps::UPLINKS).context("map uplinks")?.try_into()?;
    uplinks.insert(&uplink, &row, 0)?;
    let mut nodes: Array<&mut MapData, Node> = ebpf.map_mut(maps::NODES).context("map nodes")?.try_into()?;
    for (number, flags, last) in [(NEAR, 0, 2), (FAR, N_TUNNEL, 3)] {
        let (v4, v6) =
            (Addr::v4([198, 18, 0, last]), addr(Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, last.into()).into()));
        let node = Node {
            flags: N_PRESENT | flags,
            uplink,
            mtu: MTU,
            zero: [0; 6],
            tunnel: v4,
            next_hop4: v4,
            next_hop6: v6,
            next_hop_tunnel: v4,
            outer: cluster::template(HERE4.into(), Ipv4Addr::new(198, 18, 0, last).into()),
        };
        nodes.set(number.into(), &node, 0)?;
    }
    let map = ebpf.map_mut(maps::ROUTES).context("map routes")?;
    let mut routes: LpmTrie<&mut MapData, [u8; 16], Route> = map.try_into()?;
    for (prefix, bits, kind, node) in [
        ("10.0.0.8", 29, RouteKind::LocalBlock, 0),
        ("10.0.0.20", 31, RouteKind::RemoteBlock, NEAR),
        ("10.0.0.22", 31, RouteKind::RemoteBlock, FAR),
        ("198.18.0.1", 32, RouteKind::LocalNode, 0),
        ("198.18.0.2", 32, RouteKind::RemoteNode, NEAR),
        ("198.18.0.3", 32, RouteKind::RemoteNode, FAR),
        ("fd02::1", 128, RouteKind::LocalNode, 0),
        ("fd00::10", 125, RouteKind::LocalBlock, 0),
        ("fd00::20", 127, RouteKind::RemoteBlock, NEAR),
        ("fd00::22", 127, RouteKind::RemoteBlock, FAR),
    ] {
        let prefix: IpAddr = prefix.parse()?;
        let bits = if prefix.is_ipv4() { Addr::MAPPED_BITS + bits } else { bits };
        routes.insert(&TrieKey::new(bits, addr(prefix).0), &Route { kind: kind as u8, zero: 0, node }, 0)?;
    }
    Ok(())
}
