//! `--link-local`: a pod and the metadata address of a cloud, with the real agent.

use std::{
    net::{Ipv4Addr, UdpSocket},
    time::Duration,
};

use osmia_lab::{Lab, Options, Subnet};

use crate::stage::{counted, dropped, lab, pod};

const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// A node that has the address itself, as node-local services do, asked by its pod; what the service hears of it.
fn asked(flags: &[&str]) -> (Lab, Option<Vec<u8>>) {
    let agent_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let lab = lab(Options { nodes: vec![Subnet::Near], agent_flags, ..Options::default() });
    let space = &lab.nodes[0].space;
    space.ip("addr add 169.254.169.254/32 dev lo").unwrap();
    let service = space.run(|| UdpSocket::bind((METADATA, 80))).unwrap().unwrap();
    service.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let pod = pod(&lab, 0, "a");
    let socket = pod.space.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let mut heard = [0; 64];
    // The agent learns of the address a moment later than the node.
    let heard = (0..10).find_map(|_| {
        socket.send_to(b"who am I?", (METADATA, 80)).unwrap();
        let len = service.recv(&mut heard).ok()?;
        Some(heard[..len].to_vec())
    });
    (lab, heard)
}

#[test]
fn a_denied_metadata_service_is_a_drop_of_its_own() {
    let (lab, heard) = asked(&["--link-local", "deny"]);
    assert_eq!(heard, None);
    assert_eq!(dropped(&lab.nodes[0], "LINK_LOCAL_DENIED"), 10);
}

#[test]
fn by_default_it_is_let_through_and_counted() {
    let (lab, heard) = asked(&[]);
    assert_eq!(heard.as_deref(), Some(&b"who am I?"[..]));
    assert!(counted(&lab.nodes[0], "link_local") > 0);
    assert_eq!(dropped(&lab.nodes[0], "LINK_LOCAL_DENIED"), 0);
}
