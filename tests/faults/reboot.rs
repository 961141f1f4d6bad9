//! A node that comes back with its journal, and with nothing else.

use std::time::Duration;

use osmia_lab::{Lab, Options, Pod, Probe, Proto, Subnet};

use crate::stage::pod;

const RANGE: &str = "10.244.1.0/29";

#[test]
fn after_a_reboot_all_addresses_are_free_and_pods_talk() {
    let options = Options { nodes: vec![Subnet::Near, Subnet::Near], ..Options::default() };
    let mut lab = Lab::build(options).unwrap();
    lab.nodes[0].manifest.pod_cidrs = vec![RANGE.into()];
    lab.announce(0).unwrap();
    lab.start_agents().unwrap_or_else(|err| panic!("{err:#}"));
    let other = pod(&lab, 1, "other");
    let before = fill(&lab, "before");
    assert!(before.len() >= 4, "{}", before.len());
    talk(&before[0], &other);
    let lost = before.len();

    lab.nodes[0].reboot().unwrap();
    drop(before);
    lab.start_agents().unwrap_or_else(|err| panic!("{err:#}"));
    let after = fill(&lab, "after");
    assert_eq!(after.len(), lost, "addresses of pods that a reboot ended are still taken");
    for pod in &after {
        talk(pod, &other);
    }
    let listed = lab.nodes[0].osmia(&["endpoint", "list"]).unwrap().stdout;
    assert_eq!(listed.matches("present,ready").count(), after.len(), "{listed}");
}

/// Pods until the range is full.
fn fill(lab: &Lab, name: &str) -> Vec<Pod> {
    let mut pods = Vec::new();
    while pods.len() < 9 {
        match lab.add_pod(0, &format!("{name}-{}", pods.len())) {
            Ok(pod) => pods.push(pod),
            Err(err) if format!("{err:#}").contains("no free address") => break,
            Err(err) => panic!("{err:#}"),
        }
    }
    pods
}

fn talk(a: &Pod, b: &Pod) {
    for (from, to) in [(a, b), (b, a)] {
        let probe = Probe {
            proto: Proto::Tcp,
            from: &from.space,
            to: &to.space,
            destination: to.address(false).unwrap(),
            patience: Duration::from_secs(3),
        };
        let arrived = probe.run().unwrap().complete(from.address(false).unwrap());
        arrived.unwrap_or_else(|why| panic!("{} to {}: {why}", from.name, to.name));
    }
}
