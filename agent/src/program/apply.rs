//! Desired rows into the maps, in an order that never sends a packet where neither the old nor the new rows would.
//!
//! Order: what routes refer to (uplinks, nodes, configuration) → routes → programs on new devices → route generation → what nothing
//! refers to any more → programs off old devices. A program reads the generation before it reads routes, so an entry that was decided
//! by old rows carries the old generation and is judged again.

use std::collections::BTreeMap;

use osmia_maps::layout::{Addr, Config, Node, Route, RouteKey, Uplink, maps, node::N_PRESENT};
use tracing::{info, warn};

use super::{ApplyError, AttachError, Dataplane, Expedited, diff::Diff, links};
use crate::{compile::Desired, model::Exit};

/// The rows in the maps, as far as [`Desired`] speaks of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Installed {
    config: Config,
    uplinks: BTreeMap<u32, Uplink>,
    nodes: BTreeMap<u32, Node>,
    routes: BTreeMap<RouteKey, Route>,
    exits: Vec<Exit>,
}

/// What [`Dataplane::apply`] did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Rows written or removed; 0: all was as wanted.
    pub rows: usize,
    /// Route generation now in force.
    pub generation: u32,
    /// Devices that vanished before their program was on them. Netlink tells of them as well: the next rows will not have them.
    pub gone: Vec<u32>,
}

/// A node's row with nothing in it.
const NO_NODE: Node = Node {
    flags: 0,
    uplink: 0,
    mtu: 0,
    zero: [0; 6],
    tunnel: Addr::NONE,
    next_hop4: Addr::NONE,
    next_hop6: Addr::NONE,
    next_hop_tunnel: Addr::NONE,
    outer: [0; 72],
};

impl Dataplane {
    /// Makes the maps hold these rows, and the programs sit on the devices they name.
    ///
    /// # Errors
    /// [`ApplyError::TooMany`] before anything is written; else the map that failed. A second call starts from what is really there.
    pub fn apply(&mut self, desired: &Desired) -> Result<Applied, ApplyError> {
        let wanted = Installed {
            config: Config { ticks_per_second: self.ticks_per_second(), ..desired.config },
            uplinks: desired.uplinks.clone(),
            nodes: desired.nodes.iter().map(|(number, node)| (u32::from(*number), *node)).collect(),
            routes: desired.routes.clone(),
            exits: desired.exits.clone(),
        };
        self.fits(&wanted)?;
        // Taken: whatever fails below, the next call dumps the maps again instead of believing.
        let known = self.installed.take();
        let sure = known.is_some();
        let there = match known {
            Some(there) => there,
            None => self.dump()?,
        };
        let rows = self.write(&there, &wanted)?;
        let attached = self.attach_underlay(&wanted);
        // Also where a device refuses its programs: rows that were only dumped may be newer than the generation: whoever wrote them may have been killed before raising it.
        let generation = if sure && rows == 0 && there.exits == wanted.exits {
            self.tables.epochs.get(&0)?.unwrap_or(0)
        } else {
            self.tables.raise(0)?
        };
        let gone = attached?;
        self.clean(&there, &wanted)?;
        if rows != 0 {
            info!(rows, generation, nodes = wanted.nodes.len(), routes = wanted.routes.len(), "rows in force");
        }
        if gone.is_empty() {
            self.installed = Some(wanted);
        }
        Ok(Applied { rows, generation, gone })
    }

    /// The rows of other nodes in the maps, by number: what node numbers are recovered from at start.
    ///
    /// # Errors
    /// The kernel's.
    pub fn nodes(&self) -> Result<BTreeMap<u16, Node>, ApplyError> {
        let rows = self.dump()?.nodes.into_iter();
        Ok(rows.filter_map(|(number, node)| Some((u16::try_from(number).ok()?, node))).collect())
    }

