//! Pure: model → the rows that ought to be in the maps.
//!
//! Invariant: no I/O, no clock, the same model gives the same rows whatever the order of the events that led to it.

use std::collections::BTreeMap;

use osmia_maps::layout::{Config, Node, Route, RouteKey, Uplink};

/// All rows of the tables that follow from the model. Endpoints are rows of attachments and are written at commit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desired {
    /// The running configuration.
    pub config: Config,
    /// Uplinks by ifindex.
    pub uplinks: BTreeMap<u32, Uplink>,
    /// Other nodes by number.
    pub nodes: BTreeMap<u16, Node>,
    /// Whose is a prefix.
    pub routes: BTreeMap<RouteKey, Route>,
}
