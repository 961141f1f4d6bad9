//! `--link-local`: a pod and the metadata address of a cloud, with the real agent.

use std::net::{Ipv4Addr, UdpSocket};

use osmia_lab::{Lab, Options, Subnet};

use crate::stage::{becomes, dropped, lab, pod};

const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

fn asked(flags: &[&str]) -> Lab {
    let agent_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let lab = lab(Options { nodes: vec![Subnet::Near], agent_flags, ..Options::default() });
    let pod = pod(&lab, 0, "a");
    let socket = pod.space.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    socket.send_to(b"who am I?", (METADATA, 80)).unwrap();
    lab
}

fn counted(lab: &Lab) -> u64 {
    let told = lab.nodes[0].osmia(&["map", "dump", "stats", "--json"]).unwrap();
    let text = told.text();
    let at = text.find("link_local").unwrap_or_else(|| panic!("{text}"));
    let digits: String =
        text[at..].chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn a_denied_metadata_service_is_a_drop_of_its_own() {
    let lab = asked(&["--link-local", "deny"]);
    assert!(becomes(|| dropped(&lab.nodes[0], "LINK_LOCAL_DENIED") == 1));
}

#[test]
fn by_default_it_is_let_through_and_counted() {
    let lab = asked(&[]);
    assert!(becomes(|| counted(&lab) > 0));
    assert_eq!(dropped(&lab.nodes[0], "LINK_LOCAL_DENIED"), 0);
}
