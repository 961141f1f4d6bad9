//! A node with an agent and an installed conflist, and what a person would look at on it.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::{Lab, Node, Options, Space, Subnet, bin_dir};
use serde_json::{Value, json};

/// An address whose pod is gone rests until its link is surely gone, beside what `--address-rest` says.
pub(crate) const REST: Duration = Duration::from_millis(1100);
/// The range of the node for IPv6, as the lab gives it.
pub(crate) const RANGE_V6: &str = "fd00:10:244:1:";

/// The node. Everything goes with it.
pub(crate) struct Host {
    lab: Lab,
}

impl Host {
    /// A node whose agent serves. Its IPv4 range has room for two pods, whose addresses need no rest: a third pod succeeds only
    /// where an earlier one is really gone.
    pub(crate) fn start() -> Self {
        let flags = ["--address-rest", "0", "--garbage-after", "1", "--metrics", "off"].map(str::to_owned).to_vec();
        let options = Options { nodes: vec![Subnet::Near], agent_flags: flags, ..Options::default() };
        let mut lab = Lab::build(options).unwrap();
        lab.nodes[0].manifest.pod_cidrs[0] = "10.244.1.0/30".to_owned();
        lab.announce(0).unwrap();
        lab.start_agents().unwrap();
        let host = Self { lab };
        host.install();
        host
    }

    /// What the installer puts on a node: conflist and plugin, here into the node's folder.
    fn install(&self) {
        let paths = &self.node().paths;
        fs::create_dir_all(self.folder().join("net.d")).unwrap();
        fs::create_dir_all(self.folder().join("cni-bin")).unwrap();
        let plugin = json!({
            "type": "osmia-cni",
            "socket": paths.socket(),
            "state": paths.state,
            "bpffs": paths.bpffs,
            "capabilities": {"portMappings": true, "bandwidth": true},
        });
        let versions = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
        let conflist = json!({"cniVersion": "1.0.0", "cniVersions": versions, "name": "osmia", "plugins": [plugin]});
        fs::write(self.conflists().join("10-osmia.conflist"), conflist.to_string()).unwrap();
        fs::copy(bin_dir().unwrap().join("osmia-cni"), self.plugins().join("osmia-cni")).unwrap();
    }

    pub(crate) fn node(&self) -> &Node {
        &self.lab.nodes[0]
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.lab.folder().to_owned()
    }

    /// Folder of the conflist.
    pub(crate) fn conflists(&self) -> PathBuf {
        self.folder().join("net.d")
    }

    /// Folder of the plugin.
    pub(crate) fn plugins(&self) -> PathBuf {
        self.folder().join("cni-bin")
    }

    /// The pods that the dataplane knows, by `osmia endpoint list`, each as text.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        let out = self.node().osmia(&["endpoint", "list", "--json"]).unwrap();
        assert!(out.status.success(), "osmia endpoint list: {}", out.text());
        let document: Value = serde_json::from_str(&out.stdout).unwrap();
        let rows = document.get("endpoints").and_then(Value::as_array).expect("the document lists endpoints");
        rows.iter().map(Value::to_string).collect()
    }

    /// Whether the dataplane has a row for the pod with this address.
    pub(crate) fn knows(&self, address: IpAddr) -> bool {
        self.endpoints().iter().any(|row| row.contains(&format!("\"{address}\"")))
    }

    /// The node's ends of pods' links.
    pub(crate) fn links(&self) -> BTreeSet<String> {
        let text = self.node().space.output(Command::new("ip").args(["-o", "link", "show", "type", "veth"])).unwrap();
        let names = text.lines().filter_map(|line| line.split(": ").nth(1)?.split('@').next());
        names.filter(|n| n.starts_with("osm") && n.len() == 15).map(str::to_owned).collect()
    }

    /// DELs that wait for the agent.
    pub(crate) fn queued(&self) -> usize {
        let entries = fs::read_dir(self.node().paths.state.join("queue")).into_iter().flatten().flatten();
        entries.filter(|e| e.path().extension().is_some_and(|x| x == "json")).count()
    }

    /// Waits until no pod is left: no row, no link.
    pub(crate) fn wait_empty(&self, patience: Duration) {
        wait_for("rows and links of pods go", patience, || self.endpoints().is_empty() && self.links().is_empty());
    }

    /// Starts the agent anew and waits until it serves.
    pub(crate) fn start_agent(&self) {
        self.node().start_agent().unwrap();
        self.node().wait_ready().unwrap();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.node().paths.log).unwrap_or_default()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("log of the agent:\n{}", self.log());
        }
    }
}

/// Waits until `done`.
///
/// # Panics
/// It is not after `patience`.
pub(crate) fn wait_for(what: &str, patience: Duration, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < patience, "not within {patience:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What `ip` says inside `space`.
pub(crate) fn ip(space: &Space, words: &str) -> String {
    space.output(Command::new("ip").args(words.split(' '))).unwrap()
}

/// Addresses of `eth0` in the output of `ip -o address show`, link-local ones left out.
pub(crate) fn addresses(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let found = words.windows(2).filter(|w| w[0] == "inet" || w[0] == "inet6").map(|w| w[1].to_owned());
    found.filter(|a| !a.starts_with("fe80:")).collect()
}
