//! What the programs log of single packets, with the real agent: a line for a denied first packet where it was asked for, else none.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};

use osmia_lab::{Lab, Options, Subnet};

use crate::stage::{becomes, dropped, lab, pod};

/// In the cluster's range, but of no node.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 244, 200, 9);

fn denied(flags: &[&str]) -> Lab {
    let agent_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let lab = lab(Options { nodes: vec![Subnet::Near], agent_flags, ..Options::default() });
    let pod = pod(&lab, 0, "a");
    let socket = pod.space.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    socket.send_to(b"anybody?", (NOBODY, 7)).unwrap();
    assert!(becomes(|| dropped(&lab.nodes[0], "UNOWNED") == 1));
    lab
}

fn lines(lab: &Lab) -> usize {
    fs::read_to_string(&lab.nodes[0].paths.log).unwrap().matches("a first packet is denied").count()
}

#[test]
fn a_denied_packet_has_a_line_where_it_was_asked_for() {
    let lab = denied(&["--program-log", "debug"]);
    assert!(becomes(|| lines(&lab) == 1), "{}", fs::read_to_string(&lab.nodes[0].paths.log).unwrap());
    // A next start reads a ring of its own.
    lab.nodes[0].kill_agent().unwrap();
    lab.start_agents().unwrap_or_else(|err| panic!("{err:#}"));
    let other = pod(&lab, 0, "b");
    let socket = other.space.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    socket.send_to(b"anybody?", (NOBODY, 7)).unwrap();
    assert!(becomes(|| lines(&lab) == 2));
}

#[test]
fn by_default_the_programs_log_nothing() {
    assert_eq!(lines(&denied(&[])), 0);
}
