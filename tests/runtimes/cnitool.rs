//! What someone with cnitool sees.

use std::fs::File;
use std::net::IpAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use osmia_lab::Space;
use serde_json::Value;

use crate::callers::{Cnitool, Netns};
use crate::host::{Host, RANGE_V6, REST, addresses, ip};

/// Links go in a group, some moments after the answer.
const SOON: Duration = Duration::from_secs(3);

/// Adds; gives the addresses in the result.
fn add(tool: &Cnitool<'_>, netns: &Netns) -> Vec<IpAddr> {
    let result: Value = serde_json::from_str(&tool.succeed("add", &netns.path)).unwrap();
    assert_eq!(result.get("cniVersion").and_then(Value::as_str), Some("1.1.0"), "{result}");
    let ips = result.get("ips").and_then(Value::as_array).unwrap();
    let text = ips.iter().map(|ip| ip.get("address").and_then(Value::as_str).unwrap());
    text.map(|a| a.split('/').next().unwrap().parse().unwrap()).collect()
}

fn ping(from: &Space, to: IpAddr) {
    from.output(Command::new("/bin/busybox").args(["ping", "-c", "2", "-i", "0.2", "-W", "2"]).arg(to.to_string()))
        .unwrap_or_else(|error| panic!("ping {to}: {error:#}"));
}

#[test]
fn a_namespace_gets_a_network_and_gives_it_back() {
    let host = Host::start();
    let tool = Cnitool::new(&host);
    let (one, two, three) = (tool.netns(), tool.netns(), tool.netns());
    tool.succeed("status", &one.path);
    let (first, second) = (add(&tool, &one), add(&tool, &two));

    let [v4, v6] = first[..] else { panic!("{first:?}") };
    assert!(v4.to_string().starts_with("10.244.1.") && v6.to_string().starts_with(RANGE_V6), "{first:?}");
    assert_eq!(addresses(&ip(&one.space, "-o address show dev eth0")), [format!("{v4}/32"), format!("{v6}/128")]);
    assert!(ip(&one.space, "route").starts_with("default via 169.254.1.1 dev eth0"));
    assert!(ip(&one.space, "-6 route").contains("default via fe80::1 dev eth0"));
    assert!(first.iter().chain(&second).all(|a| host.knows(*a)), "{:?}", host.endpoints());
    assert_eq!(host.links().len(), 2);
    tool.succeed("check", &one.path);
    for (from, to) in [(&one, &second), (&two, &first)] {
        to.iter().for_each(|to| ping(&from.space, *to));
    }

    // The range is used up: said with the range, and nothing is left of the attempt.
    let said = tool.fail("add", &three.path);
    assert!(said.contains("10.244.1.0/30"), "{said}");
    assert_eq!(host.endpoints().len(), 2);

    // A difference is found and told.
    one.space.ip(&format!("address del {v4}/32 dev eth0\n")).unwrap();
    let said = tool.fail("check", &one.path);
    assert!(said.contains(&v4.to_string()), "{said}");

    tool.succeed("del", &one.path);
    assert!(!host.knows(v4) && !host.knows(v6), "{:?}", host.endpoints());
    tool.succeed("del", &one.path);
    thread::sleep(REST);
    assert_eq!(add(&tool, &three)[0], v4, "the address that came back");
    ping(&three.space, second[0]);
    tool.succeed("del", &two.path);
    tool.succeed("del", &three.path);
    host.wait_empty(SOON);
    assert!(ip(&one.space, "-o link").lines().all(|l| l.contains(": lo:")));
}

/// `cnitool gc` sends a DEL for each attachment that it remembers, then a GC that lists none as valid nor says that there is a list (G2,
/// G6).
#[test]
fn gc_without_a_list_removes_nothing_beyond_what_the_caller_deletes() {
    let host = Host::start();
    let tool = Cnitool::new(&host);
    let (one, two) = (tool.netns(), tool.netns());
    let (first, second) = (add(&tool, &one), add(&tool, &two));
    tool.forget(&two);
    let said = tool.fail("gc", &one.path);
    assert!(said.contains("cni.dev/valid-attachments"), "{said}");
    assert!(!host.knows(first[0]) && host.knows(second[0]), "{:?}", host.endpoints());
    thread::sleep(REST);
    assert_eq!(add(&tool, &one)[0], first[0], "the address that came back");
    ping(&one.space, second[0]);
}

#[test]
fn a_dead_agent_costs_no_pod_and_is_told_when_it_stays_away() {
    let host = Host::start();
    let tool = Cnitool::new(&host);
    let (one, two) = (tool.netns(), tool.netns());
    let (first, second) = (add(&tool, &one), add(&tool, &two));

    host.node().kill_agent().unwrap();
    // A restart is no news.
    tool.succeed("status", &one.path);
    ping(&one.space, second[0]);
    ping(&one.space, second[1]);
    let heartbeat = File::options().write(true).open(host.node().paths.run.join("heartbeat")).unwrap();
    heartbeat.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    let said = tool.fail("status", &one.path);
    assert!(said.contains("osmia-agent is away") && said.contains("3600 s"), "{said}");

    // DEL succeeds without the agent, the link goes at once, and the agent does the rest when it is back.
    tool.succeed("del", &one.path);
    assert_eq!(host.queued(), 1);
    assert_eq!(host.links().len(), 1);
    assert!(host.knows(first[0]), "nobody but the agent removes rows");
    host.start_agent();
    assert_eq!(host.queued(), 0);
    assert!(!host.knows(first[0]) && host.knows(second[0]), "{:?}", host.endpoints());
    tool.succeed("status", &one.path);
    tool.succeed("check", &two.path);
    thread::sleep(REST);
    assert_eq!(add(&tool, &one)[0], first[0], "the address that came back");
    ping(&one.space, second[1]);
}
