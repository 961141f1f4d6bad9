//! How the kernel would send to an address (RTM_GETROUTE).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use anyhow::{Context as _, Result};
use futures_util::TryStreamExt as _;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia};
use rtnetlink::{Error, Handle, RouteMessageBuilder};

use super::picture::{Picture, ip};
use crate::model::Way;

/// Ways to all these addresses; one that leads nowhere is left out.
pub(super) async fn find(handle: &Handle, picture: &Picture, to: &BTreeSet<IpAddr>) -> Result<BTreeMap<IpAddr, Way>> {
    let mut ways = BTreeMap::new();
    for &address in to.iter().filter(|ip| picture.ipv6 || ip.is_ipv4()) {
        let mut answers = handle.route().get(question(address)).execute();
        match answers.try_next().await {
            Ok(answer) => {
                ways.extend(answer.and_then(|message| way(&message, picture)).map(|way| (address, way)));
            }
            // ENETUNREACH, EHOSTUNREACH, EACCES, EINVAL: the kernel's several ways to say no.
            Err(Error::NetlinkError(_)) => {}
            Err(error) => return Err(error).with_context(|| format!("asking for the route to {address}")),
        }
    }
    Ok(ways)
}

fn question(address: IpAddr) -> RouteMessage {
    match address {
        IpAddr::V4(a) => RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(a, 32).build(),
        IpAddr::V6(a) => RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(a, 128).build(),
    }
}

fn way(message: &RouteMessage, picture: &Picture) -> Option<Way> {
    if message.header.kind != RouteType::Unicast {
        return None;
    }
    let (mut uplink, mut gateway, mut source, mut mtu) = (None, None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(ifindex) => uplink = Some(*ifindex),
            RouteAttribute::Gateway(to) => gateway = ip(to),
            // An IPv4 route over an IPv6 neighbour (RFC 8950).
            RouteAttribute::Via(RouteVia::Inet6(to)) => gateway = Some(IpAddr::V6(*to)),
            RouteAttribute::PrefSource(from) => source = ip(from),
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(bytes) => Some(*bytes).filter(|&bytes| bytes != 0),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    let uplink = uplink?;
    let device = picture.devices.get(&uplink)?.mtu;
    Some(Way { uplink, gateway, source, mtu: mtu.map_or(device, |mtu| mtu.min(device)) })
}
