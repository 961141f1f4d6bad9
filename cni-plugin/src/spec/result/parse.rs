//! Reading a result of any version, 0.1.0 included: `prevResult` is written by other plugins and by the runtime's cache.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

use super::{Address, CniResult, Dns, Interface, Route};

/// Why a result cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// Not of the layout.
    #[error("not a CNI result: {0}")]
    Shape(#[from] serde_json::Error),
    /// `ips[].interface` points outside `interfaces`.
    #[error("ips[].interface {index} points outside the {count} interfaces")]
    Index {
        /// The index.
        index: i64,
        /// How many there are.
        count: usize,
    },
}

/// All layouts at once: a field that a version lacks is absent. Null is absent (Go writes nil lists as null).
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Raw {
    interfaces: Option<Vec<RawInterface>>,
    ips: Option<Vec<RawAddress>>,
    ip4: Option<RawFamily>,
    ip6: Option<RawFamily>,
    routes: Option<Vec<RawRoute>>,
    dns: Option<RawDns>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawInterface {
    name: String,
    mac: Option<String>,
    mtu: Option<u32>,
    sandbox: Option<String>,
    socket_path: Option<String>,
    #[serde(rename = "pciID")]
    pci_id: Option<String>,
}

#[derive(Deserialize)]
struct RawAddress {
    interface: Option<i64>,
    address: IpNet,
    gateway: Option<IpAddr>,
}

/// `ip4` and `ip6` of 0.1.0 and 0.2.0.
#[derive(Deserialize)]
struct RawFamily {
    ip: IpNet,
    gateway: Option<IpAddr>,
    routes: Option<Vec<RawRoute>>,
}

#[derive(Deserialize)]
struct RawRoute {
    dst: IpNet,
    gw: Option<IpAddr>,
    mtu: Option<u32>,
    advmss: Option<u32>,
    priority: Option<u32>,
    table: Option<u32>,
    scope: Option<u8>,
}

#[derive(Deserialize)]
struct RawDns {
    nameservers: Option<Vec<String>>,
    domain: Option<String>,
    search: Option<Vec<String>>,
    options: Option<Vec<String>>,
}

impl CniResult {
    /// Reads a result of any version.
    ///
    /// # Errors
    /// Not of a known layout, or an index that points outside the list.
    pub fn from_json(value: &Value) -> Result<Self, ResultError> {
        let raw = Raw::deserialize(value)?;
        let mut result = Self::default();
        for i in raw.interfaces.unwrap_or_default() {
            result.interfaces.push(Interface {
                name: i.name,
                mac: i.mac.unwrap_or_default(),
                mtu: i.mtu.filter(|m| *m != 0),
                sandbox: i.sandbox.unwrap_or_default(),
                socket_path: i.socket_path.unwrap_or_default(),
                pci_id: i.pci_id.unwrap_or_default(),
                addresses: Vec::new(),
            });
        }
        let count = result.interfaces.len();
        for ip in raw.ips.unwrap_or_default() {
            let address = Address { address: ip.address, gateway: ip.gateway };
            let Some(index) = ip.interface else {
                result.unattached.push(address);
                continue;
            };
            let interface = usize::try_from(index).ok().and_then(|i| result.interfaces.get_mut(i));
            interface.ok_or(ResultError::Index { index, count })?.addresses.push(address);
        }
        let mut routes = raw.routes.unwrap_or_default();
        for family in [raw.ip4, raw.ip6].into_iter().flatten() {
            result.unattached.push(Address { address: family.ip, gateway: family.gateway });
            routes.extend(family.routes.unwrap_or_default());
        }
        result.routes = routes.into_iter().map(Route::from).collect();
        if let Some(dns) = raw.dns {
            result.dns = Dns {
                nameservers: dns.nameservers.unwrap_or_default(),
                domain: dns.domain.unwrap_or_default(),
                search: dns.search.unwrap_or_default(),
                options: dns.options.unwrap_or_default(),
            };
        }
        Ok(result)
    }
}

impl From<RawRoute> for Route {
    fn from(r: RawRoute) -> Self {
        Self {
            dst: r.dst,
            gw: r.gw,
            mtu: r.mtu,
            advmss: r.advmss,
            priority: r.priority,
            table: r.table,
            scope: r.scope,
        }
    }
}
