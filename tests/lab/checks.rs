//! The lab itself, on plain routes, without Osmia: probes that can succeed and can fail, agents that end, nothing left behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use osmia_lab::load::{Connects, Datagrams, Stream};
use osmia_lab::packet::{Injector, Ip};
use osmia_lab::{Capture, Lab, OUTSIDE_V4, OUTSIDE_V6, Options, Probe, Proto, Subnet, Underlay};

fn outside(v6: bool) -> IpAddr {
    if v6 { OUTSIDE_V6.into() } else { OUTSIDE_V4.into() }
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn lab(options: Options) -> Lab {
    Lab::build(options).unwrap()
}

fn probe<'a>(lab: &'a Lab, proto: Proto, destination: IpAddr) -> Probe<'a> {
    let patience = Duration::from_secs(3);
    Probe { proto, from: &lab.nodes[0].space, to: &lab.lan.outside, destination, patience }
}

#[test]
fn probes_arrive_over_plain_routes() {
    for underlay in [Underlay::Passing, Underlay::Segmenting] {
        let lab = lab(Options { nodes: vec![Subnet::Near], underlay, ..Options::default() });
        for proto in Proto::ALL {
            for v6 in [false, true] {
                let arrival = probe(&lab, proto, outside(v6)).run().unwrap();
                let peer = lab.nodes[0].address(v6);
                arrival.complete(peer).unwrap_or_else(|err| panic!("{underlay:?} {proto:?} v6={v6}: {err}"));
                assert!(arrival.complete(outside(v6)).is_err(), "another peer was accepted: {arrival:?}");
            }
        }
    }
}

#[test]
fn probes_see_that_nothing_arrives() {
    let lab = lab(Options { nodes: vec![Subnet::Near], ..Options::default() });
    lab.lan.router.ip("route add blackhole 203.0.113.9/32\nroute add blackhole 2001:db8::9/128\n").unwrap();
    for proto in Proto::ALL {
        for v6 in [false, true] {
            let probe = Probe { patience: Duration::from_millis(300), ..probe(&lab, proto, outside(v6)) };
            let arrival = probe.run().unwrap();
            assert!(arrival.nothing_from(lab.nodes[0].address(v6)), "{proto:?} v6={v6}: {arrival:?}");
            assert!(arrival.complete(lab.nodes[0].address(v6)).is_err());
        }
    }
}

#[test]
fn nodes_of_both_subnets_reach_each_other_and_the_capture_sees_it() {
    let lab = lab(Options { nodes: vec![Subnet::Near, Subnet::Far], ..Options::default() });
    let capture = Capture::start(&lab.lan.bridges).unwrap();
    let [near, far] = [&lab.nodes[0], &lab.nodes[1]];
    let probe = Probe {
        proto: Proto::Udp,
        from: &near.space,
        to: &far.space,
        destination: far.v4().into(),
        patience: Duration::from_secs(3),
    };
    probe.run().unwrap().complete(near.v4().into()).unwrap();
    let seen = capture.finish().unwrap();
    let there = (near.v4().into(), far.v4().into());
    assert!(seen.keys().any(|s| s.outer == there && s.inner.is_none()), "{seen:?}");
    assert!(seen.keys().all(|s| s.inner.is_none()), "{seen:?}");
}

#[test]
fn a_built_packet_is_taken_by_the_kernel_it_is_sent_to() {
    let lab = lab(Options { nodes: vec![Subnet::Near], ..Options::default() });
    for v6 in [false, true] {
        let socket = lab.lan.outside.run(|| UdpSocket::bind((outside(v6), 0))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        // Of a host that is not there: an injected packet may come from anyone.
        let stranger: IpAddr = if v6 { "fd30:0:0:1::77".parse().unwrap() } else { "172.30.1.77".parse().unwrap() };
        let packet = Ip::new(stranger, outside(v6)).udp(4000, socket.local_addr().unwrap().port(), b"built");
        Injector::inside(&lab.nodes[0].space).unwrap().send(&packet, outside(v6)).unwrap();
        let mut buffer = [0; 16];
        let (length, peer) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], peer.ip(), peer.port()), (&b"built"[..], stranger, 4000));
    }
}

#[test]
fn a_rebooted_node_has_neither_links_nor_pins_and_another_boot_id() {
    let lab = lab(Options { nodes: vec![Subnet::Near], ..Options::default() });
    let node = &lab.nodes[0];
    node.space.ip("link add osmia0 type veth peer name osmia1\n").unwrap();
    let pinned = node.paths.bpffs.join("folder");
    node.space.run(|| fs::create_dir(&pinned)).unwrap().unwrap();
    let (_pod, attachment) = lab.sandbox(0, "a").unwrap();
    let before = fs::read_to_string(&node.paths.boot_id).unwrap();
    node.reboot().unwrap();
    let links = node.space.output(Command::new("ip").args(["-brief", "link"])).unwrap();
    assert!(links.contains("eth0") && !links.contains("osmia"), "{links}");
    assert!(!node.space.run(|| pinned.exists()).unwrap(), "a pin is left");
    assert!(!attachment.netns.unwrap().exists());
    assert_ne!(fs::read_to_string(&node.paths.boot_id).unwrap(), before);
}

