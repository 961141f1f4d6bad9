//! The object with the rows of a node: five pods' links, one node reached as it is and one by tunnel, and a way out. Policy rows and endpoints
//! are what a test writes, one by one. All maps are pinned where the agent pins them.

mod rows;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use anyhow::{Context, Result};
use aya::maps::{HashMap, MapData};
use aya::programs::SchedClassifier;
use aya::{Ebpf, Pod, TestRun, TestRunOptions};
use osmia_agent::compile::policy::{Pinned, Rules};
use osmia_lab::Space;
use osmia_lab::packet::{Ip, frame};
use osmia_maps::layout::endpoint::{E_PRESENT, E_READY};
use osmia_maps::layout::programs::{Attached, FROM_POD, FROM_UPLINK};
use osmia_maps::layout::{
    Addr, DropKey, DropReason, DropRow, Endpoint, FlowEntry, FlowKey4, FlowKey6, RouteKey, VerdictKey, VerdictRow, maps,
};
use osmia_maps::pins::DEFAULT_ROOT;
use osmia_maps::{Access, Pins, Spec, Table, tables};
use osmia_oracle::stories::{LOCALS, local_addresses};
use proptest::prop_assert_eq;
use proptest::test_runner::TestCaseError;

use super::ask::{Key, Question};
use super::steps::Write;
use crate::cluster::{self, GATEWAY, POD_MAC, REDIRECT, SHOT, addr};

const HERE4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const HERE6: Ipv6Addr = Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 1);
/// The node behind a tunnel.
const FAR4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);
const MTU: u16 = 1430;
/// The stories' pods of other nodes; the second half is behind the tunnel.
pub(crate) const REMOTE: [&str; 8] =
    ["10.0.0.20", "10.0.0.21", "fd00::20", "fd00::21", "10.0.0.22", "10.0.0.23", "fd00::22", "fd00::23"];
/// `TCX_NEXT`: another program of the hook may decide, and at last the stack.
const NEXT: u32 = u32::MAX;
/// Ports that no question asks about.
const PORTS: std::ops::Range<u16> = 20_000..60_000;

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Passed,
    /// By this reason (a [`DropReason`]), by a rule set of this cookie.
    Dropped(u8, u32),
    /// On to the node's stack.
    Left,
}

impl Outcome {
    pub(crate) fn is(self, reason: DropReason) -> bool {
        matches!(self, Self::Dropped(byte, _) if byte == reason as u8)
    }
}

/// The loaded object. Lives inside the namespaces of [`devices`].
pub(crate) struct Plane {
    pub(crate) pins: Pins,
    ebpf: Ebpf,
    links: Vec<u32>,
    uplink: u32,
    endpoints: Table<u32, Endpoint>,
    epochs: Table<u32, u32>,
    by_link: Table<u32, u32>,
    by_address: Table<Addr, u32>,
    peers: Table<Addr, u32>,
    blocks: Table<RouteKey, u32>,
    verdicts: Table<VerdictKey, VerdictRow>,
    flow4: Table<FlowKey4, FlowEntry>,
    flow6: Table<FlowKey6, FlowEntry>,
    // Asked for its first row alone, many times.
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

impl Plane {
    /// Loads it and writes the rows that are the same for every story.
    pub(crate) fn load() -> Result<Self> {
        let mut ebpf = cluster::load()?;
        let pins = Pins::new(DEFAULT_ROOT);
        fs::create_dir_all(pins.links()).context("a folder for pins")?;
        for name in tables::NAMES {
            let map = ebpf.map(name).with_context(|| format!("map {name}"))?;
            map.pin(pins.map(name)).with_context(|| format!("pin {name}"))?;
        }
        let uplink = ifindex("uplink")?;
        rows::write(&pins, uplink)?;
        let drops = ebpf.take_map(maps::DROP_ROWS).context("a map of drops")?;
        Ok(Self {
            links: (0..LOCALS).map(|pod| ifindex(&format!("pod{pod}"))).collect::<Result<_>>()?,
            uplink,
            endpoints: open(&tables::ENDPOINTS, &pins)?,
            epochs: open(&tables::EPOCHS, &pins)?,
            by_link: open(&tables::ENDPOINT_IF, &pins)?,
            by_address: open(&tables::ENDPOINT_ADDR, &pins)?,
            peers: open(&tables::PEERS, &pins)?,
            blocks: open(&tables::PEER_BLOCKS, &pins)?,
            verdicts: open(&tables::VERDICTS, &pins)?,
            flow4: open(&tables::FLOW4_NEW, &pins)?,
            flow6: open(&tables::FLOW6_NEW, &pins)?,
            drops: drops.try_into()?,
            next_port: PORTS.start,
            pins,
            ebpf,
        })
    }

