//! Everything that the status is made of, read once.

use std::{collections::BTreeSet, fs};

use anyhow::Context as _;
use osmia_maps::{
    Access, MapError, Pins, Standing,
    decode::Context,
    facts::{PinnedLink, has_tcx},
    layout::{
        Endpoint, LAYOUT, Route, Stat, Uplink,
        drops::DropCount,
        endpoint::E_READY,
        node::{N_PRESENT, N_TUNNEL},
        route::RouteKind,
    },
    standing, tables,
};

use super::{heartbeat::Heartbeat, policy::Policy};
use crate::{
    arguments::Common,
    command::{endpoint, epochs, if_pinned, map::Size, sizes},
    failure::Failure,
};

/// What the pins say.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) context: Context,
    pub(super) layouts: Vec<u32>,
    /// Folders of other layouts.
    pub(super) beside: Vec<Standing>,
    pub(super) heartbeat: Option<Heartbeat>,
    /// Generations of jump tables.
    pub(super) generations: Vec<u64>,
    pub(super) tcx: bool,
    pub(super) links: Vec<PinnedLink>,
    pub(super) sizes: Vec<Size>,
    pub(super) epochs: Vec<u32>,
    pub(super) endpoints: Vec<(u32, Endpoint)>,
    pub(super) uplinks: Vec<(u32, Uplink)>,
    pub(super) tunnel_nodes: usize,
    pub(super) native_nodes: usize,
    /// Nodes that routes lead to and that have no row.
    pub(super) lost_nodes: BTreeSet<u16>,
    /// Reasons that occurred.
    pub(super) drops: Vec<(u8, DropCount)>,
    pub(super) stats: Vec<u64>,
    /// `None`: nobody said where the agent's catalogue would be.
    pub(super) policy: Option<Policy>,
}

pub(super) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.flags & E_READY != 0
}

impl Seen {
    pub(super) fn read(pins: &Pins, common: &Common) -> Result<Self, Failure> {
        let context = Context::read(pins)?;
        let run = common.run_folder();
        let heartbeat = run.as_deref().map(Heartbeat::read).transpose().context("looking for the agent's heartbeat")?;
        let drops = if_pinned(tables::DROPS.open(pins, Access::ReadOnly))?.map(|table| table.sums()).transpose()?;
        let drops = (0_u8..).zip(drops.unwrap_or_default()).filter(|(_, count)| count.packets != 0).collect();
        let stats = if_pinned(tables::STATS.open(pins, Access::ReadOnly))?.map(|table| table.sums()).transpose()?;
        let mut uplinks = if_pinned(tables::UPLINKS.open(pins, Access::ReadOnly))?
            .map(|table| table.rows())
            .transpose()?
            .unwrap_or_default();
        uplinks.sort_unstable_by_key(|(ifindex, _)| *ifindex);
        let (tunnel_nodes, native_nodes) = nodes(pins)?;
        let lost_nodes = lost_nodes(pins, &context)?;
        let folders = standing(pins.root())?;
        let endpoints = endpoint::present(pins)?;
        let policy = run.map(|run| Policy::read(pins, common, &run, &context.meta, &endpoints)).transpose()?;
        Ok(Self {
            layouts: folders.iter().map(|folder| folder.layout).collect(),
            beside: folders.into_iter().filter(|folder| folder.layout != LAYOUT).collect(),
            heartbeat,
            generations: generations(pins)?,
            tcx: has_tcx(),
            links: pins.pinned_links()?,
            sizes: sizes(pins)?,
            epochs: epochs(pins)?,
            endpoints,
            uplinks,
            tunnel_nodes,
            native_nodes,
            lost_nodes,
            drops,
            stats: stats.unwrap_or_default(),
            policy,
            context,
        })
    }

    pub(super) fn stat(&self, stat: Stat) -> u64 {
        self.stats.get(stat as usize).copied().unwrap_or(0)
    }
}

/// How many nodes are reached through the tunnel, and how many without.
fn nodes(pins: &Pins) -> Result<(usize, usize), MapError> {
    let (mut tunnel, mut native) = (0, 0);
    if let Some(table) = if_pinned(tables::NODES.open(pins, Access::ReadOnly))? {
        table.each_batch(|_, rows| {
            let present = rows.iter().filter(|row| row.flags & N_PRESENT != 0);
            for row in present {
                *(if row.flags & N_TUNNEL != 0 { &mut tunnel } else { &mut native }) += 1;
            }
            Ok(())
        })?;
    }
    Ok((tunnel, native))
}

fn lost_nodes(pins: &Pins, context: &Context) -> Result<BTreeSet<u16>, MapError> {
    let mut lost = BTreeSet::new();
    if let Some(table) = if_pinned(tables::ROUTES.open(pins, Access::ReadOnly))? {
        let is_remote = |route: &&Route| {
            matches!(RouteKind::from_byte(route.kind), Some(RouteKind::RemoteBlock | RouteKind::RemoteNode))
        };
        table.each_batch(|_, routes| {
            let numbers = routes.iter().filter(is_remote).map(|route| route.node);
            lost.extend(numbers.filter(|number| context.node_address(u32::from(*number)).is_none()));
            Ok(())
        })?;
    }
    Ok(lost)
}

fn generations(pins: &Pins) -> Result<Vec<u64>, Failure> {
    let folder = pins.folder();
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
        let name = entry.with_context(|| format!("listing {}", folder.display()))?.file_name();
        found.extend(name.to_str().and_then(Pins::progs_start));
    }
    found.sort_unstable();
    Ok(found)
}
