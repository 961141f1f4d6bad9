//! What a node holds for pods, in each of the places where something could stay behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use osmia_lab::Node;
use serde_json::Value;

/// Where agents of the lab serve `/metrics` and the probes, each in its node's namespace.
pub(crate) const HTTP: &str = "127.0.0.1:9480";

/// Rows, records, addresses, queued DELs, status files: what is gone when DEL has answered. Needs an agent that serves.
pub(crate) fn now(node: &Node) -> BTreeSet<String> {
    let mut held = files_of(node);
    for map in ["endpoints", "endpoint_addr", "endpoint_if"] {
        held.extend(rows(node, map).into_iter().map(|key| format!("row of {map}: {key}")));
    }
    for (series, value) in metrics(node) {
        let counts = ["osmia_attachments{", "osmia_addresses{"].iter().any(|family| series.starts_with(family));
        if counts && !series.contains("state=\"resting\"") && !series.contains("state=\"capacity\"") && value > 0.0 {
            held.insert(format!("{series} {value}"));
        }
    }
    held
}

/// Records in the journal, queued DELs and status files alone, without asking the agent.
pub(crate) fn files_of(node: &Node) -> BTreeSet<String> {
    let mut held: BTreeSet<_> =
        records(node).into_iter().map(|link| format!("record in the journal: {link}")).collect();
    held.extend(files(&node.paths.state.join("queue"), &["lock"]).into_iter().map(|name| format!("queued: {name}")));
    let status = files(&node.paths.manifests.join("status"), &[]);
    held.extend(status.into_iter().map(|name| format!("status file: {name}")));
    held
}

/// The node's ends of pods' links. They go a moment after DEL has answered.
pub(crate) fn links(node: &Node) -> BTreeSet<String> {
    let text = node.space.output(Command::new("ip").args(["-o", "link", "show", "type", "veth"])).unwrap();
    let names = text.lines().filter_map(|line| line.split(": ").nth(1)?.split('@').next());
    names.filter(|name| name.starts_with("osm") && name.len() == 15).map(|name| format!("link: {name}")).collect()
}

/// Pins of pods' programs. Those of links that are gone go with the garbage.
pub(crate) fn pins(node: &Node) -> BTreeSet<String> {
    let pins = node.space.run(|| files(&node.paths.bpffs.join("1/links"), &[])).unwrap();
    pins.into_iter().filter(|pin| pin.contains("_pod-")).map(|pin| format!("pin: {pin}")).collect()
}

fn rows(node: &Node, map: &str) -> Vec<String> {
    let told = node.osmia(&["map", "dump", map, "--json"]).unwrap();
    assert!(told.status.success(), "{}", told.text());
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let rows = told["rows"].as_array().unwrap().iter();
    rows.map(|row| row["key_text"].as_str().unwrap().to_owned()).collect()
}

/// Links whose attachment the journal promises something to.
fn records(node: &Node) -> BTreeSet<String> {
    let text = fs::read_to_string(node.paths.state.join("journal")).unwrap_or_default();
    let mut open = BTreeSet::new();
    // The last line may be half written right now.
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line.split_once(' ')?.1).ok()) {
        if let Some(link) = line.pointer("/Put/host_link").and_then(Value::as_str) {
            open.insert(link.to_owned());
        }
        if let Some(link) = line.pointer("/Gone/host_link").and_then(Value::as_str) {
            open.remove(link);
        }
    }
    open
}

fn files(folder: &Path, but: &[&str]) -> Vec<String> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.file_name());
    names.map(|name| name.into_string().unwrap()).filter(|name| !but.contains(&name.as_str())).collect()
}

/// A request to the agent; status and body. `None` where nobody listens or the answer breaks off.
pub(crate) fn get(node: &Node, path: &str) -> Option<(u16, String)> {
    node.space
        .run(|| {
            let address: SocketAddr = HTTP.parse().ok()?;
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            let (head, body) = text.split_once("\r\n\r\n")?;
            Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
        })
        .unwrap()
}

/// The samples of `/metrics`: series and value.
pub(crate) fn metrics(node: &Node) -> BTreeMap<String, f64> {
    let (status, text) = get(node, "/metrics").expect("the agent serves /metrics");
    assert_eq!(status, 200, "{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.into(), value.parse().unwrap()))
        .collect()
}
