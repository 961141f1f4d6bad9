//! What the tests of this target share.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::cni_runner::{Attachment, CniError, CniRunner};
use osmia_lab::{Lab, Node, Options, Pod, Probe, Proto, Space, Subnet};

use crate::held;

/// Links go a moment after DEL, garbage a second after it was seen for the first time, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(15);

/// Nodes with agents that serve, and what they held for pods when it counted.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    garbage: Garbage,
    base: (BTreeSet<String>, BTreeSet<String>),
}

/// When agents take what nobody asked them to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Garbage {
    /// Not within a test: what is gone went by DEL or by a start.
    Never,
    AfterASecond,
}

/// A pod's sandbox, before ADD.
pub(crate) struct Sandbox {
    pub(crate) name: String,
    pub(crate) space: Space,
    pub(crate) attachment: Attachment,
}

impl Stage {
    /// Addresses rest for no longer than a link takes to go.
    pub(crate) fn new(nodes: usize, garbage: Garbage) -> Self {
        let after = if garbage == Garbage::Never { "3600" } else { "1" };
        let agent_flags = ["--address-rest", "0", "--garbage-after", after].map(str::to_owned).to_vec();
        let lab = Lab::build(Options { nodes: vec![Subnet::Near; nodes], agent_flags, ..Options::default() }).unwrap();
        lab.start_agents().unwrap_or_else(|err| panic!("{err:#}"));
        let mut stage = Self { lab, garbage, base: Default::default() };
        stage.remember();
        stage
    }

    /// What is there now may stay.
    pub(crate) fn remember(&mut self) {
        self.base = self.held();
    }

    fn held(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let mut late = held::links(self.node());
        if self.garbage == Garbage::AfterASecond {
            late.extend(held::pins(self.node()));
        }
        (held::now(self.node()), late)
    }

    /// The node that is judged.
    pub(crate) fn node(&self) -> &Node {
        &self.lab.nodes[0]
    }

    pub(crate) fn pod(&self, node: usize, name: &str) -> Pod {
        self.lab.add_pod(node, name).unwrap_or_else(|err| panic!("{err:#}"))
    }

    pub(crate) fn sandbox(&self, name: impl Into<String>) -> Sandbox {
        let name = name.into();
        let (space, attachment) = self.lab.sandbox(0, &name).unwrap();
        Sandbox { name, space, attachment }
    }

    /// The sandbox goes without a word to the plugin.
    pub(crate) fn drop_sandbox(&self, sandbox: Sandbox) {
        self.lab.remove_netns(0, sandbox.attachment.netns.as_ref().unwrap()).unwrap();
    }

    /// A runtime of this node whose plugin is started through something.
    pub(crate) fn runtime_through(&self, through: Vec<String>) -> CniRunner {
        let runtime = &self.node().runtime;
        let space = runtime.space.try_clone().unwrap();
        let mut other = CniRunner::new(space, runtime.path.clone(), runtime.network.clone(), runtime.plugins.clone());
        other.through = through;
        other
    }

    /// That nothing more is held than what may stay, by what DEL answers for.
    pub(crate) fn nothing_left(&self, after: &str) {
        let held = held::now(self.node());
        let wrong: Vec<_> = held.symmetric_difference(&self.base.0).collect();
        assert!(wrong.is_empty(), "after {after}: {wrong:#?}\n{}", self.story());
    }

    /// The same, links and pins as well, some time later.
    pub(crate) fn becomes_clean(&self, after: &str) {
        let since = Instant::now();
        loop {
            let (now, late) = self.held();
            if (&now, &late) == (&self.base.0, &self.base.1) {
                return;
            }
            if since.elapsed() > PATIENCE {
                let wrong: Vec<_> = now.symmetric_difference(&self.base.0).collect();
                let later: Vec<_> = late.symmetric_difference(&self.base.1).collect();
                panic!("{PATIENCE:?} after {after}: {wrong:#?} {later:#?}\n{}", self.story());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The last lines of the agent's log.
    pub(crate) fn story(&self) -> String {
        let log = fs::read_to_string(&self.node().paths.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Starts the agent anew and waits until it serves.
    pub(crate) fn start_agent(&self) {
        self.node().start_agent().unwrap();
        self.node().wait_ready().unwrap_or_else(|err| panic!("{err:#}"));
    }
}

/// The code of the plugin's error document.
pub(crate) fn code(error: &anyhow::Error) -> Option<u64> {
    error.downcast_ref::<CniError>().and_then(|error| error.code)
}

/// A datagram of each size from one pod to the other and back.
pub(crate) fn reaches(from: &Space, to: &Pod, own: std::net::IpAddr) -> Result<(), String> {
    let destination = to.address(own.is_ipv6()).unwrap();
    let patience = Duration::from_secs(3);
    let probe = Probe { proto: Proto::Udp, from, to: &to.space, destination, patience };
    probe.run().map_err(|err| format!("{err:#}"))?.complete(own)
}

/// The pod's IPv4 address in a result.
pub(crate) fn v4_of(result: &serde_json::Value) -> std::net::IpAddr {
    let text = result["ips"][0]["address"].as_str().unwrap();
    text.split('/').next().unwrap().parse().unwrap()
}
