//! Netlink events, reduced to the one thing they are good for: it is time to look again.

use anyhow::{Context as _, Result};
use futures_util::{Stream, StreamExt as _};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::{MulticastGroup, new_multicast_connection};

use super::{is_pod_link, picture::name};

/// Groups that tell of links, addresses and routes of both families.
const GROUPS: [MulticastGroup; 6] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
];

/// `RT_TABLE_LOCAL` of linux/rtnetlink.h.
const LOCAL_TABLE: u8 = 255;

/// Events that may change a picture. Ends when the socket does.
pub(super) fn subscribe() -> Result<impl Stream<Item = ()> + Unpin + Send> {
    let (connection, _, messages) = new_multicast_connection(&GROUPS).context("opening a socket for netlink events")?;
    tokio::spawn(connection);
    Ok(messages.filter(|(message, _)| std::future::ready(matters(message))).map(|_| ()))
}

/// Pods come and go all the time, and their links are no part of the underlay. Each also makes and takes the route of its link's multicast,
/// in the table of local routes; what matters of that table are addresses, which are told as such. An overrun (the kernel had to drop
/// events) matters.
fn matters(message: &NetlinkMessage<RouteNetlinkMessage>) -> bool {
    match &message.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link)) => {
            !name(link).is_some_and(is_pod_link)
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route)) => {
            route.header.table != LOCAL_TABLE
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NetlinkHeader;
    use netlink_packet_route::{
        link::{LinkAttribute, LinkMessage},
        route::{RouteHeader, RouteMessage},
    };

    use super::*;

    fn of(message: RouteNetlinkMessage) -> bool {
        matters(&NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message)))
    }

    fn link(name: &str) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        link
    }

    fn route(table: u8) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.table = table;
        route
    }

    #[test]
    fn a_pod_that_starts_or_ends_is_no_reason_to_look() {
        for message in [RouteNetlinkMessage::NewLink, RouteNetlinkMessage::DelLink] {
            assert!(!of(message(link("osmafr2pezyjjad"))));
            assert!(of(message(link("eth0"))));
            assert!(of(message(link("osmia0"))));
        }
        for message in [RouteNetlinkMessage::NewRoute, RouteNetlinkMessage::DelRoute] {
            assert!(!of(message(route(LOCAL_TABLE))), "ff00::/8 over the pod's link");
            assert!(of(message(route(RouteHeader::RT_TABLE_MAIN))));
            assert!(of(message(route(100))), "a table that a rule names");
        }
    }
}
