//! Nodes that lack something: a range, free addresses, a place for pins, pins that can be read.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use osmia_lab::{Lab, OUTSIDE_V4, OUTSIDE_V6, Options, Subnet, UPLINK};
use osmia_maps::pins::Pins;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::stage::{becomes, counted, dropped, pod, story};

fn one_node(ranges: &[&str], flags: &[&str]) -> Lab {
    let agent_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let mut lab = Lab::build(Options { nodes: vec![Subnet::Near], agent_flags, ..Options::default() }).unwrap();
    lab.nodes[0].manifest.pod_cidrs = ranges.iter().map(|range| (*range).to_owned()).collect();
    lab.announce(0).unwrap();
    lab
}

#[test]
fn a_node_without_a_range_says_so_and_recovers() {
    let mut lab = one_node(&[], &[]);
    lab.start_agents().unwrap();
    let error = format!("{:#}", lab.add_pod(0, "early").unwrap_err());
    assert!(error.contains("n1") && error.contains("podCIDR"), "{error}");
    let log = fs::read_to_string(&lab.nodes[0].paths.log).unwrap();
    assert!(log.contains("podCIDR"), "the agent does not say it: {log}");
    lab.nodes[0].manifest.pod_cidrs = vec!["10.244.1.0/24".into()];
    lab.announce(0).unwrap();
    let mut added = None;
    assert!(becomes(|| {
        added = lab.add_pod(0, "late").ok();
        added.is_some()
    }));
    assert_eq!(added.unwrap().v4.unwrap().octets()[..3], [10, 244, 1]);
}

#[test]
fn a_full_range_is_named_and_a_pod_that_goes_makes_room() {
    let lab = one_node(&["10.244.1.0/29"], &["--address-rest", "0"]);
    lab.start_agents().unwrap();
    let mut pods = Vec::new();
    let error = loop {
        match lab.add_pod(0, &format!("p{}", pods.len())) {
            Ok(pod) => pods.push(pod),
            Err(error) => break format!("{error:#}"),
        }
        assert!(pods.len() <= 8, "more pods than addresses");
    };
    assert!(pods.len() >= 4, "only {} pods: {error}", pods.len());
    assert!(error.contains("no free address") && error.contains("10.244.1.0/29"), "{error}");
    let gone = pods.remove(1);
    let freed = gone.v4;
    lab.delete_pod(gone).unwrap();
    let mut added = None;
    assert!(becomes(|| {
        added = lab.add_pod(0, "again").ok();
        added.is_some()
    }));
    assert_eq!(added.unwrap().v4, freed);
}

#[test]
fn without_a_bpf_file_system_the_agent_says_what_to_do() {
    let lab = one_node(&["10.244.1.0/24"], &[]);
    let node = &lab.nodes[0];
    let bpffs = &node.paths.bpffs;
    node.space.run(|| unmount(bpffs, UnmountFlags::empty())).unwrap().unwrap();
    let error = format!("{:#}", lab.start_agents().unwrap_err());
    assert!(error.contains("mount -t bpf bpf"), "{error}");
    assert_eq!(fs::read_dir(bpffs).unwrap().count(), 0, "it wrote where the pins should be");
    drop(node.kill_agent());
    node.space.run(|| mount("bpf", bpffs, "bpf", MountFlags::empty(), None)).unwrap().unwrap();
    lab.start_agents().unwrap_or_else(|err| panic!("{err:#}"));
    pod(&lab, 0, "a");
}

#[test]
fn pins_of_another_layout_stop_the_agent_and_stay() {
    let lab = one_node(&["10.244.1.0/24"], &[]);
    let node = &lab.nodes[0];
    let links = Pins::of_layout(&node.paths.bpffs, 999).links();
    node.space.run(|| fs::create_dir_all(&links)).unwrap().unwrap();
    let error = format!("{:#}", lab.start_agents().unwrap_err());
    assert!(error.contains("999"), "{error}");
    assert!(node.space.run(|| links.exists()).unwrap(), "the other layout's pins are gone");
    let told = node.osmia(&["status"]).unwrap();
    assert!(!told.status.success() && told.text().contains("999"), "{}", told.text());
    drop(node.kill_agent());
    node.space.run(|| fs::remove_dir_all(links.parent().unwrap())).unwrap().unwrap();
    lab.start_agents().unwrap_or_else(|err| panic!("{err:#}"));
    pod(&lab, 0, "a");
}

/// The stack answers for what it has no route to; what the operator has closed is dropped and counted.
#[test]
fn without_a_route_a_pod_is_told() {
    let lab = one_node(&["10.244.1.0/24", "fd00:10:244:1::/64"], &[]);
    lab.start_agents().unwrap_or_else(|err| panic!("{err:#}"));
    let node = &lab.nodes[0];
    let client = pod(&lab, 0, "client");
    let connect = |to: IpAddr| {
        let (target, since) = (SocketAddr::new(to, 80), Instant::now());
        let ended = client.space.run(|| TcpStream::connect_timeout(&target, Duration::from_secs(3))).unwrap();
        (ended.unwrap_err().kind(), since.elapsed())
    };
    let outside = [IpAddr::from(OUTSIDE_V4), OUTSIDE_V6.into()];
    for to in outside {
        assert_eq!(connect(to).0, ErrorKind::ConnectionRefused, "with a route: {}", story(node));
    }
    for family in ["-4", "-6"] {
        let default = ["route", "del", "default", "dev", UPLINK];
        node.space.output(Command::new("ip").arg(family).args(default)).unwrap();
    }
    for to in outside {
        let before = counted(node, "unrouted");
        let (kind, took) = connect(to);
        let told = matches!(kind, ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable);
        // At the second try at the latest: the kernel tells one host once a second (icmp_ratelimit).
        assert!(told && took < Duration::from_millis(2500), "{to}: {kind:?} after {took:?}; {}", story(node));
        assert!(counted(node, "unrouted") > before, "{to}");
    }
    for (to, prefix) in outside.into_iter().zip(["203.0.113.0/24", "2001:db8::/64"]) {
        node.space.ip(&format!("route add blackhole {prefix}\n")).unwrap();
        let before = dropped(node, "NO_ROUTE");
        assert!(becomes(|| {
            assert_ne!(connect(to).0, ErrorKind::ConnectionRefused);
            dropped(node, "NO_ROUTE") > before
        }));
    }
}
