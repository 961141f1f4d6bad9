//! What programming rules costs by the kernel's other ways: `nft`, `iptables-restore`, and bare writes of a BPF map.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use aya::EbpfLoader;
use osmia_lab::Space;
use osmia_maps::layout::Addr;
use osmia_maps::pins::DEFAULT_ROOT;
use osmia_maps::{Access, Pins, Table, tables};

/// Elements of the set, rules of the table, rows of the map.
pub(crate) const ENTRIES: u32 = 10_000;

/// A set of `nft` with as many elements as an agent has peers.
pub(crate) struct NftSet {
    space: Space,
    added: u32,
}

impl NftSet {
    pub(crate) fn new() -> Result<Self> {
        let space = Space::network("osm-bench-nft")?;
        let mut text =
            "table inet bench {\n set peers { type ipv4_addr; }\n}\nadd element inet bench peers { ".to_owned();
        for number in 0..ENTRIES {
            let _ = write!(text, "{}, ", address(number));
        }
        let out = space.feed(Command::new("nft").args(["-f", "-"]), &(text + "}\n"));
        let out = out.context("nft (package nftables; `cargo xtask setup` installs it)")?;
        ensure!(out.status.success(), "nft: {}", out.text());
        Ok(Self { space, added: 0 })
    }

    /// `nft add element`, from the start of its process to its end.
    pub(crate) fn add(&mut self) -> Result<Duration> {
        self.added += 1;
        let element = format!("{{ {} }}", address(ENTRIES + self.added));
        self.timed(&["add", "element", "inet", "bench", "peers", &element])
    }

    /// The start and end of a process of it that does nothing.
    pub(crate) fn nothing(&self) -> Result<Duration> {
        self.timed(&["--version"])
    }

    fn timed(&self, arguments: &[&str]) -> Result<Duration> {
        self.space.run(|| {
            let start = Instant::now();
            let out = Command::new("nft").args(arguments).output().context("start nft")?;
            let took = start.elapsed();
            ensure!(out.status.success(), "nft: {}", String::from_utf8_lossy(&out.stderr));
            Ok(took)
        })?
    }
}

/// A table of rules that is replaced whole.
pub(crate) struct Iptables {
    space: Space,
    rules: String,
}

impl Iptables {
    pub(crate) fn new() -> Result<Self> {
        let space = Space::network("osm-bench-ipt")?;
        let mut rules = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n".to_owned();
        for number in 0..ENTRIES {
            let _ = writeln!(rules, "-A FORWARD -s {} -j ACCEPT", address(number));
        }
        Ok(Self { space, rules: rules + "COMMIT\n" })
    }

    /// `iptables-restore`, from the start of its process to its end.
    pub(crate) fn restore(&self) -> Result<Duration> {
        let start = Instant::now();
        let out = self.space.feed(&mut Command::new("iptables-restore"), &self.rules);
        let out = out.context("iptables-restore (package iptables; `cargo xtask setup` installs it)")?;
        let took = start.elapsed();
        ensure!(out.status.success(), "iptables-restore: {}", out.text());
        Ok(took)
    }
}

/// The map of peers, without an agent.
pub(crate) struct BareMap {
    table: Table<Addr, u32>,
    rows: Vec<(Addr, u32)>,
    _space: Space,
}

impl BareMap {
    pub(crate) fn new() -> Result<Self> {
        let space = Space::machine("osm-bench-map", Path::new("/sys/fs/bpf"))?;
        let table = space.run(|| {
            let object =
                env::var_os("OSMIA_OBJECT").context("OSMIA_OBJECT names no object: `cargo xtask bench` sets it")?;
            let pins = Pins::new(DEFAULT_ROOT);
            fs::create_dir_all(pins.links()).with_context(|| format!("make {}", pins.links().display()))?;
            let mut loader = EbpfLoader::new();
            for name in tables::NAMES {
                loader.map_pin_path(name, pins.map(name));
            }
            loader.load_file(Path::new(&object)).with_context(|| format!("load {}", object.display()))?;
            anyhow::Ok(tables::PEERS.open(&pins, Access::ReadWrite)?)
        })??;
        let rows = (0..ENTRIES).map(|number| (Addr::v4(address(number).octets()), number));
        Ok(Self { table, rows: rows.collect(), _space: space })
    }

    /// Writes all rows in batches into the empty map.
    pub(crate) fn fill(&self) -> Result<Duration> {
        let start = Instant::now();
        self.table.put_all(&self.rows)?;
        let took = start.elapsed();
        let keys: Vec<Addr> = self.rows.iter().map(|(key, _)| *key).collect();
        self.table.remove_all(&keys)?;
        Ok(took)
    }
}

fn address(number: u32) -> std::net::Ipv4Addr {
    (0x0a40_0000 + number).into()
}
