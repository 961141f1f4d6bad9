//! Nodes with agents, namespaces, pods and policies; and what was expected of them.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::thread;
use std::time::Duration;

use osmia_lab::cni_runner::Attachment;
use osmia_lab::manifest::PodManifest;
use osmia_lab::{Encap, Lab, Node, Options, Pod, Proto, Server, Space, Subnet};

/// How long the agent may take to answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where agents of the lab serve `/metrics`, each in its node's namespace.
const METRICS: &str = "127.0.0.1:9480";
/// A policy of no pod: what was written before it has been read when it is in force.
const FENCE: &str = "fence";

pub(crate) struct Stage {
    pub(crate) lab: Lab,
}

/// A pod in the cluster.
pub(crate) struct Guest {
    pub(crate) pod: Pod,
    pub(crate) object: PodManifest,
}

/// Whether what one sends to another's server shall arrive.
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) from: &'a Space,
    pub(crate) to: &'a Guest,
    pub(crate) server: &'a Server,
    pub(crate) v6: bool,
    pub(crate) arrives: bool,
}

impl Stage {
    /// Nodes in one subnet.
    pub(crate) fn new(encap: Encap, nodes: usize) -> Self {
        let lab = Lab::build(Options { encap, nodes: vec![Subnet::Near; nodes], ..Options::default() }).unwrap();
        lab.start_agents().unwrap_or_else(|err| panic!("{err:#}"));
        Self { lab }
    }

    pub(crate) fn node(&self, index: usize) -> &Node {
        &self.lab.nodes[index]
    }

    pub(crate) fn namespace(&self, name: &str, labels: &[(&str, &str)]) {
        self.lab.tell_namespace(name, labels).unwrap();
    }

    /// What is known of a pod before it has a network, told to nobody.
    pub(crate) fn object(&self, node: usize, namespace: &str, name: &str, labels: &[(&str, &str)]) -> PodManifest {
        self.lab.object(node, namespace, name, labels).unwrap()
    }

    /// Tells every node's folder of a pod.
    pub(crate) fn tell(&self, object: &PodManifest) {
        self.lab.tell_pod(object).unwrap();
    }

    /// A sandbox that the folders need not know.
    pub(crate) fn sandbox(&self, node: usize, object: &PodManifest) -> (Space, Attachment) {
        self.lab.sandbox_alone(node, &object.namespace, &object.name, &object.uid).unwrap()
    }

    /// A new pod, told as an apiserver tells it: before its sandbox, and once more with its addresses.
    pub(crate) fn pod(&self, node: usize, namespace: &str, name: &str, labels: &[(&str, &str)]) -> Guest {
        self.pod_of(node, self.object(node, namespace, name, labels))
    }

    pub(crate) fn pod_of(&self, node: usize, mut object: PodManifest) -> Guest {
        let pod = self.lab.add_told(node, &mut object).unwrap_or_else(|err| panic!("{err:#}"));
        Guest { pod, object }
    }

    /// Writes a policy (`spec` as flow-style YAML) and waits until it is in force everywhere.
    pub(crate) fn policy(&self, namespace: &str, name: &str, spec: &str) {
        self.lab.enforce(namespace, name, spec).unwrap_or_else(|err| panic!("{err:#}\n{}", self.stories()));
    }

    /// Removes a policy and waits until it is gone everywhere.
    pub(crate) fn no_policy(&self, namespace: &str, name: &str) {
        self.lab.lift(namespace, name).unwrap_or_else(|err| panic!("{err:#}\n{}", self.stories()));
    }

    /// Waits until everything that was written is in force everywhere.
    pub(crate) fn settle(&self) {
        self.policy(FENCE, FENCE, "{podSelector: {}}");
    }

    /// Runs all cases at the same time.
    pub(crate) fn expect(&self, when: &str, cases: Vec<Case<'_>>) {
        let failed: Vec<String> = thread::scope(|scope| {
            let running: Vec<_> = cases.iter().map(|case| scope.spawn(|| case.run())).collect();
            running.into_iter().filter_map(|case| case.join().unwrap().err()).collect()
        });
        if failed.is_empty() {
            return;
        }
        panic!("{when}:\n{}\n{}", failed.join("\n"), self.stories());
    }

    /// What the first node did, for a message.
    pub(crate) fn story(&self) -> String {
        story(self.node(0))
    }

    fn stories(&self) -> String {
        self.lab.nodes.iter().fold(String::new(), |mut text, node| {
            let _ = writeln!(text, "{}", story(node));
            text
        })
    }
}

impl Guest {
    pub(crate) fn space(&self) -> &Space {
        &self.pod.space
    }

    pub(crate) fn address(&self, v6: bool) -> IpAddr {
        self.pod.address(v6).unwrap()
    }

    pub(crate) fn serves(&self, proto: Proto, port: u16) -> Server {
        Server::start(self.space(), proto, port).unwrap()
    }
}

impl Case<'_> {
    fn run(&self) -> Result<(), String> {
        let Self { name, from, to, server, v6, arrives } = *self;
        let address = to.address(v6);
        let arrived = server.hears(from, address, arrives).unwrap();
        if arrived == arrives {
            return Ok(());
        }
        let word = if arrives { "does not reach" } else { "reaches" };
        Err(format!("{name} {word} {} ({address}, {} {})", to.object.name, server.proto.name(), server.port))
    }
}

/// Cases of both families for each of these senders.
pub(crate) fn both<'a>(to: &'a Guest, server: &'a Server, senders: &[(&'a str, &'a Space, bool)]) -> Vec<Case<'a>> {
    let of = |v6: bool| senders.iter().map(move |&(name, from, arrives)| Case { name, from, to, server, v6, arrives });
    of(false).chain(of(true)).collect()
}

/// What the node's agent tells Prometheus.
pub(crate) fn metrics(node: &Node) -> String {
    let answer = node.space.run(|| {
        let mut stream = TcpStream::connect(METRICS).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    answer.unwrap()
}

/// What a node did, for a message.
pub(crate) fn story(node: &Node) -> String {
    let drops = node.osmia(&["drop"]).map_or_else(|err| format!("{err:#}"), |told| told.stdout);
    let log = std::fs::read_to_string(&node.paths.log).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    format!("{}:\n{drops}{}", node.name, lines[lines.len().saturating_sub(15)..].join("\n"))
}
