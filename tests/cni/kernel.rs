//! What the kernel has, read by `ip -json`: not by the code under test.

use std::process::Command;

use osmia_lab::Space;
use serde_json::Value;

fn ip(space: &Space, arguments: &[&str]) -> Vec<Value> {
    let text = space.output(Command::new("ip").arg("-json").arg("-details").args(arguments)).unwrap();
    if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() }
}

/// All links but `lo`.
pub(crate) fn links(space: &Space) -> Vec<String> {
    let names = ip(space, &["link", "show"]).into_iter().map(|l| l["ifname"].as_str().unwrap().to_owned());
    names.filter(|n| n != "lo").collect()
}

pub(crate) fn link(space: &Space, name: &str) -> Value {
    ip(space, &["link", "show", "dev", name]).remove(0)
}

/// Addresses with prefix, and their flags; the link-local ones of IPv6 left out.
pub(crate) fn addresses(space: &Space, name: &str) -> Vec<(String, Value)> {
    let all = ip(space, &["address", "show", "dev", name]).remove(0)["addr_info"].as_array().unwrap().clone();
    let text = |a: &Value| format!("{}/{}", a["local"].as_str().unwrap(), a["prefixlen"]);
    all.iter().map(|a| (text(a), a.clone())).filter(|(t, _)| !t.starts_with("fe80")).collect()
}

/// Routes of the main table as `dst [via]`.
pub(crate) fn routes(space: &Space, family: &str) -> Vec<String> {
    let routes = ip(space, &[family, "route", "show"]);
    let text = |r: &Value| match r["gateway"].as_str() {
        Some(gateway) => format!("{} {gateway}", r["dst"].as_str().unwrap()),
        None => r["dst"].as_str().unwrap().to_owned(),
    };
    let mut routes: Vec<_> =
        routes.iter().map(text).filter(|r| !r.starts_with("fe80") && !r.starts_with("ff00")).collect();
    routes.sort();
    routes
}

/// Permanent neighbours as `address mac`.
pub(crate) fn neighbours(space: &Space, name: &str) -> Vec<String> {
    let all = ip(space, &["neighbour", "show", "dev", name, "nud", "permanent"]);
    let mut all: Vec<_> =
        all.iter().map(|n| format!("{} {}", n["dst"].as_str().unwrap(), n["lladdr"].as_str().unwrap())).collect();
    all.sort();
    all
}
