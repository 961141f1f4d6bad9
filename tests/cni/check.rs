//! CHECK: right after ADD it is silent; each difference is found and named; what a later plugin may change is tolerated.

use osmia_cni::protocol::Answer;
use serde_json::{Value, json};

use crate::fake_agent::{Act, FakeAgent, GATEWAY_MAC, name};
use crate::node::{Node, Pod, Said};

fn check(pod: &Pod<'_>, version: &str, result: &Value) -> Said {
    pod.call("CHECK").config(pod.node.config(version)).with("prevResult", result.clone()).run()
}

/// K4: CRI-O sends CHECK right after ADD, with each version that has it.
#[test]
fn is_silent_right_after_add() {
    let node = Node::new();
    let agent = node.agent();
    for (id, version) in [("c1", "0.4.0"), ("c2", "1.0.0"), ("c3", "1.1.0")] {
        let pod = node.pod(id);
        let result = pod.add(version);
        check(&pod, version, &result).silent();
        check(&pod, version, &result).silent();
    }
    for (id, v4, v6) in [("c4", true, false), ("c5", false, true)] {
        agent.families(v4, v6);
        let pod = node.pod(id);
        let result = pod.add("1.1.0");
        check(&pod, "1.1.0", &result).silent();
    }
}

/// K2: each thing that was created, changed behind our back. The text names it.
#[test]
fn finds_each_difference() {
    let node = Node::new();
    let _agent = node.agent();
    let host = true;
    for (i, (at_host, change, says)) in [
        (!host, "address del 10.244.1.{n}/32 dev eth0", "10.244.1."),
        (!host, "address del fd00:244:0:1::{n}/128 dev eth0", "fd00:244:0:1::"),
        (!host, "route del default via 169.254.1.1", "0.0.0.0/0 via 169.254.1.1"),
        (!host, "route del ::/0 via fe80::1", "::/0 via fe80::1"),
        (!host, "route del 169.254.1.1/32 dev eth0", "route to the gateway"),
        (!host, "neighbour del 169.254.1.1 dev eth0", "neighbour 169.254.1.1"),
        (!host, "neighbour replace fe80::1 dev eth0 lladdr 02:00:00:00:00:01 nud permanent", "neighbour fe80::1"),
        (!host, "link set eth0 mtu 1300", "MTU 1300"),
        (!host, "link set eth0 address 02:00:00:00:00:77", "02:00:00:00:00:77"),
        (!host, "link set eth0 down", "eth0 is down"),
        (!host, "link del eth0", "is gone"),
        (host, "link set {h} down", "is down"),
        (host, "link set {h} mtu 1200", "MTU 1200"),
        (host, "link set {h} address 02:00:00:00:00:78", GATEWAY_MAC),
    ]
    .into_iter()
    .enumerate()
    {
        let pod = node.pod(&format!("c{i}"));
        let result = pod.add("1.1.0");
        let number = result["ips"][0]["address"]
            .as_str()
            .unwrap()
            .trim_start_matches("10.244.1.")
            .trim_end_matches("/32")
            .to_owned();
        let hex = format!("{:x}", number.parse::<u8>().unwrap());
        let number = if change.contains("fd00") { hex } else { number };
        let space = if at_host { &node.space } else { &pod.space };
        space.ip(&change.replace("{n}", &number).replace("{h}", &pod.host_link())).unwrap();
        let text = check(&pod, "1.1.0", &result).error(102);
        assert!(text.contains(says), "{change}: {text}");
        assert!(text.contains("delete the pod"), "{text}");
    }
}

/// K2: all differences are in one answer.
#[test]
fn names_all_differences_at_once() {
    let node = Node::new();
    let _agent = node.agent();
    let pod = node.pod("c1");
    let result = pod.add("1.1.0");
    pod.space.ip("link set eth0 mtu 1300\naddress flush dev eth0 scope global").unwrap();
    let text = check(&pod, "1.1.0", &result).error(102);
    for says in ["MTU 1300", "10.244.1.1/32", "fd00:244:0:1::1/128", "0.0.0.0/0"] {
        assert!(text.contains(says), "{says} is not in: {text}");
    }
}

/// Another interface of the same name, or another pod's host link, is not what was made.
#[test]
fn finds_an_interface_that_was_swapped() {
    let node = Node::new();
    let _agent = node.agent();
    let (one, two) = (node.pod("c1"), node.pod("c2"));
    let result = one.add("1.0.0");
    two.add("1.0.0");
    one.space.ip("link set eth0 name gone0").unwrap();
    let text = check(&one, "1.0.0", &result).error(102);
    assert!(text.contains("eth0 is gone"), "{text}");
    node.space.ip(&format!("link del {}", one.host_link())).unwrap();
    one.space.ip("link add eth0 type veth peer name other").unwrap();
    let text = check(&one, "1.0.0", &result).error(102);
    assert!(text.contains(&one.host_link()), "{text}");
}