    fn fits(&self, wanted: &Installed) -> Result<(), ApplyError> {
        let last_node = wanted.nodes.keys().next_back().map_or(0, |n| *n as usize + 1);
        let tables = [
            (maps::ROUTES, wanted.routes.len(), self.tables.routes.capacity()),
            (maps::UPLINKS, wanted.uplinks.len(), self.tables.uplinks.capacity()),
            (maps::NODES, last_node, self.tables.nodes.capacity()),
        ];
        match tables.into_iter().find(|&(_, rows, capacity)| rows > capacity as usize) {
            Some((map, rows, capacity)) => Err(ApplyError::TooMany { map, rows, capacity }),
            None => Ok(()),
        }
    }

    fn dump(&self) -> Result<Installed, ApplyError> {
        let nodes = self.tables.nodes.rows()?.into_iter().filter(|(_, node)| node.flags & N_PRESENT != 0);
        Ok(Installed {
            config: self.tables.config.get(&0)?.unwrap_or_default(),
            uplinks: self.tables.uplinks.dump()?,
            nodes: nodes.collect(),
            routes: self.tables.routes.dump()?,
            exits: Vec::new(),
        })
    }

    /// Everything that becomes true with the new rows; says how many rows differ, those that [`Self::clean`] removes included.
    fn write(&self, there: &Installed, wanted: &Installed) -> Result<usize, ApplyError> {
        let uplinks = Diff::new(&there.uplinks, &wanted.uplinks);
        let nodes = Diff::new(&there.nodes, &wanted.nodes);
        let routes = Diff::new(&there.routes, &wanted.routes);
        let config = there.config != wanted.config;
        let rows = uplinks.rows() + nodes.rows() + routes.rows() + usize::from(config);

        self.tables.uplinks.put_all(&uplinks.put)?;
        self.tables.nodes.put_all(&nodes.put)?;
        if config {
            self.tables.config.put(&0, &wanted.config)?;
        }
        // Room first where both do not fit side by side: such an address is nobody's for a moment.
        let crowded = there.routes.len() + routes.put.len() > self.tables.routes.capacity() as usize;
        if crowded {
            self.tables.routes.remove_all(&routes.remove)?;
        }
        self.tables.routes.put_all(&routes.put)?;
        if !crowded {
            self.tables.routes.remove_all(&routes.remove)?;
        }
        Ok(rows)
    }

    /// What nothing refers to any more.
    fn clean(&self, there: &Installed, wanted: &Installed) -> Result<(), ApplyError> {
        let nodes = Diff::new(&there.nodes, &wanted.nodes);
        let empty: Vec<(u32, Node)> = nodes.remove.into_iter().map(|number| (number, NO_NODE)).collect();
        self.tables.nodes.put_all(&empty)?;
        self.tables.uplinks.remove_all(&Diff::new(&there.uplinks, &wanted.uplinks).remove)?;

        let keep = links::underlay(&wanted.config, wanted.uplinks.keys().copied());
        let mut old = links::underlay(&there.config, there.uplinks.keys().copied());
        old.extend(self.links.pinned()?.into_iter().filter(|place| !place.of_pod()));
        let mut gone = old.difference(&keep).peekable();
        let _short = gone.peek().map(|_| Expedited::begin());
        for place in gone {
            self.links.detach(*place)?;
        }
        Ok(())
    }

    /// Programs on every device of the underlay; says which devices are gone.
    fn attach_underlay(&mut self, wanted: &Installed) -> Result<Vec<u32>, ApplyError> {
        let mut gone = Vec::new();
        let mut refused = None;
        for place in links::underlay(&wanted.config, wanted.uplinks.keys().copied()) {
            match self.links.attach(&mut self.ebpf, place) {
                Ok(()) => {}
                Err(AttachError::Gone { ifindex, program }) => {
                    warn!(ifindex, program, "the device is gone");
                    gone.push(ifindex);
                }
                // One device that refuses keeps no other from its programs.
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match refused {
            Some(error) => Err(error.into()),
            None => Ok(gone),
        }
    }
}
