//! An agent whose maps have other rows takes over from one that runs, and the other way round, while pods talk; killed at each step between.
//!
//! The other agent is `osmia-agent-next`: the same sources with the feature `next-layout`, which makes flow entries and endpoints longer and
//! ends at the step that `OSMIA_DIES_AT` names.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};
use std::{fs, thread};

use osmia_lab::load::{Connects, Datagrams};
use osmia_lab::{Lab, Node, OUTSIDE_V4, OUTSIDE_V6, Options, Pod, Space};
use osmia_maps::{Pins, layout::LAYOUT};

use crate::exchange::Exchange;
use crate::stage::{lab, pod, story};

const NOW: &str = "osmia-agent";
const NEXT: &str = "osmia-agent-next";
/// Where the next agent ends, in order: `reached` in the agent's sources.
const STEPS: [&str; 12] = [
    "programs-loaded",
    "rows-copied",
    "flows-copied",
    "meta-written",
    "uplinks-doubled",
    "link-replaced",
    // The first link that is moved of these.
    "osm_from_pod",
    "osm_to_door",
    "links-moved",
    "flows-again",
    "uplinks-let-go",
    "meta-removed",
];
const RATE: u32 = 2000;

/// A connection on which nobody says anything unless asked to.
struct Idle {
    name: &'static str,
    client: TcpStream,
    server: TcpStream,
}

impl Idle {
    fn open(name: &'static str, from: &Space, to: &Space, destination: IpAddr) -> Self {
        let listener = to.run(|| TcpListener::bind((destination, 0))).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let client = from.run(|| TcpStream::connect_timeout(&target, Duration::from_secs(5))).unwrap().unwrap();
        let (server, _) = listener.accept().unwrap();
        for end in [&client, &server] {
            end.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            end.set_nodelay(true).unwrap();
        }
        let mut idle = Self { name, client, server };
        idle.speak("at first");
        idle
    }

    /// A byte each way, the server's first: its packets come where a masqueraded flow is known by its entry alone.
    fn speak(&mut self, when: &str) {
        let name = self.name;
        for (mut from, mut to) in [(&self.server, &self.client), (&self.client, &self.server)] {
            from.write_all(b"x").unwrap_or_else(|e| panic!("{when}: {name}: {e}"));
            to.read_exact(&mut [0]).unwrap_or_else(|e| panic!("{when}: {name}: {e}"));
        }
    }
}

/// Everything that must go on.
struct Talk {
    there: Datagrams,
    back: Datagrams,
    masqueraded: Exchange,
    idle: [Idle; 3],
}

impl Talk {
    fn start(lab: &Lab, a: &Pod, b: &Pod, c: &Pod) -> Self {
        let outside = (&lab.lan.outside, OUTSIDE_V4.into());
        let talk = Self {
            there: Datagrams::start(&a.space, &b.space, b.address(false).unwrap(), RATE).unwrap(),
            back: Datagrams::start(&b.space, &a.space, a.address(true).unwrap(), RATE).unwrap(),
            masqueraded: Exchange::start((&a.space, a.address(false).unwrap()), outside),
            idle: [
                Idle::open("to a pod of the other node", &a.space, &b.space, b.address(true).unwrap()),
                Idle::open("to a pod of the same node", &a.space, &c.space, c.address(false).unwrap()),
                Idle::open("masqueraded", &a.space, outside.0, outside.1),
            ],
        };
        // Long enough to be established: datagrams are after two seconds.
        thread::sleep(Duration::from_millis(2500));
        talk
    }

    fn idle(&mut self, when: &str) {
        for idle in &mut self.idle {
            idle.speak(when);
        }
    }

    fn finish(mut self, lab: &Lab) {
        self.idle("at last");
        let story = || lab.nodes.iter().map(story).collect::<String>();
        for (name, datagrams) in [("there", self.there), ("back", self.back)] {
            let report = datagrams.finish().unwrap();
            assert!(report.sent > u64::from(RATE), "{name}: too little to show anything: {report:?}");
            assert_eq!((report.missing, report.refused), (0, 0), "{name}: {report:?}; {}", story());
        }
        let exchanged = self.masqueraded.finish();
        assert_eq!((exchanged.missing, exchanged.strange), (0, 0), "masqueraded: {exchanged:?}; {}", story());
    }
}

fn stage() -> (Lab, [Pod; 3]) {
    let lab = lab(Options::default());
    let pods = [pod(&lab, 0, "a"), pod(&lab, 1, "b"), pod(&lab, 0, "c")];
    (lab, pods)
}

/// Starts one in place of the other and waits until it serves.
fn replace(node: &Node, binary: &str) {
    if node.agent().is_some() {
        node.kill_agent().unwrap();
    }
    node.start_agent_named(binary, &[]).unwrap();
    node.wait_ready().unwrap_or_else(|err| panic!("{err:#}"));
}

/// The layouts that are pinned on a node.
fn layouts(node: &Node) -> Vec<u32> {
    let root = node.paths.bpffs.clone();
    node.space.run(move || osmia_maps::layouts(&root).unwrap()).unwrap()
}

