//! Rows that are the same for every story: configuration, uplink, routes, and one node reached as it is beside one behind a tunnel.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Result;
use osmia_maps::layout::node::{N_PRESENT, N_TUNNEL};
use osmia_maps::layout::route::RouteKind;
use osmia_maps::layout::{Addr, LAYOUT, Meta, Node, Route, Uplink, meta};
use osmia_maps::{Access, Pins, tables};

use super::{HERE4, HERE6, MTU, ifindex};
use crate::cluster::{self, addr};

/// Numbers of the node that is reached as it is, and of the other.
const NEAR: u16 = 2;
const FAR: u16 = 3;

pub(super) fn write(pins: &Pins, uplink: u32) -> Result<()> {
    let config = cluster::config(ifindex("door")?, HERE4, HERE6, MTU);
    tables::CONFIG.open(pins, Access::ReadWrite)?.put(&0, &config)?;
    // What `osmia` looks at before it reads anything.
    let meta = Meta { magic: meta::MAGIC, layout: LAYOUT, tick_shift: 2, hz: 250, ..Meta::default() };
    tables::META.open(pins, Access::ReadWrite)?.put(&0, &meta)?;
    let row = Uplink { v4: config.node4, mtu: 1500, v6: config.node6, ..Uplink::default() };
    tables::UPLINKS.open(pins, Access::ReadWrite)?.put(&uplink, &row)?;
    let nodes = tables::NODES.open(pins, Access::ReadWrite)?;
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
        nodes.put(&number.into(), &node)?;
    }
    let routes = tables::ROUTES.open(pins, Access::ReadWrite)?;
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
        routes.put(&cluster::prefix(prefix.parse()?, bits), &Route { kind: kind as u8, zero: 0, node })?;
    }
    Ok(())
}
