//! An agent that runs: alone on its state, ended by SIGTERM, asked by probes and by Prometheus.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::cni_runner::Misbehave;
use osmia_lab::load::Datagrams;

use crate::held;
use crate::stage::{Garbage, Stage, reaches, v4_of};
use crate::strace::{self, Step};

/// Longest that an agent may take to end with a call under way (`STOP` of the agent), and some more.
const ENDS: Duration = Duration::from_secs(6);

/// Names below the pins, and what is in the state folder.
fn files(stage: &Stage) -> BTreeSet<String> {
    let paths = &stage.node().paths;
    stage
        .node()
        .space
        .run(|| {
            let mut found = BTreeSet::new();
            let mut folders = vec![paths.bpffs.clone(), paths.state.clone()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    let path = entry.path();
                    if path.is_dir() {
                        folders.push(path);
                    } else if path.starts_with(&paths.bpffs) {
                        found.insert(path.display().to_string());
                    } else {
                        found.insert(format!("{}: {:?}", path.display(), fs::read(&path).unwrap()));
                    }
                }
            }
            found
        })
        .unwrap()
}

#[test]
fn a_second_agent_on_the_same_state_is_refused_and_touches_nothing() {
    let stage = Stage::new(1, Garbage::Never);
    let (a, b) = (stage.pod(0, "a"), stage.pod(0, "b"));
    // The status file of a new pod is read by the agent a moment later.
    let mut settled = files(&stage);
    loop {
        thread::sleep(Duration::from_millis(300));
        let now = files(&stage);
        if now == settled {
            break;
        }
        settled = now;
    }
    let traffic = Datagrams::start(&a.space, &b.space, b.address(false).unwrap(), 500).unwrap();
    let before = (settled, held::now(stage.node()));
    let pid = stage.node().agent().as_ref().unwrap().pid();

    let agent = stage.node().agent_command().unwrap();
    // One that is not refused would go on for ever.
    let mut second = Command::new("timeout");
    second.args(["-s", "KILL", "20"]).arg(agent.get_program()).args(agent.get_args());
    let second = stage.node().space.feed(&mut second, "").unwrap();
    assert!(!second.status.success(), "{}", second.text());
    let state = stage.node().paths.state.display();
    let message = format!("another osmia-agent uses --state {state}: process {pid} (");
    assert!(second.stderr.contains(&message), "{message}: {}", second.text());

    let after = (files(&stage), held::now(stage.node()));
    let changed: Vec<_> = after.0.symmetric_difference(&before.0).collect();
    assert!(changed.is_empty() && after.1 == before.1, "{changed:#?} {:#?}", after.1);
    let c = stage.pod(0, "c");
    reaches(&c.space, &a, c.address(true).unwrap()).unwrap();
    let report = traffic.finish().unwrap();
    assert_eq!((report.missing, report.refused), (0, 0), "{report:?}");
}

#[test]
fn sigterm_finishes_the_call_under_way_and_leaves_traffic_alone() {
    let stage = Stage::new(2, Garbage::Never);
    let (a, remote) = (stage.pod(0, "a"), stage.pod(1, "remote"));
    let watched = stage.sandbox("watched");
    let (slow, late) = (stage.sandbox("slow"), stage.sandbox("late"));
    let trace = stage.lab.folder().join("add.trace");
    let runtime = stage.runtime_through(strace::watching(&trace));
    runtime.add(&watched.attachment, Misbehave::default()).unwrap();
    // The last message of an ADD is the commit: one that waits before it has its reservation and its link.
    let sent = strace::steps(&trace).into_values().flatten().filter(|step| step.call == "sendto");
    let commit: Step = sent.max_by_key(|step| step.nth).unwrap();

    let traffic = Datagrams::start(&a.space, &remote.space, remote.address(false).unwrap(), 500).unwrap();
    thread::scope(|scope| {
        let runtime = stage.runtime_through(strace::delaying(&commit, Duration::from_millis(1500)));
        let (slow_attachment, late_attachment) = (&slow.attachment, &late.attachment);
        let under_way = scope.spawn(move || runtime.add(slow_attachment, Misbehave::default()));
        let adding = || held::now(stage.node()).iter().any(|line| line.contains("adding"));
        let since = Instant::now();
        while !adding() {
            assert!(since.elapsed() < Duration::from_secs(5), "the slow ADD has not come to its reservation");
            thread::sleep(Duration::from_millis(5));
        }
        let since = Instant::now();
        // Fails on any other end than exit code 0.
        stage.node().stop_agent().unwrap_or_else(|err| panic!("{err:#}"));
        assert!(since.elapsed() < ENDS, "{:?}", since.elapsed());
        let slow_result = under_way.join().unwrap().unwrap_or_else(|err| panic!("the ADD under way: {err:#}"));
        // One that comes while no agent is there waits for the next.
        let waits = scope.spawn(|| stage.node().runtime.add(late_attachment, Misbehave::default()).unwrap());
        thread::sleep(Duration::from_millis(100));
        stage.start_agent();
        let late_result = waits.join().unwrap();
        for (sandbox, result) in [(&slow, slow_result), (&late, late_result)] {
            reaches(&sandbox.space, &remote, v4_of(&result)).unwrap_or_else(|why| panic!("{}: {why}", sandbox.name));
        }
    });
    let report = traffic.finish().unwrap();
    assert!(report.sent > 500, "{report:?}");
    assert_eq!((report.missing, report.refused), (0, 0), "{report:?}");
}

