//! Routes over the door: one for each range of pods, with the node's address as source. No other.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use anyhow::{Context as _, Result};
use ipnet::IpNet;
use netlink_packet_route::route::{RouteMessage, RouteProtocol, RouteScope};
use rtnetlink::{Handle, RouteMessageBuilder};
use tracing::{debug, info};

use super::{
    mend::Mended,
    picture::{MainRoute, Picture},
};

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    add: Vec<(IpNet, Option<IpAddr>)>,
    /// There, with another source: replaced, so that there is no moment without.
    replace: Vec<(IpNet, Option<IpAddr>)>,
    remove: Vec<MainRoute>,
    /// Their source is not an address of this node now: the kernel would refuse them. An event comes when it is.
    wait: Vec<IpNet>,
}

/// From the routes over the door to those wanted.
pub(super) fn plan(picture: &Picture, wanted: &BTreeMap<IpNet, Option<IpAddr>>) -> Plan {
    let usable: BTreeSet<IpAddr> =
        picture.addresses.iter().filter(|a| !a.tentative && !a.failed).map(|a| a.net.addr()).collect();
    let mut plan = Plan::default();
    for (range, source) in wanted.iter().filter(|(range, _)| picture.ipv6 || range.addr().is_ipv4()) {
        let there = picture.door_routes.iter().find(|route| route.destination == *range);
        if source.is_some_and(|ip| !usable.contains(&ip)) {
            plan.wait.push(*range);
            continue;
        }
        match there {
            Some(route) if route.source == *source => {}
            Some(_) => plan.replace.push((*range, *source)),
            None => plan.add.push((*range, *source)),
        }
    }
    let kernels = |route: &&MainRoute| route.message.header.protocol == RouteProtocol::Kernel;
    let strays = picture.door_routes.iter().filter(|route| !wanted.contains_key(&route.destination));
    plan.remove.extend(strays.filter(|route| !kernels(route)).cloned());
    plan
}

/// Does it.
pub(super) async fn carry_out(handle: &Handle, plan: Plan, door: u32, mended: &mut Mended) {
    if !plan.wait.is_empty() {
        debug!(ranges = ?plan.wait, "routes wait for this node's address");
    }
    let steps = plan.add.into_iter().map(|r| (r, false)).chain(plan.replace.into_iter().map(|r| (r, true)));
    for ((range, source), replace) in steps {
        mended.note(put(handle, range, source, door, replace).await);
    }
    for route in plan.remove {
        mended.note(remove(handle, route).await);
    }
}

async fn put(handle: &Handle, range: IpNet, source: Option<IpAddr>, door: u32, replace: bool) -> Result<bool> {
    let add = handle.route().add(message(range, source, door));
    let add = if replace { add.replace() } else { add };
    add.execute().await.with_context(|| format!("adding the route to {range} over the door"))?;
    info!(%range, source = source.map(tracing::field::display), "route over the door");
    Ok(true)
}

async fn remove(handle: &Handle, route: MainRoute) -> Result<bool> {
    let range = route.destination;
    handle.route().del(route.message).execute().await.with_context(|| format!("removing the route to {range}"))?;
    info!(%range, "route over the door removed");
    Ok(true)
}

fn message(range: IpNet, source: Option<IpAddr>, door: u32) -> RouteMessage {
    match range {
        IpNet::V4(net) => {
            let mut builder = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(net.network(), net.prefix_len())
                .scope(RouteScope::Link)
                .output_interface(door);
            if let Some(IpAddr::V4(source)) = source {
                builder = builder.pref_source(source);
            }
            builder.build()
        }
        IpNet::V6(net) => {
            let mut builder = RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(net.network(), net.prefix_len())
                .output_interface(door);
            if let Some(IpAddr::V6(source)) = source {
                builder = builder.pref_source(source);
            }
            builder.build()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::picture::Address, *};

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn route(range: &str, source: Option<&str>) -> MainRoute {
        let source = source.map(|ip| ip.parse().unwrap());
        MainRoute { destination: net(range), ifindex: 9, source, message: message(net(range), source, 9) }
    }

    fn picture(routes: Vec<MainRoute>) -> Picture {
        let address =
            |text: &str, tentative| Address { ifindex: 2, net: net(text), tentative, failed: false, passing: false };
        Picture {
            addresses: vec![address("192.0.2.1/24", false), address("2001:db8::1/64", true)],
            door_routes: routes,
            ipv6: true,
            ..Picture::default()
        }
    }

    fn wanted(rows: &[(&str, &str)]) -> BTreeMap<IpNet, Option<IpAddr>> {
        rows.iter().map(|(range, source)| (net(range), Some(source.parse().unwrap()))).collect()
    }

    #[test]
    fn a_missing_route_is_added_and_a_stray_one_removed() {
        let plan = plan(&picture(vec![route("10.9.0.0/16", None)]), &wanted(&[("10.0.0.0/16", "192.0.2.1")]));
        assert_eq!(plan.add, [(net("10.0.0.0/16"), Some("192.0.2.1".parse().unwrap()))]);
        assert_eq!(plan.remove.len(), 1);
        assert!(plan.replace.is_empty() && plan.wait.is_empty());
    }

    #[test]
    fn a_source_that_the_kernel_stripped_is_put_back() {
        let plan = plan(&picture(vec![route("10.0.0.0/16", None)]), &wanted(&[("10.0.0.0/16", "192.0.2.1")]));
        assert_eq!(plan.replace.len(), 1);
        assert!(plan.add.is_empty() && plan.remove.is_empty());
    }

    #[test]
    fn a_source_that_is_no_address_yet_is_waited_for() {
        let there = vec![route("fd00::/48", None)];
        let plan = plan(&picture(there), &wanted(&[("fd00::/48", "2001:db8::1"), ("10.0.0.0/16", "192.0.2.77")]));
        assert_eq!(plan.wait.len(), 2);
        assert!(plan.add.is_empty() && plan.replace.is_empty() && plan.remove.is_empty(), "{plan:?}");
    }

    #[test]
    fn what_is_right_is_left_alone_and_ipv6_without_ipv6_too() {
        let mut picture = picture(vec![route("10.0.0.0/16", Some("192.0.2.1"))]);
        picture.ipv6 = false;
        let wanted = wanted(&[("10.0.0.0/16", "192.0.2.1"), ("fd00::/48", "192.0.2.1")]);
        assert_eq!(plan(&picture, &wanted), Plan::default());
    }
}
