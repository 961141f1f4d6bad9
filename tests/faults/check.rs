//! CHECK by the real plugin and agent: what somebody took away from a pod's rows and programs is named, and a new start brings it back.

use std::fs;

use osmia_lab::cni_runner::Misbehave;
use osmia_lab::{Lab, Options, Pod, Subnet};
use osmia_maps::layout::{Addr, Endpoint, programs};
use osmia_maps::{Access, Pins, tables};

use crate::stage::{lab, pod};

fn check(lab: &Lab, pod: &Pod) -> Result<(), String> {
    lab.nodes[0].runtime.check(&pod.attachment, Misbehave::default()).map_err(|error| format!("{error:#}"))
}

/// Takes something away, looks what CHECK says, and lets a new agent mend it.
fn is_named(lab: &Lab, pod: &Pod, what: &[&str], take: impl FnOnce(&Pins, u32, u32) + Send) {
    check(lab, pod).unwrap();
    let node = &lab.nodes[0];
    let pins = Pins::new(&node.paths.bpffs);
    let address = Addr::v4(pod.v4.unwrap().octets());
    node.space
        .run(|| {
            let slot = tables::ENDPOINT_ADDR.open(&pins, Access::ReadOnly).unwrap().get(&address).unwrap().unwrap();
            let row = tables::ENDPOINTS.open(&pins, Access::ReadOnly).unwrap().get(&slot).unwrap().unwrap();
            take(&pins, slot, row.ifindex);
        })
        .unwrap();
    let said = check(lab, pod).unwrap_err();
    for word in what {
        assert!(said.contains(word), "{what:?}: {said}");
    }
    node.kill_agent().unwrap();
    lab.start_agents().unwrap_or_else(|err| panic!("{err:#}"));
    check(lab, pod).unwrap();
}

fn each_is_named(flags: &[&str]) {
    let agent_flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let clsact = !flags.is_empty();
    let lab = lab(Options { nodes: vec![Subnet::Near], agent_flags, ..Options::default() });
    let pod = pod(&lab, 0, "a");
    is_named(&lab, &pod, &["map endpoints has no row"], |pins, slot, _| {
        tables::ENDPOINTS.open(pins, Access::ReadWrite).unwrap().put(&slot, &Endpoint::default()).unwrap();
    });
    let (v4, v6) = (pod.v4.unwrap(), pod.v6.unwrap());
    is_named(&lab, &pod, &["endpoint_addr", &v4.to_string(), &v6.to_string()], |pins, _, _| {
        let rows = tables::ENDPOINT_ADDR.open(pins, Access::ReadWrite).unwrap();
        rows.remove_all(&[Addr::v4(v4.octets()), Addr::v6(v6.octets())]).unwrap();
    });
    is_named(&lab, &pod, &["endpoint_if"], |pins, _, ifindex| {
        tables::ENDPOINT_IF.open(pins, Access::ReadWrite).unwrap().remove(&ifindex).unwrap();
    });
    let device = pod.result["interfaces"][0]["name"].as_str().unwrap().to_owned();
    let space = lab.nodes[0].space.try_clone().unwrap();
    is_named(&lab, &pod, &["program osm_from_pod is not on its host link"], |pins, _, ifindex| {
        if clsact {
            space.output(std::process::Command::new("tc").args(["filter", "del", "dev", &device, "ingress"])).unwrap();
        } else {
            fs::remove_file(pins.link(programs::FROM_POD.name, ifindex)).unwrap();
        }
    });
}

#[test]
fn what_is_taken_from_a_pod_is_named() {
    each_is_named(&[]);
}

#[test]
fn what_is_taken_from_a_pod_is_named_with_filters() {
    each_is_named(&["--clsact"]);
}
