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

/// Events that may change a picture. Ends when the socket does.
pub(super) fn subscribe() -> Result<impl Stream<Item = ()> + Unpin + Send> {
    let (connection, _, messages) = new_multicast_connection(&GROUPS).context("opening a socket for netlink events")?;
    tokio::spawn(connection);
    Ok(messages.filter(|(message, _)| std::future::ready(matters(message))).map(|_| ()))
}

/// Pods come and go all the time, and their links are no part of the underlay. An overrun (the kernel had to drop events) matters.
fn matters(message: &NetlinkMessage<RouteNetlinkMessage>) -> bool {
    match &message.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link)) => {
            !name(link).is_some_and(is_pod_link)
        }
        _ => true,
    }
}
