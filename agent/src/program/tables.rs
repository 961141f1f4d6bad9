//! The open maps that the agent writes.

use std::collections::BTreeSet;

use osmia_maps::{
    Access, MapError, PerCpu, Pins, Table,
    layout::{
        Addr, Config, Endpoint, FlowEntry, FlowKey4, FlowKey6, Meta, Node, Route, RouteKey, Uplink, VerdictKey,
        VerdictRow, drops::DropCount, endpoint::E_PRESENT,
    },
    tables,
};

use super::links::{self, Place};

/// All of them.
pub(super) struct Tables {
    pub(super) meta: Table<u32, Meta>,
    pub(super) config: Table<u32, Config>,
    pub(super) epochs: Table<u32, u32>,
    pub(super) endpoints: Table<u32, Endpoint>,
    pub(super) endpoint_if: Table<u32, u32>,
    pub(super) endpoint_addr: Table<Addr, u32>,
    pub(super) peers: Table<Addr, u32>,
    pub(super) peer_blocks: Table<RouteKey, u32>,
    pub(super) verdicts: Table<VerdictKey, VerdictRow>,
    pub(super) routes: Table<RouteKey, Route>,
    pub(super) nodes: Table<u32, Node>,
    pub(super) uplinks: Table<u32, Uplink>,
    pub(super) budgets: Table<u32, u64>,
    pub(super) flow4: Table<FlowKey4, FlowEntry>,
    pub(super) flow6: Table<FlowKey6, FlowEntry>,
    pub(super) drops: PerCpu<DropCount>,
    pub(super) stats: PerCpu<u64>,
}

impl Tables {
    pub(super) fn open(pins: &Pins) -> Result<Self, MapError> {
        let access = Access::ReadWrite;
        Ok(Self {
            meta: tables::META.open(pins, access)?,
            config: tables::CONFIG.open(pins, access)?,
            epochs: tables::EPOCHS.open(pins, access)?,
            endpoints: tables::ENDPOINTS.open(pins, access)?,
            endpoint_if: tables::ENDPOINT_IF.open(pins, access)?,
            endpoint_addr: tables::ENDPOINT_ADDR.open(pins, access)?,
            peers: tables::PEERS.open(pins, access)?,
            peer_blocks: tables::PEER_BLOCKS.open(pins, access)?,
            verdicts: tables::VERDICTS.open(pins, access)?,
            routes: tables::ROUTES.open(pins, access)?,
            nodes: tables::NODES.open(pins, access)?,
            uplinks: tables::UPLINKS.open(pins, access)?,
            budgets: tables::BUDGETS.open(pins, access)?,
            flow4: tables::FLOW4.open(pins, access)?,
            flow6: tables::FLOW6.open(pins, access)?,
            drops: tables::DROPS.open(pins, Access::ReadOnly)?,
            stats: tables::STATS.open(pins, Access::ReadOnly)?,
        })
    }

    /// Raises a row of the epochs: 0 the route generation, else an endpoint's. Values never repeat, also over restarts, since the row is
    /// pinned and only ever goes on from what it holds.
    pub(super) fn raise(&self, slot: u32) -> Result<u32, MapError> {
        let next = self.epochs.get(&slot)?.unwrap_or(0).wrapping_add(1);
        self.epochs.put(&slot, &next)?;
        Ok(next)
    }

    /// Every hook that the rows of before speak of.
    pub(super) fn attached(&self) -> Result<BTreeSet<Place>, MapError> {
        let config = self.config.get(&0)?.unwrap_or_default();
        let uplinks: Vec<u32> = self.uplinks.rows()?.into_iter().map(|(ifindex, _)| ifindex).collect();
        let mut places = links::underlay(&config, uplinks);
        for (_, endpoint) in self.endpoints.rows()? {
            if endpoint.flags & E_PRESENT != 0 {
                places.extend(links::endpoint(endpoint.ifindex));
            }
        }
        Ok(places)
    }
}