/// K3: prevResult is the final result of the chain. `tuning` changes MAC and MTU, `sbr` moves routes to a table of its own, others
/// add addresses and routes.
#[test]
fn tolerates_what_later_plugins_do() {
    let node = Node::new();
    let _agent = node.agent();
    let pod = node.pod("c1");
    let mut result = pod.add("1.1.0");
    pod.space.ip("link set eth0 address 02:00:00:00:00:77\nlink set eth0 mtu 1300").unwrap();
    result["interfaces"][1]["mac"] = json!("02:00:00:00:00:77");
    result["interfaces"][1]["mtu"] = json!(1300);
    result["interfaces"].as_array_mut().unwrap().push(json!({"name": "ifb0", "mac": "02:00:00:00:00:88"}));
    check(&pod, "1.1.0", &result).silent();

    pod.space.ip("route add 10.9.0.0/16 via 169.254.1.1 dev eth0\naddress add 10.8.0.1/32 dev eth0").unwrap();
    check(&pod, "1.1.0", &result).silent();
    result["routes"].as_array_mut().unwrap().push(json!({"dst": "10.9.0.0/16", "gw": "169.254.1.1"}));
    result["ips"].as_array_mut().unwrap().push(json!({"address": "10.8.0.1/32"}));
    check(&pod, "1.1.0", &result).silent();

    pod.space.ip("route del default via 169.254.1.1\nroute add default via 169.254.1.1 dev eth0 table 100").unwrap();
    check(&pod, "1.1.0", &result).silent();
}

/// Before 1.1.0 no result lists an MTU: a lower one is a later plugin's, a higher one loses packets.
#[test]
fn an_unlisted_mtu_may_be_lowered_only() {
    let node = Node::new();
    let _agent = node.agent();
    let pod = node.pod("c1");
    let result = pod.add("1.0.0");
    pod.space.ip("link set eth0 mtu 1300").unwrap();
    check(&pod, "1.0.0", &result).silent();
    pod.space.ip("link set eth0 mtu 1500").unwrap();
    check(&pod, "1.0.0", &result).error(102);
}

/// K1, V4, V6, C18, take-away 7.
#[test]
fn needs_a_usable_prev_result() {
    let node = Node::new();
    let agent = node.agent();
    let pod = node.pod("c1");
    let result = pod.add("1.0.0");
    pod.call("CHECK").run().error(7);
    check(&pod, "1.0.0", &Value::Null).error(7);
    check(&pod, "1.0.0", &json!("x")).error(7);
    let mut outside = result.clone();
    outside["ips"][0]["interface"] = json!(2);
    assert!(check(&pod, "1.0.0", &outside).error(7).contains("ips[].interface 2"));
    for version in ["0.3.0", "0.3.1"] {
        check(&pod, version, &result).error(1);
    }
    assert_eq!(agent.asked(), ["reserve", "commit"]);
    // A cached result of another version than the configuration's.
    let old = pod.call("CHECK").config(node.config("1.1.0")).with("prevResult", result.clone());
    old.run().silent();
    let mut foreign = result;
    foreign["interfaces"][1]["sandbox"] = json!("/run/netns/other");
    check(&pod, "1.0.0", &foreign).error(102);
}

/// K2, K6, section 4: what only the agent sees, and an agent that is away.
#[test]
fn asks_the_agent() {
    let node = Node::new();
    let pod = node.pod("c1");
    let result = {
        let _agent = node.agent();
        pod.add("1.0.0")
    };
    let call = pod.call("CHECK").with("prevResult", result).with("timeout", json!(1));
    {
        let _agent = FakeAgent::start(&node, |_, _| Act::refuse(102, "tcx ingress of the host link is not attached"));
        assert!(call.run().error(102).contains("tcx ingress"));
    }
    {
        let _agent = node.agent();
        assert!(call.run().error(102).contains("no record"));
    }
    for act in [Act::Hang, Act::Close, Act::Say(Answer::Done)] {
        let _agent = FakeAgent::start(&node, move |r, _| (name(r) == "check").then(|| act.clone()));
        call.run().error(11);
    }
}

/// The namespace is gone, or the node's own.
#[test]
fn needs_the_namespace() {
    let node = Node::new();
    let _agent = node.agent();
    let pod = node.pod("c1");
    let result = pod.add("1.0.0");
    let call = pod.call("CHECK").with("prevResult", result);
    call.clone().env("CNI_NETNS", "/nowhere").run().error(4);
    call.env("CNI_NETNS", "/proc/self/ns/net").run().error(8);
}
