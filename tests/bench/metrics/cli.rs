//! What `osmia` takes on a node with many pods, its start included.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use aya::EbpfLoader;
use osmia_lab::{Space, bin_dir};
use osmia_maps::layout::endpoint::{E_PRESENT, E_READY};
use osmia_maps::layout::{Addr, Endpoint, LAYOUT, Meta, maps, meta};
use osmia_maps::pins::DEFAULT_ROOT;
use osmia_maps::{Access, Pins, clock, tables};
use serde_json::Value;

use super::Bench;
use crate::report::Row;
use crate::stats::Spread;

/// Ten times what a node may have.
const PODS: u32 = 10_000;

/// `osmia endpoint list`.
pub(super) fn endpoints(bench: &mut Bench) -> Result<Vec<Row>> {
    let machine = Space::machine("osm-bench-cli", Path::new("/sys/fs/bpf"))?;
    machine.run(|| fill(&Pins::new(DEFAULT_ROOT)))??;
    let listed: Value = serde_json::from_slice(&machine.run(|| list(&["--json"]))??.stdout)?;
    let listed = listed["endpoints"].as_array().map_or(0, Vec::len);
    ensure!(listed == PODS as usize, "osmia lists {listed} endpoints of {PODS}");
    let mut times = Vec::new();
    for _ in 0..bench.plan.bursts {
        let start = Instant::now();
        machine.run(|| list(&[]))??;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(vec![Row::new("cli", format!("endpoint list, {PODS} pods"), "ms", Spread::of(times)?, 50.0)])
}

fn list(more: &[&str]) -> Result<Output> {
    let out = Command::new(bin_dir()?.join("osmia")).args(["endpoint", "list"]).args(more).output();
    let out = out.context("start osmia")?;
    ensure!(out.status.success(), "osmia: {} {}", out.status, String::from_utf8_lossy(&out.stderr));
    Ok(out)
}

/// Pins the object's maps, those of endpoints large enough, and fills these.
fn fill(pins: &Pins) -> Result<()> {
    let object = env::var_os("OSMIA_OBJECT").context("OSMIA_OBJECT names no object: `cargo xtask bench` sets it")?;
    fs::create_dir_all(pins.links()).with_context(|| format!("make {}", pins.links().display()))?;
    let mut loader = EbpfLoader::new();
    for name in tables::NAMES {
        loader.map_pin_path(name, pins.map(name));
    }
    for name in [maps::ENDPOINTS, maps::EPOCHS, maps::BUDGETS, maps::ENDPOINT_IF] {
        loader.map_max_entries(name, PODS + 1);
    }
    loader.map_max_entries(maps::ENDPOINT_ADDR, 2 * PODS);
    loader.load_file(Path::new(&object)).with_context(|| format!("load {}", object.display()))?;

    let access = Access::ReadWrite;
    let now = clock::monotonic_ns();
    let row = Meta {
        magic: meta::MAGIC,
        layout: LAYOUT,
        hz: 250,
        clock_ns: now,
        jiffies: 1,
        loaded_ns: now,
        ..Meta::default()
    };
    tables::META.open(pins, access)?.put(&0, &row)?;
    let (mut endpoints, mut links, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
    for slot in 1..=PODS {
        let v4 = (0x0a40_0000 + slot).to_be_bytes();
        let v6 = ((0xfd00_u128 << 112) + u128::from(slot)).to_be_bytes();
        let ifindex = 100 + slot;
        endpoints.push((slot, Endpoint { ifindex, flags: E_PRESENT | E_READY, v4, v6, ..Endpoint::default() }));
        links.push((ifindex, slot));
        addresses.extend([(Addr::v4(v4), slot), (Addr::v6(v6), slot)]);
    }
    tables::ENDPOINTS.open(pins, access)?.put_all(&endpoints)?;
    tables::ENDPOINT_IF.open(pins, access)?.put_all(&links)?;
    tables::ENDPOINT_ADDR.open(pins, access)?.put_all(&addresses)?;
    Ok(())
}
