//! The result of an ADD, blind to its version.
//!
//! Invariant: an address belongs to its interface by nesting, and the index that the layouts have is computed when the result is
//! written. So `ips[].interface` can never point outside `interfaces`: such an index ends the whole containerd daemon.

mod emit;
mod parse;

use std::net::IpAddr;

use ipnet::IpNet;

pub use parse::ResultError;

/// A result.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CniResult {
    /// Everything that was created, host side included, with its addresses.
    pub interfaces: Vec<Interface>,
    /// Addresses that name no interface; legal in prevResult, never made by us.
    pub unattached: Vec<Address>,
    /// Routes.
    pub routes: Vec<Route>,
    /// DNS.
    pub dns: Dns,
}

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Ethernet address in text; empty if unknown.
    pub mac: String,
    /// MTU in bytes; since 1.1.0.
    pub mtu: Option<u32>,
    /// The namespace as CNI_NETNS gave it; empty for the host side.
    pub sandbox: String,
    /// Since 1.1.0; not ours.
    pub socket_path: String,
    /// Since 1.1.0; not ours.
    pub pci_id: String,
    /// Its addresses.
    pub addresses: Vec<Address>,
}

/// An address with its prefix; host bits are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Address and prefix length.
    pub address: IpNet,
    /// Its gateway.
    pub gateway: Option<IpAddr>,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Destination.
    pub dst: IpNet,
    /// Gateway; without one the destination is on link.
    pub gw: Option<IpAddr>,
    /// MTU in bytes; since 1.1.0, as the rest.
    pub mtu: Option<u32>,
    /// Advertised maximum segment size, bytes.
    pub advmss: Option<u32>,
    /// Metric.
    pub priority: Option<u32>,
    /// Table.
    pub table: Option<u32>,
    /// 0 global, 253 link, 254 host.
    pub scope: Option<u8>,
}

impl Route {
    /// A route by a gateway.
    #[must_use]
    pub fn via(dst: IpNet, gw: IpAddr) -> Self {
        Self { dst, gw: Some(gw), mtu: None, advmss: None, priority: None, table: None, scope: None }
    }
}

/// DNS settings; the runtimes read here take a pod's from the kubelet, podman reads `nameservers`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dns {
    /// Servers.
    pub nameservers: Vec<String>,
    /// Domain; empty if none.
    pub domain: String,
    /// Search list.
    pub search: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

impl CniResult {
    /// The interface of that name inside a namespace: what portmap, bandwidth and CHECK look for.
    #[must_use]
    pub fn in_sandbox(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|i| i.name == name && !i.sandbox.is_empty())
    }
}

#[cfg(test)]
mod tests;
