//! A result in the layout of a version; only what that version has.

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::{Address, CniResult, Dns, Interface, Route};
use crate::spec::Version;

impl CniResult {
    /// The JSON document.
    #[must_use]
    pub fn to_json(&self, version: Version) -> Value {
        let attached =
            self.interfaces.iter().enumerate().flat_map(|(i, f)| f.addresses.iter().map(move |a| (a, Some(i))));
        let ips: Vec<_> = attached
            .chain(self.unattached.iter().map(|a| (a, None)))
            .map(|(a, index)| address(a, index, version))
            .collect();
        let mut out = Map::new();
        out.insert("cniVersion".into(), version.as_str().into());
        out.insert("interfaces".into(), self.interfaces.iter().map(|i| interface(i, version)).collect());
        out.insert("ips".into(), ips.into());
        if !self.routes.is_empty() {
            out.insert("routes".into(), self.routes.iter().map(|r| route(r, version)).collect());
        }
        if self.dns != Dns::default() {
            out.insert("dns".into(), dns(&self.dns));
        }
        Value::Object(out)
    }
}

fn put(out: &mut Map<String, Value>, key: &str, text: &str) {
    if !text.is_empty() {
        out.insert(key.into(), text.into());
    }
}

fn put_some<T: Into<Value>>(out: &mut Map<String, Value>, key: &str, value: Option<T>) {
    if let Some(value) = value {
        out.insert(key.into(), value.into());
    }
}

fn interface(interface: &Interface, version: Version) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), interface.name.as_str().into());
    put(&mut out, "mac", &interface.mac);
    put(&mut out, "sandbox", &interface.sandbox);
    if version >= Version::V1_1_0 {
        put_some(&mut out, "mtu", interface.mtu);
        put(&mut out, "socketPath", &interface.socket_path);
        put(&mut out, "pciID", &interface.pci_id);
    }
    Value::Object(out)
}

fn address(address: &Address, index: Option<usize>, version: Version) -> Value {
    let mut out = Map::new();
    out.insert("address".into(), address.address.to_string().into());
    put_some(&mut out, "gateway", address.gateway.map(|g| g.to_string()));
    put_some(&mut out, "interface", index);
    if version < Version::V1_0_0 {
        let family = if matches!(address.address, IpNet::V4(_)) { "4" } else { "6" };
        out.insert("version".into(), family.into());
    }
    Value::Object(out)
}

fn route(route: &Route, version: Version) -> Value {
    let mut out = Map::new();
    out.insert("dst".into(), route.dst.to_string().into());
    put_some(&mut out, "gw", route.gw.map(|g| g.to_string()));
    if version >= Version::V1_1_0 {
        put_some(&mut out, "mtu", route.mtu);
        put_some(&mut out, "advmss", route.advmss);
        put_some(&mut out, "priority", route.priority);
        put_some(&mut out, "table", route.table);
        put_some(&mut out, "scope", route.scope);
    }
    Value::Object(out)
}

fn dns(dns: &Dns) -> Value {
    let mut out = Map::new();
    put(&mut out, "domain", &dns.domain);
    for (key, list) in [("nameservers", &dns.nameservers), ("search", &dns.search), ("options", &dns.options)] {
        if !list.is_empty() {
            out.insert(key.into(), json!(list));
        }
    }
    Value::Object(out)
}