    /// No pod, no policy, no flow.
    pub(crate) fn reset(&mut self) -> Result<(), TestCaseError> {
        for pod in 0..LOCALS {
            self.remove_endpoint(pod)?;
        }
        empty(&self.peers)?;
        empty(&self.blocks)?;
        empty(&self.verdicts)?;
        empty(&self.flow4)?;
        empty(&self.flow6)?;
        for key in self.drops.keys().collect::<Result<Vec<_>, _>>()? {
            self.drops.remove(&key)?;
        }
        Ok(())
    }

    /// The policy rows as an agent finds them at its start.
    pub(crate) fn pinned(&self) -> Result<Pinned, TestCaseError> {
        let range = |key: RouteKey| {
            let addr = IpAddr::from(key.addr).to_canonical();
            let front = if addr.is_ipv4() { Addr::MAPPED_BITS } else { 0 };
            ipnet::IpNet::new(addr, (key.bits - front) as u8)
        };
        let blocks = self.blocks.rows()?.into_iter().map(|(key, class)| Ok((range(key)?, class)));
        let present = self.endpoints.rows()?.into_iter().filter(|(_, row)| row.flags & E_PRESENT != 0);
        Ok(Pinned {
            peers: self.peers.rows()?.into_iter().map(|(a, class)| (IpAddr::from(a.0).to_canonical(), class)).collect(),
            blocks: blocks.collect::<Result<_, TestCaseError>>()?,
            rules: present
                .map(|(slot, row)| (slot, Rules { egress: row.egress_rules, ingress: row.ingress_rules }))
                .collect(),
            verdicts: self.verdicts.dump()?,
        })
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
            self.by_address.put(&addr(address), &slot)?;
        }
        self.endpoints.put(&slot, &row)?;
        self.raise(slot)?;
        Ok(self.by_link.put(&link, &slot)?)
    }

    /// It is gone.
    pub(crate) fn remove_endpoint(&mut self, pod: u32) -> Result<(), TestCaseError> {
        self.by_link.remove(&self.links[pod as usize])?;
        for address in local_addresses(pod) {
            self.by_address.remove(&addr(address))?;
        }
        self.endpoints.put(&(pod + 1), &Endpoint::default())?;
        self.raise(pod + 1)
    }

    /// Whether its row is there.
    pub(crate) fn has_endpoint(&self, pod: u32) -> Result<bool, TestCaseError> {
        Ok(self.endpoints.get(&(pod + 1))?.is_some_and(|row| row.flags & E_PRESENT != 0))
    }

    fn raise(&mut self, slot: u32) -> Result<(), TestCaseError> {
        let epoch = self.epochs.get(&slot)?.unwrap_or_default();
        Ok(self.epochs.put(&slot, &(epoch + 1))?)
    }