/// Somebody holds the queue, so that the start cannot end.
#[test]
fn probes_tell_a_start_that_is_not_over() {
    let stage = Stage::new(1, Garbage::Never);
    let node = stage.node();
    let socket_listens = || UnixStream::connect(node.paths.socket()).is_ok();
    assert_eq!(held::get(node, "/readyz"), Some((200, "ready\n".to_owned())));
    assert!(socket_listens());
    node.stop_agent().unwrap();

    let lock = File::open(node.paths.state.join("queue/lock")).unwrap();
    lock.lock().unwrap();
    node.start_agent().unwrap();
    let since = Instant::now();
    let mut waits = String::new();
    while waits != "waiting for: queue and socket\n" {
        assert!(since.elapsed() < Duration::from_secs(9), "{waits:?}\n{}", stage.story());
        if let Some((status, body)) = held::get(node, "/readyz") {
            assert_eq!(status, 503, "{body}");
            assert!(body.starts_with("waiting for: "), "{body}");
            waits = body;
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(held::get(node, "/healthz"), Some((200, "ok\n".to_owned())));
    assert!(!socket_listens(), "the socket is open before the queue is drained");
    drop(lock);
    node.wait_ready().unwrap();
    let since = Instant::now();
    while held::get(node, "/readyz") != Some((200, "ready\n".to_owned())) {
        assert!(since.elapsed() < Duration::from_secs(2), "not ready, though the socket is open");
    }
}

#[test]
fn prometheus_reads_the_metrics_and_a_dropped_packet_is_counted() {
    let stage = Stage::new(1, Garbage::Never);
    let pod = stage.pod(0, "a");
    let count = |series: &str| held::metrics(stage.node()).get(series).copied().unwrap_or(0.0);
    let dropped = "osmia_dropped_packets_total{reason=\"NO_ENDPOINT\"}";
    let bytes = "osmia_dropped_bytes_total{reason=\"NO_ENDPOINT\"}";
    let before = (count(dropped), count(bytes));
    // An address of this node's range that no pod has.
    pod.space.run(|| UdpSocket::bind("0.0.0.0:0").unwrap().send_to(&[0; 100], "10.244.1.200:9").unwrap()).unwrap();
    let after = (count(dropped), count(bytes));
    assert_eq!((after.0 - before.0, after.1 - before.1 >= 128.0), (1.0, true), "{before:?} {after:?}");
    assert!(count("osmia_cni_call_duration_seconds_count{verb=\"commit\",result=\"done\"}") >= 1.0);
    assert_eq!(count("osmia_attachments{state=\"added\"}"), 1.0);

    let (_, text) = held::get(stage.node(), "/metrics").unwrap();
    exposition(&text);
}

/// The text is OpenMetrics 1.0: each family is declared once and before its samples, samples carry a suffix of their type, labels are
/// quoted, values are numbers, no series comes twice, and the end is marked.
fn exposition(text: &str) {
    let body = text.strip_suffix("# EOF\n").expect("the text ends with # EOF");
    let (mut family, mut kind) = ("", "");
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let [word, name, text] = rest.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert!(["HELP", "TYPE", "UNIT"].contains(&word), "{line}");
            if name != family {
                assert!(families.insert(name), "declared twice: {line}");
                (family, kind) = (name, "");
            }
            if word == "TYPE" {
                assert!(["counter", "gauge", "histogram", "info"].contains(&text), "{line}");
                kind = text;
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(series.insert(name), "twice: {line}");
        let (bare, labels) = name.split_once('{').map_or((name, None), |(bare, labels)| (bare, Some(labels)));
        let suffix = bare.strip_prefix(family).unwrap_or_else(|| panic!("{line} behind {family}"));
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_sum", "_count", "_bucket"],
            "info" => &["_info"],
            _ => panic!("{line}: no type"),
        };
        assert!(suffixes.contains(&suffix), "{line} of a {kind}");
        if let Some(labels) = labels {
            let labels = labels.strip_suffix("\"}").unwrap_or_else(|| panic!("{line}"));
            for label in labels.split("\",") {
                let (key, value) = label.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
                assert!(key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') && !value.contains('"'), "{line}");
            }
        }
    }
    assert!(series.len() > 20, "{text}");
}
