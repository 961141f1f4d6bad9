//! What a row alone does not say: how long ago a tick was, which address a node number has, what a device is called.

use std::{collections::BTreeMap, time::Duration};

use osmia_ebpf::layout::{Addr, Config, Meta, node::N_PRESENT};

use super::{Cell, Devices};
use crate::{Access, LayoutError, MapError, Pins, clock::TickClock, tables};

/// What decoding needs beside the row. Having one means that the layout was checked.
#[derive(Debug)]
pub struct Context {
    /// The meta row.
    pub meta: Meta,
    /// The running configuration; `None` if its map is missing.
    pub config: Option<Config>,
    /// `None` if the meta row tells no tick.
    pub clock: Option<TickClock>,
    /// Names of devices.
    pub devices: Devices,
    nodes: BTreeMap<u32, Addr>,
}

impl Context {
    /// Checks the layout and reads what decoding needs.
    ///
    /// # Errors
    /// Nothing is pinned, or another layout; see [`Pins::check`].
    pub fn read(pins: &Pins) -> Result<Self, LayoutError> {
        let meta = pins.check()?;
        let config = match tables::CONFIG.open(pins, Access::ReadOnly) {
            Ok(table) => table.get(&0)?,
            Err(MapError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let mut nodes = BTreeMap::new();
        match tables::NODES.open(pins, Access::ReadOnly) {
            Ok(table) => table.each_batch(|numbers, rows| {
                let present = numbers.iter().zip(rows).filter(|(_, row)| row.flags & N_PRESENT != 0);
                nodes.extend(present.map(|(number, row)| (*number, row.tunnel)));
                Ok(())
            })?,
            Err(MapError::Missing { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let devices = config.as_ref().map(Devices::of).unwrap_or_default();
        Ok(Self { meta, config, clock: TickClock::now(&meta), devices, nodes })
    }

    /// A context for rows that were not read from pins, at `now_ns` of CLOCK_MONOTONIC. Devices have no names.
    #[must_use]
    pub fn of(meta: Meta, config: Option<Config>, now_ns: u64, nodes: impl IntoIterator<Item = (u32, Addr)>) -> Self {
        let clock = TickClock::at(&meta, now_ns);
        Self { meta, config, clock, devices: Devices::default(), nodes: nodes.into_iter().collect() }
    }

    /// How long ago a tick was.
    #[must_use]
    pub fn age(&self, tick: u32) -> Option<Duration> {
        self.clock?.age(tick)
    }

    /// Nodes by number with the address their tunnel packets come from. This node, number 0, has no row.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, Addr)> {
        self.nodes.iter().map(|(number, addr)| (*number, *addr))
    }

    /// The address of a node.
    #[must_use]
    pub fn node_address(&self, number: u32) -> Option<Addr> {
        self.nodes.get(&number).copied()
    }

    /// A node by number or by address.
    ///
    /// # Errors
    /// Neither.
    pub fn node_number(&self, text: &str) -> Result<u32, String> {
        if let Ok(number) = text.parse() {
            return Ok(number);
        }
        let addr = super::parse::address(text).map_err(|_| format!("`{text}` is no node number and no address"))?;
        let found = self.nodes().find(|(_, of)| *of == addr);
        found.map(|(number, _)| number).ok_or_else(|| format!("no node has the address {text}"))
    }

    /// A device by index or, where the pins belong to this network namespace, by name.
    pub(super) fn ifindex(&self, text: &str) -> Result<u32, String> {
        if let Ok(ifindex) = super::number(text) {
            return Ok(ifindex);
        }
        self.devices.index(text).ok_or_else(|| match self.devices.are_here() {
            true => format!("there is no device `{text}`"),
            false => {
                format!("`{text}` is no ifindex; names are not known, as the pins are of another network namespace")
            }
        })
    }

    /// A device, of which 0 means none.
    #[must_use]
    pub fn device(&self, ifindex: u32) -> Cell {
        if ifindex == 0 { Cell::Absent } else { Cell::Device(ifindex, self.devices.name(ifindex)) }
    }

    /// A node, of which 0 means none.
    #[must_use]
    pub fn node(&self, number: u32) -> Cell {
        if number == 0 { Cell::Absent } else { Cell::Node(number, self.node_address(number)) }
    }

    pub(super) fn age_cell(&self, tick: u32) -> Cell {
        Cell::Age(self.age(tick))
    }
}
