//! What someone with containerd sees.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use osmia_lab::{OUTSIDE_V4, OUTSIDE_V6};

use crate::containerd::Containerd;
use crate::host::{Host, RANGE_V6, REST, addresses, wait_for};

/// Links go in a group, some moments after the answer.
const SOON: Duration = Duration::from_secs(3);
const FOREVER: [&str; 2] = ["/bin/sleep", "100000"];

/// Addresses of a running container.
fn of(containerd: &Containerd<'_>, name: &str) -> Vec<IpAddr> {
    let text = containerd.exec(name, "/bin/ip -o address show dev eth0");
    let found: Vec<IpAddr> = addresses(&text).iter().map(|a| a.split('/').next().unwrap().parse().unwrap()).collect();
    assert_eq!(found.len(), 2, "{name}: {text}");
    found
}

fn ping(containerd: &Containerd<'_>, from: &str, to: &[IpAddr]) {
    for to in to {
        let said = containerd.exec(from, &format!("/bin/ping -c 3 -i 0.2 -W 2 {to}"));
        assert!(said.contains(" 0% packet loss"), "{from} to {to}: {said}");
    }
}

#[test]
fn containers_of_ctr_have_a_network_until_their_end() {
    let host = Host::start();
    let containerd = Containerd::start(&host);

    let show = "ip -o address show dev eth0; ip route; ip -6 route";
    let out = containerd.run("once", &["/bin/sh", "-c", show]);
    assert!(out.status.success(), "{}", out.text());
    let found = addresses(&out.stdout);
    let [v4, v6] = &found[..] else { panic!("{}", out.text()) };
    assert!(v4.starts_with("10.244.1.") && v4.ends_with("/32"), "{found:?}");
    assert!(v6.starts_with(RANGE_V6) && v6.ends_with("/128"), "{found:?}");
    assert!(out.stdout.contains("default via 169.254.1.1 dev eth0"), "{}", out.stdout);
    assert!(out.stdout.contains("default via fe80::1 dev eth0"), "{}", out.stdout);
    assert!(host.endpoints().is_empty(), "its end was its DEL: {:?}", host.endpoints());
    host.wait_empty(SOON);
    thread::sleep(REST);

    // Both addresses of the range, in use at once, by containers that end and by one that nobody deletes.
    let one = containerd.run_in_background("one", &FOREVER);
    containerd.detach("two", &FOREVER);
    let (first, second) = (of(&containerd, "one"), of(&containerd, "two"));
    ping(&containerd, "one", &second);
    ping(&containerd, "two", &first);
    // Their node, and the world by masquerade.
    let node = host.node();
    ping(&containerd, "one", &[node.address(false), node.address(true), OUTSIDE_V4.into(), OUTSIDE_V6.into()]);
    assert_eq!(host.links().len(), 2);
    // A container without network does not run.
    let out = containerd.run("three", &["/bin/true"]);
    assert!(!out.status.success() && out.text().contains("10.244.1.0/30"), "{}", out.text());
    assert_eq!(host.endpoints().len(), 2, "nothing is left of it");

    // The agent dies: they talk on, and a container that ends then is forgotten as soon as the agent is back.
    host.node().kill_agent().unwrap();
    ping(&containerd, "one", &second);
    ping(&containerd, "two", &first);
    containerd.kill("one");
    one.wait();
    assert_eq!(host.queued(), 1);
    assert_eq!(host.links().len(), 1);
    host.start_agent();
    assert_eq!(host.queued(), 0);
    assert!(!host.knows(first[0]) && !host.knows(first[1]) && host.knows(second[0]), "{:?}", host.endpoints());
    thread::sleep(REST);
    let again = containerd.run_in_background("again", &FOREVER);
    assert_eq!(of(&containerd, "again")[0], first[0], "the address that came back");
    ping(&containerd, "again", &second);
    ping(&containerd, "two", &of(&containerd, "again"));

    // `ctr run --detach` leaves the DEL to nobody: the agent finds out by itself.
    containerd.kill("two");
    wait_for("the agent collects it", Duration::from_secs(20), || !host.knows(second[0]) && !host.knows(second[1]));
    containerd.ctr(&["tasks", "delete", "two"]);
    containerd.ctr(&["containers", "delete", "two"]);
    thread::sleep(REST);
    containerd.detach("last", &FOREVER);
    assert_eq!(of(&containerd, "last")[0], second[0], "the address that came back");
    containerd.kill("again");
    again.wait();
    // A detached container that ends while no agent runs: found at its start.
    host.node().kill_agent().unwrap();
    containerd.kill("last");
    wait_for("its link goes", SOON, || host.links().is_empty());
    host.start_agent();
    assert!(host.endpoints().is_empty(), "{:?}", host.endpoints());
}