#[test]
fn an_upgrade_and_the_way_back_lose_nothing() {
    let (lab, [a, b, c]) = stage();
    let mut talk = Talk::start(&lab, &a, &b, &c);
    for node in &lab.nodes {
        replace(node, NEXT);
        talk.idle("after the upgrade");
        assert_eq!(layouts(node), [LAYOUT + 1], "the old folder is gone");
        // This build's tool reads another layout: it says so.
        let told = node.osmia(&["flow", "list"]).unwrap();
        assert_eq!(told.status.code(), Some(3), "{}", told.text());
        assert!(told.stderr.contains(&format!("holds layout {}", LAYOUT + 1)), "{}", told.stderr);
        let late = pod(&lab, usize::from(node.number) - 1, "late");
        lab.delete_pod(late).unwrap();
    }
    for node in &lab.nodes {
        replace(node, NOW);
        talk.idle("after going back");
        assert_eq!(layouts(node), [LAYOUT], "the newer folder is gone");
    }
    talk.finish(&lab);
    let told = lab.nodes[0].osmia(&["status"]).unwrap();
    assert!(told.status.success() && !told.stdout.contains("upgrade"), "{}", told.text());
}

/// Starts the next agent so that it ends at the step.
fn die_at(node: &Node, step: &str) {
    if node.agent().is_some() {
        node.kill_agent().unwrap();
    }
    node.start_agent_named(NEXT, &[("OSMIA_DIES_AT", step)]).unwrap();
    let status = node.wait_agent_end().unwrap_or_else(|err| panic!("{step}: {err:#}"));
    assert_eq!(status.signal(), Some(9), "{step}: {status}");
}

/// New flows between all that can open one, while no agent runs.
fn opens(lab: &Lab, [a, b, c]: [&Pod; 3], step: &str) {
    let node = &lab.nodes[0].space;
    let at = |pod: &Pod, v6| pod.address(v6).unwrap();
    let ways = [
        ("a to b", &a.space, &b.space, at(b, false)),
        ("b to a", &b.space, &a.space, at(a, true)),
        ("a to c", &a.space, &c.space, at(c, true)),
        ("c to a", &c.space, &a.space, at(a, false)),
        ("the node to a", node, &a.space, at(a, false)),
        ("a to outside", &a.space, &lab.lan.outside, OUTSIDE_V4.into()),
        ("a to outside by IPv6", &a.space, &lab.lan.outside, OUTSIDE_V6.into()),
    ];
    let pace = Duration::from_millis(20);
    let running = ways.map(|(name, from, to, target)| (name, Connects::start(from, to, target, pace).unwrap()));
    thread::sleep(Duration::from_millis(300));
    for (name, connects) in running {
        let report = connects.finish().unwrap();
        assert!(report.tried > 3 && report.failed == 0, "killed at {step}, {name}: {report:?}");
    }
}

#[test]
fn killed_at_any_step_either_version_finishes() {
    let (lab, [a, b, c]) = stage();
    let mut talk = Talk::start(&lab, &a, &b, &c);
    let node = &lab.nodes[0];
    for (number, step) in STEPS.into_iter().enumerate() {
        // Up, and the older one goes back or the newer one finishes, by turns.
        die_at(node, step);
        talk.idle(&format!("killed at {step}"));
        opens(&lab, [&a, &b, &c], step);
        let told = node.osmia(&["status"]).unwrap();
        let read = told.status.code() != Some(3);
        let misread = read && layouts(node).len() > 1 && !told.stdout.contains("upgrade");
        assert!(!misread, "{step}: {}", told.text());
        let by = if number % 2 == 0 { (NOW, LAYOUT) } else { (NEXT, LAYOUT + 1) };
        replace(node, by.0);
        talk.idle(&format!("killed at {step}, then {} started", by.0));
        assert_eq!(layouts(node), [by.1], "{step}");
        replace(node, NOW);
    }
    talk.finish(&lab);
}

#[test]
fn killed_on_the_way_back_either_version_finishes() {
    const KILLS: u32 = 6;
    let (lab, [a, b, c]) = stage();
    let mut talk = Talk::start(&lab, &a, &b, &c);
    let node = &lab.nodes[0];
    for number in 0..KILLS {
        replace(node, NEXT);
        let begin = Instant::now();
        replace(node, NOW);
        let takes = begin.elapsed();
        replace(node, NEXT);
        node.kill_agent().unwrap();
        node.start_agent_named(NOW, &[]).unwrap();
        // The n-th kill comes n steps after the start.
        thread::sleep(takes * (number + 1) / (KILLS + 1));
        node.kill_agent().unwrap();
        let found = layouts(node);
        let when = format!("killed after {number}/{KILLS} of a start, {found:?} pinned");
        talk.idle(&when);
        let by = if number % 2 == 0 { (NEXT, LAYOUT + 1) } else { (NOW, LAYOUT) };
        replace(node, by.0);
        talk.idle(&format!("{when}, then {} started", by.0));
        assert_eq!(layouts(node), [by.1], "{when}");
    }
    talk.finish(&lab);
}

#[test]
fn a_layout_that_is_no_neighbour_is_refused_by_name() {
    let lab = Lab::build(Options::default()).unwrap();
    let node = &lab.nodes[0];
    let stranger = Pins::of_layout(&node.paths.bpffs, LAYOUT + 2);
    node.space.run(|| fs::create_dir_all(stranger.links()).unwrap()).unwrap();
    node.start_agent().unwrap();
    let status = node.wait_agent_end().unwrap();
    let log = fs::read_to_string(&node.paths.log).unwrap();
    assert!(!status.success() && log.contains(&format!("holds layout {}", LAYOUT + 2)), "{log}");
    assert_eq!(layouts(node), [LAYOUT + 2], "left alone, and nothing made beside it");
}