    /// A single write of the agent.
    pub(crate) fn write(&mut self, write: &Write) -> Result<(), TestCaseError> {
        match write {
            Write::Verdict(key, row) => self.verdicts.put(key, row)?,
            Write::Rules(slot, rules) => {
                if let Some(row) = self.endpoints.get(slot)?.filter(|row| row.flags & E_PRESENT != 0) {
                    let row = Endpoint { egress_rules: rules.egress, ingress_rules: rules.ingress, ..row };
                    self.endpoints.put(slot, &row)?;
                }
            }
            Write::Peer(address, class) => set(&self.peers, &addr(*address), *class)?,
            Write::Block(range, class) => {
                let front = if range.addr().is_ipv4() { Addr::MAPPED_BITS } else { 0 };
                let bits = front + u32::from(range.prefix_len());
                set(&self.blocks, &RouteKey { bits, addr: addr(range.addr()).0 }, *class)?;
            }
            Write::Epoch(slot) => self.raise(*slot)?,
            Write::Bury(key) => {
                prop_assert_eq!(self.verdicts.remove(key)?, true, "{:?} was never written", key);
            }
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
            Some(pod) => self.sends(pod, packet),
            None => self.arrive(question.from.address, packet),
        }
    }

    /// A packet of the other end.
    pub(crate) fn answerer(&mut self, question: &Question, packet: &[u8]) -> Result<Outcome, TestCaseError> {
        let (outcome, _) = match question.to.pod {
            Some(pod) => self.sends(pod, packet)?,
            None => self.arrive(question.to.address, packet)?,
        };
        Ok(outcome)
    }

    /// What a pod sends, and what became of it.
    pub(crate) fn sends(&mut self, pod: u32, packet: &[u8]) -> Result<(Outcome, Vec<u8>), TestCaseError> {
        self.run(FROM_POD, self.links[pod as usize], packet)
    }

    /// What comes to the uplink as it is.
    pub(crate) fn arrives(&mut self, packet: &[u8]) -> Result<Outcome, TestCaseError> {
        Ok(self.run(FROM_UPLINK, self.uplink, packet)?.0)
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
        match result.return_value {
            REDIRECT => return Ok((Outcome::Passed, out)),
            NEXT => return Ok((Outcome::Left, out)),
            other => prop_assert_eq!(other, SHOT, "of {:02x?}", packet),
        }
        let key = self.drops.keys().next().expect("a drop without a row")?;
        self.drops.remove(&key)?;
        Ok((Outcome::Dropped(key.reason, key.cookie), out))
    }

    /// The entry of a question's flow.
    pub(crate) fn entry(&self, key: &Key) -> Option<FlowEntry> {
        match key {
            Key::V4(key) => self.flow4.get(key).ok()?,
            Key::V6(key) => self.flow6.get(key).ok()?,
        }
    }

    /// Forgets a question's flow.
    pub(crate) fn forget(&mut self, key: &Key) -> Result<(), TestCaseError> {
        let Some(entry) = self.entry(key) else { return Ok(()) };
        // One that was denied may have lost either.
        match key {
            Key::V4(key) => {
                self.flow4.remove(key)?;
                self.flow4.remove(&key.opposite(&entry))?;
            }
            Key::V6(key) => {
                self.flow6.remove(key)?;
                self.flow6.remove(&key.opposite(&entry))?;
            }
        }
        Ok(())
    }
}

fn open<K: Pod, V: Pod>(spec: &Spec<K, V>, pins: &Pins) -> Result<Table<K, V>> {
    spec.open(pins, Access::ReadWrite).with_context(|| format!("map {}", spec.name))
}

fn set<K: Pod>(table: &Table<K, u32>, key: &K, class: Option<u32>) -> Result<(), TestCaseError> {
    match class {
        Some(class) => table.put(key, &class)?,
        None => {
            table.remove(key)?;
        }
    }
    Ok(())
}

fn empty<K: Pod, V: Pod>(table: &Table<K, V>) -> Result<(), TestCaseError> {
    let keys: Vec<K> = table.rows()?.into_iter().map(|(key, _)| key).collect();
    Ok(table.remove_all(&keys)?)
}