#[test]
fn the_load_counts_what_a_broken_wire_loses() {
    let lab = lab(Options { nodes: vec![Subnet::Near], ..Options::default() });
    let (from, to) = (&lab.nodes[0].space, &lab.lan.outside);
    let datagrams = Datagrams::start(from, to, OUTSIDE_V4.into(), 1000).unwrap();
    let connects = Connects::start(from, to, OUTSIDE_V6.into(), Duration::from_millis(5)).unwrap();
    let stream = Stream::start(from, to, OUTSIDE_V4.into(), 4_000_000).unwrap();
    thread::sleep(Duration::from_millis(500));
    let before = stream.received();
    assert!(before > 1_000_000, "{before}");
    lab.lan.router.ip("link set outside down\n").unwrap();
    thread::sleep(Duration::from_millis(200));
    lab.lan.router.ip("link set outside up\naddress add 2001:db8::fe/64 dev outside nodad\n").unwrap();
    thread::sleep(Duration::from_millis(1500));
    let report = datagrams.finish().unwrap();
    assert!(report.sent > 1000 && report.missing > 50 && report.missing < report.sent, "{report:?}");
    let connects = connects.finish().unwrap();
    assert!(connects.failed > 0 && connects.served > 50, "{connects:?}");
    stream.finish().unwrap();
}

#[test]
fn an_agent_that_ends_at_once_is_an_error_with_its_last_words() {
    let lab =
        lab(Options { nodes: vec![Subnet::Near], agent_flags: vec!["--no-such-flag".into()], ..Options::default() });
    let error = format!("{:#}", lab.start_agents().unwrap_err());
    assert!(error.contains("the agent of n1 ended"), "{error}");
}

#[test]
fn labs_live_side_by_side_and_leave_nothing() {
    let leftover = Path::new("/tmp/osm-lab/leftover-of-a-killed-run");
    fs::create_dir_all(leftover).unwrap();
    fs::write(leftover.join("lock"), "").unwrap();
    fs::set_permissions(leftover, fs::Permissions::from_mode(0o755)).unwrap();
    let labs = [lab(Options::default()), lab(Options::default())];
    assert!(!leftover.exists(), "what a killed run left is still there");
    let folders: Vec<_> = labs.iter().map(|l| l.folder().to_owned()).collect();
    assert!(folders.iter().all(|f| f.exists()));
    let links = |lab: &Lab| lab.nodes[0].space.output(std::process::Command::new("ip").args(["-o", "link"])).unwrap();
    assert!(links(&labs[0]).contains("eth0") && links(&labs[1]).contains("eth0"));
    drop(labs);
    assert!(folders.iter().all(|f| !f.exists()), "a folder is left");
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains("osm-lab"), "{mounts}");
}

/// The demo with an agent that serves for ever, and the agent's process id.
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn demo_with_an_idle_agent() -> (Child, PathBuf, Vec<u32>) {
    let folder = PathBuf::from(format!("/tmp/osm-idle-{:x}", osmia_lab::random()));
    fs::create_dir(&folder).unwrap();
    let agent = folder.join("osmia-agent");
    fs::write(&agent, format!("#!/bin/sh\necho $$ >> {}/pids\nexec sleep 60\n", folder.display())).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
    demo.args(["--encap", "native"]).env("OSMIA_BIN_DIR", &folder).stdin(Stdio::null());
    let child = demo.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut pids = Vec::new();
    while pids.len() < 3 {
        thread::sleep(Duration::from_millis(20));
        let Ok(file) = fs::File::open(folder.join("pids")) else { continue };
        pids = BufReader::new(file).lines().map(|l| l.unwrap().parse().unwrap()).collect();
    }
    (child, folder, pids)
}

/// Whether the idle agent lives; one that is dead and not buried has no command line.
fn lives(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.starts_with(b"sleep") || line.starts_with(b"/bin/sh"))
}

/// What agents turn on while programs go on or off a device, and the number by which they know it for theirs.
const SWITCH: &str = "/sys/kernel/rcu_expedited";
const AGENTS: &str = "7304045";

#[test]
fn a_demo_that_is_told_to_end_or_killed_takes_everything_along() {
    for signal in ["-INT", "-KILL"] {
        let (mut demo, folder, agents) = demo_with_an_idle_agent();
        let run = run_folder_of(demo.id());
        assert!(agents.iter().all(|pid| lives(*pid)) && run.exists());
        // As an agent leaves it that is killed at the wrong moment.
        fs::write(SWITCH, AGENTS).unwrap();
        let kill = Command::new("kill").args([signal, &demo.id().to_string()]).status().unwrap();
        assert!(kill.success());
        demo.wait().unwrap();
        thread::sleep(Duration::from_millis(100));
        assert!(!agents.iter().any(|pid| lives(*pid)), "{signal}: an agent lives on");
        if signal == "-KILL" {
            drop(lab(Options::default()));
        }
        assert!(!run.exists(), "{signal}: {} is left", run.display());
        let off = (0..50).any(|_| {
            thread::sleep(Duration::from_millis(100));
            fs::read_to_string(SWITCH).unwrap().trim() != AGENTS
        });
        assert!(off, "{signal}: {SWITCH} is left on");
        fs::remove_dir_all(folder).unwrap();
    }
}

/// The run folder whose lock the process holds.
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn run_folder_of(pid: u32) -> PathBuf {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let locks = open.filter_map(|fd| fs::read_link(fd.path()).ok()).filter(|path| path.ends_with("lock"));
    locks.filter_map(|path| Some(path.parent()?.to_owned())).find(|path| path.starts_with("/tmp/osm-lab")).unwrap()
}
