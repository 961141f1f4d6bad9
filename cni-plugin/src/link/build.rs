//! Builds the veth of an ADD: one batch in the host's namespace, one in the pod's.

use std::net::IpAddr;
use std::os::fd::AsFd;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkAttribute;
use rustix::io::Errno;

use super::message::{self, End};
use super::netlink::Ask;
use super::{Namespace, Netlink, NetlinkError, gateway, remove};
use crate::spec::Mac;

/// What to build.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the host's end.
    pub host_link: String,
    /// Name of the pod's end.
    pub ifname: String,
    /// MTU of both ends, bytes.
    pub mtu: u32,
    /// MAC of the host's end: the pods' gateway.
    pub gateway_mac: Mac,
    /// MAC of the pod's end.
    pub pod_mac: Mac,
    /// Addresses, at most one a family.
    pub addresses: Vec<IpAddr>,
    /// The kernel has IPv6.
    pub ipv6: bool,
}

/// Why it could not be built. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A link of the pod's name is there (A2).
    #[error("the interface exists already")]
    Exists,
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] NetlinkError),
    /// Something in the pod's namespace could not be set.
    #[error("{0}")]
    Namespace(std::io::Error),
}

/// Builds it; gives the ifindex of the host's end. A host link of that name is a leftover, as the name was reserved for this ADD: it
/// is removed first.
///
/// # Errors
/// See [`BuildError`].
pub fn build(plan: &Plan, host: &mut Netlink, pod: &mut Netlink, namespace: &Namespace) -> Result<u32, BuildError> {
    let created = create(plan, host, namespace).or_else(|error| {
        if error.errno() != Some(Errno::EXIST) {
            return Err(BuildError::Kernel(error));
        }
        // One of the two names is taken, and the answer does not tell which.
        if !remove::by_host_name(host, &plan.host_link)? {
            return Err(BuildError::Exists);
        }
        create(plan, host, namespace).map_err(|again| match again.errno() {
            Some(Errno::EXIST) => BuildError::Exists,
            _ => BuildError::Kernel(again),
        })
    })?;
    let dressed = dress(plan, pod, namespace, created.pod);
    match dressed {
        Ok(()) => Ok(created.host),
        Err(error) => {
            remove::by_host_name(host, &plan.host_link)?;
            Err(error)
        }
    }
}

struct Created {
    host: u32,
    pod: u32,
}

/// Both ends exist, the host's is up. Fails with EEXIST, and with nothing made, if a name is taken.
fn create(plan: &Plan, host: &mut Netlink, namespace: &Namespace) -> Result<Created, NetlinkError> {
    let name = plan.host_link.as_str();
    let end = |name, mac| End { name, mac, mtu: plan.mtu };
    let veth = message::new_veth(&end(name, plan.gateway_mac), &end(&plan.ifname, plan.pod_mac), namespace.as_fd());
    let mut asks = vec![Ask::new("creating the veth", veth)];
    if plan.ipv6 {
        asks.push(Ask::new("setting addrgenmode of the host's end", message::no_address_generation(name)));
    }
    asks.push(Ask::new("bringing up the host's end", message::up(name)));
    asks.push(Ask::new("reading the host's end", message::get_link(name)));
    let answers = host.batch(asks).inspect_err(|error| {
        // The first request made nothing when it failed; the link that the others then met is not this one.
        if !matches!(error, NetlinkError::Refused { index: 0, .. }) {
            // The first error is the one to report; what stays behind is undone by the agent, which knows the name.
            let _ = remove::by_host_name(host, name);
        }
    })?;
    answers
        .iter()
        .find_map(indexes)
        .ok_or_else(|| NetlinkError::Decode(format!("the kernel made {name} but did not say its index and its peer's")))
}

fn indexes(message: &RouteNetlinkMessage) -> Option<Created> {
    let RouteNetlinkMessage::NewLink(link) = message else { return None };
    let pod =
        link.attributes.iter().find_map(|a| if let LinkAttribute::Link(peer) = a { Some(*peer) } else { None })?;
    Some(Created { host: link.header.index, pod })
}

/// Brings the pod's end up, with addresses, the gateway as a permanent neighbour, and routes.
fn dress(plan: &Plan, pod: &mut Netlink, namespace: &Namespace, index: u32) -> Result<(), BuildError> {
    let mut asks = vec![Ask::new("bringing up the pod's end", message::up(&plan.ifname))];
    let mut inet6 = Vec::new();
    for &address in &plan.addresses {
        match address {
            IpAddr::V4(_) => asks.extend(inet(index, address, plan.gateway_mac)),
            IpAddr::V6(_) => inet6.extend(inet(index, address, plan.gateway_mac)),
        }
    }
    let first_of_v6 = asks.len();
    let addresses_v6 = plan.addresses.iter().copied().filter(IpAddr::is_ipv6);
    asks.append(&mut inet6);
    match pod.batch(asks) {
        Ok(_) => Ok(()),
        // addrconf.c: EACCES where disable_ipv6 is set. Containers of some runtimes start that way, and the pod was given an address.
        Err(NetlinkError::Refused { index: failed, source, .. })
            if failed == first_of_v6 && Errno::from_io_error(&source) == Some(Errno::ACCESS) =>
        {
            namespace.enable_ipv6(&plan.ifname).map_err(|e| {
                let what = format!("enabling IPv6 on {} in the pod: {e}", plan.ifname);
                BuildError::Namespace(std::io::Error::new(e.kind(), what))
            })?;
            pod.batch(addresses_v6.flat_map(|a| inet(index, a, plan.gateway_mac)).collect())?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn inet(index: u32, address: IpAddr, gateway_mac: Mac) -> Vec<Ask> {
    let gateway = gateway::of(address);
    let mut asks = vec![
        Ask::new("adding the pod's address", message::new_address(index, address)),
        Ask::new("adding the gateway as a neighbour", message::new_neighbour(index, gateway, gateway_mac)),
    ];
    if let IpAddr::V6(address) = address {
        asks.push(Ask::new("adding the route to the pod's own address", message::new_local_route(index, address)));
    }
    if let IpAddr::V4(gateway) = gateway {
        asks.push(Ask::new("adding the route to the gateway", message::new_link_route(index, gateway)));
    }
    asks.push(Ask::new("adding the default route", message::new_default_route(index, gateway)));
    asks
}
