//! ADD: results by version, what the kernel has afterwards, and what is refused.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use osmia_cni::protocol::{PodRef, Request};
use serde_json::{Value, json};

use crate::fake_agent::{Act, Event, FakeAgent, GATEWAY_MAC, MTU};
use crate::kernel;
use crate::node::Node;

/// R2 to R8, A7: the layout of each version, with everything that was created and nothing that the version lacks.
#[test]
fn each_version_has_its_layout() {
    let node = Node::new();
    let agent = node.agent();
    for (i, version) in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"].into_iter().enumerate() {
        let pod = node.pod(&format!("c{i}"));
        let result = pod.add(version);
        let (v4, mac) = (format!("10.244.1.{}/32", 2 * i + 1), format!("02:00:0a:f4:01:{:02x}", 2 * i + 1));
        let v6 = format!("fd00:244:0:1::{:x}/128", 2 * i + 1);
        let mut expected = json!({
            "cniVersion": version,
            "interfaces": [
                {"name": pod.host_link(), "mac": GATEWAY_MAC},
                {"name": "eth0", "mac": mac, "sandbox": pod.path},
            ],
            "ips": [
                {"interface": 1, "address": v4, "gateway": "169.254.1.1"},
                {"interface": 1, "address": v6, "gateway": "fe80::1"},
            ],
            "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}, {"dst": "::/0", "gw": "fe80::1"}],
        });
        if version < "1.0.0" {
            expected["ips"][0]["version"] = json!("4");
            expected["ips"][1]["version"] = json!("6");
        }
        if version == "1.1.0" {
            expected["interfaces"][0]["mtu"] = json!(MTU);
            expected["interfaces"][1]["mtu"] = json!(MTU);
        }
        assert_eq!(result, expected);
    }
    assert_eq!(agent.asked().len(), 10);
}

/// A1: what the result says is there, and the pod can use it at once.
#[test]
fn the_pod_has_what_it_needs_and_the_host_no_address() {
    let node = Node::new();
    let _agent = node.agent();
    let pod = node.pod("c1");
    pod.add("1.0.0");

    let inside = kernel::link(&pod.space, "eth0");
    assert_eq!((&inside["address"], &inside["mtu"]), (&json!("02:00:0a:f4:01:01"), &json!(MTU)));
    assert_eq!((&inside["linkinfo"]["info_kind"], &inside["operstate"]), (&json!("veth"), &json!("UP")));
    let outside = kernel::link(&node.space, &pod.host_link());
    assert_eq!((&outside["address"], &outside["mtu"]), (&json!(GATEWAY_MAC), &json!(MTU)));
    assert_eq!((&outside["operstate"], &outside["inet6_addr_gen_mode"]), (&json!("UP"), &json!("none")));
    let all =
        node.space.output(std::process::Command::new("ip").args(["-o", "address", "show", "dev", &pod.host_link()]));
    assert_eq!(all.unwrap(), "", "the host's end has an address");

    let addresses = kernel::addresses(&pod.space, "eth0");
    let texts: Vec<_> = addresses.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(texts, ["10.244.1.1/32", "fd00:244:0:1::1/128"]);
    for (text, all) in &addresses {
        assert!(all.get("tentative").is_none() && all.get("dadfailed").is_none(), "{text} cannot be used yet: {all}");
        assert_eq!(all["scope"], "global");
    }
    assert_eq!(kernel::routes(&pod.space, "-4"), ["169.254.1.1", "default 169.254.1.1"]);
    assert_eq!(kernel::routes(&pod.space, "-6"), ["default fe80::1"]);
    let mac = GATEWAY_MAC;
    assert_eq!(kernel::neighbours(&pod.space, "eth0"), [format!("169.254.1.1 {mac}"), format!("fe80::1 {mac}")]);
    assert_eq!(kernel::links(&node.space), [pod.host_link()]);
}

/// The agent gets key, network, pod and the very namespace; then the link as it is.
#[test]
fn the_agent_is_told_everything() {
    let node = Node::new();
    let agent = node.agent();
    let pod = node.pod("c1");
    let args = "K8S_POD_NAME=web-0;IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_UID=u-1;X=y";
    pod.call("ADD").env("CNI_ARGS", args).run().result();
    let (events, requests) = (agent.events(), agent.requests());
    let Request::Reserve { key, network, netns, pod: told, deadline_ms, started_ns, .. } = &requests[0] else {
        panic!("{requests:?}")
    };
    assert_eq!((key, network.as_str(), netns), (&pod.key(), "osmia", &pod.path.display().to_string()));
    assert_eq!(*told, PodRef { namespace: "shop".into(), name: "web-0".into(), uid: "u-1".into() });
    assert!((25_000..=30_000).contains(deadline_ms) && *started_ns > 0);
    let Event::Asked(_, inode, _) = &events[0] else { panic!("{events:?}") };
    assert_eq!(*inode, Some(fs::metadata(pod.space.net_path()).unwrap().ino()));
    let Request::Commit { key, pod_mac, host_ifindex } = &requests[1] else { panic!("{requests:?}") };
    assert_eq!((key, pod_mac.as_str()), (&pod.key(), "02:00:0a:f4:01:01"));
    assert_eq!(kernel::link(&node.space, &pod.host_link())["ifindex"], *host_ifindex);
}

#[test]
fn one_family_alone() {
    let node = Node::new();
    let agent = node.agent();
    for (id, v4, v6) in [("four", true, false), ("six", false, true)] {
        agent.families(v4, v6);
        let pod = node.pod(id);
        let result = pod.add("1.0.0");
        assert_eq!(result["ips"].as_array().unwrap().len(), 1);
        assert_eq!(result["routes"].as_array().unwrap().len(), 1);
        assert_eq!(kernel::addresses(&pod.space, "eth0").len(), 1);
        assert_eq!(kernel::routes(&pod.space, "-4").is_empty(), !v4);
        assert_eq!(kernel::routes(&pod.space, "-6").is_empty(), !v6);
    }
}

/// A runtime may create namespaces with IPv6 off; a pod with an IPv6 address gets it on its interface.
#[test]
fn a_namespace_with_ipv6_off_gets_its_address() {
    let node = Node::new();
    let _agent = node.agent();
    let pod = node.pod("c1");
    pod.space.sysctl(&[("net/ipv6/conf/all/disable_ipv6", "1"), ("net/ipv6/conf/default/disable_ipv6", "1")]).unwrap();
    pod.add("1.0.0");
    let addresses: Vec<_> = kernel::addresses(&pod.space, "eth0").into_iter().map(|(text, _)| text).collect();
    assert_eq!(addresses, ["10.244.1.1/32", "fd00:244:0:1::1/128"]);
    assert_eq!(kernel::routes(&pod.space, "-6"), ["default fe80::1"]);
    assert_eq!(kernel::neighbours(&pod.space, "eth0").len(), 2);
}

/// Issue: several interfaces a container. Each has its own link and addresses; one DEL takes one.
#[test]
fn two_interfaces_in_one_container() {
    let node = Node::new();
    let agent = node.agent();
    // A pod has one default route a family: the second interface is for the other one.
    agent.families(true, false);
    let mut pod = node.pod("c1");
    pod.add("1.0.0");
    let first = pod.host_link();
    agent.families(false, true);
    pod.ifname = "net1".into();
    let result = pod.add("1.0.0");
    assert_eq!(result["interfaces"][1]["name"], "net1");
    assert_ne!(first, pod.host_link());
    assert_eq!(kernel::links(&pod.space), ["eth0", "net1"]);
    assert_eq!(kernel::links(&node.space).len(), 2);
}

/// A2: the interface is left alone and the agent is not even asked.
#[test]
fn an_interface_that_exists_is_an_error() {
    let node = Node::new();
    let agent = node.agent();
    let pod = node.pod("c1");
    pod.space.ip("link add eth0 type veth peer name other").unwrap();
    let before = kernel::link(&pod.space, "eth0");
    let text = pod.call("ADD").run().error(101);
    assert!(text.contains("eth0") && text.contains("DEL"), "{text}");
    assert_eq!(kernel::link(&pod.space, "eth0"), before);
    assert_eq!(agent.asked(), Vec::<&str>::new());
    assert!(kernel::links(&node.space).is_empty());
}

/// A2, A6: a second ADD without a DEL fails, and the running pod does not notice.
#[test]
fn a_repeated_add_leaves_the_running_pod_alone() {
    let node = Node::new();
    let agent = node.agent();
    let pod = node.pod("c1");
    pod.add("1.0.0");
    let before = (kernel::link(&pod.space, "eth0"), kernel::addresses(&pod.space, "eth0"));
    pod.call("ADD").run().error(101);
    assert_eq!((kernel::link(&pod.space, "eth0"), kernel::addresses(&pod.space, "eth0")), before);
    assert_eq!(agent.asked(), ["reserve", "commit"]);
}

/// podman's `network reload` sends DEL and ADD with the same key and namespace, and a DEL is answered before its link is gone.
#[test]
fn a_link_on_its_way_out_is_waited_for() {
    let node = Node::new();
    let _agent = node.agent();
    let pod = node.pod("c1");
    pod.add("1.0.0");
    pod.call("DEL").run().silent();
    assert_eq!(kernel::links(&pod.space), ["eth0"]);
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(400));
            node.space.ip(&format!("link del {}", pod.host_link())).unwrap();
        });
        pod.add("1.0.0")
    });
    assert_ne!(result["ips"][0]["address"], "10.244.1.1/32", "a fresh address");
    assert_eq!(kernel::links(&node.space), [pod.host_link()]);
}

/// A6: what a killed ADD for an earlier namespace of the same key left is removed.
#[test]
fn a_leftover_of_the_same_key_is_replaced() {
    let node = Node::new();
    let _agent = node.agent();
    let pod = node.pod("c1");
    node.space.ip(&format!("link add {} type veth peer name stale", pod.host_link())).unwrap();
    pod.add("1.0.0");
    assert_eq!(kernel::links(&node.space), [pod.host_link()]);
    assert_eq!(kernel::links(&pod.space), ["eth0"]);
}

/// T1: an ADD while the agent restarts waits for it.
#[test]
fn waits_for_the_agent() {
    let node = Node::new();
    let pod = node.pod("c1");
    let agent = thread::scope(|scope| {
        let agent = scope.spawn(|| {
            thread::sleep(Duration::from_millis(700));
            node.agent()
        });
        pod.add("1.0.0");
        agent.join().unwrap()
    });
    assert_eq!(agent.asked(), ["reserve", "commit"]);
}

#[test]
fn fails_in_its_time_without_an_agent() {
    let node = Node::new();
    let pod = node.pod("c1");
    let start = Instant::now();
    let text = pod.call("ADD").with("timeout", json!(1)).run().error(11);
    assert!((1.0..5.0).contains(&start.elapsed().as_secs_f64()));
    assert!(text.contains("osmia-agent") && text.contains(&node.socket().display().to_string()), "{text}");
    assert!(kernel::links(&node.space).is_empty() && kernel::links(&pod.space).is_empty());
}

/// V5: a main plugin that receives one on ADD says so.
#[test]
fn prev_result_is_refused() {
    let node = Node::new();
    let agent = node.agent();
    let pod = node.pod("c1");
    let previous = json!({"cniVersion": "1.1.0", "interfaces": [], "ips": []});
    let text = pod.call("ADD").with("prevResult", previous).run().error(7);
    assert!(text.contains("prevResult"), "{text}");
    assert_eq!(agent.asked(), Vec::<&str>::new());
    // V6: null counts as absent.
    pod.call("ADD").with("prevResult", Value::Null).run().result();
}

/// cni.md 1.9: both spellings of runtimeConfig, and CNI_ARGS behind it.
#[test]
fn a_mac_that_is_asked_for_is_given() {
    let node = Node::new();
    let agent = node.agent();
    let args = "IgnoreUnknown=1;MAC=02:00:00:00:00:99";
    for (id, config, mac) in [
        ("c1", json!({"mac": "02:00:00:00:00:11"}), "02:00:00:00:00:11"),
        ("c2", json!({"Mac": "02:00:00:00:00:12"}), "02:00:00:00:00:12"),
        ("c3", json!({}), "02:00:00:00:00:99"),
    ] {
        let pod = node.pod(id);
        let result = pod.call("ADD").with("runtimeConfig", config).env("CNI_ARGS", args).run().result();
        assert_eq!(result["interfaces"][1]["mac"], mac);
        assert_eq!(kernel::link(&pod.space, "eth0")["address"], mac);
        let told = |r: &Request| matches!(r, Request::Commit { pod_mac, .. } if pod_mac == mac);
        assert!(agent.requests().iter().any(told), "the agent must know the MAC that the pod has");
    }
}

/// X2, code 2: an address is granted or refused in words, never replaced silently.
#[test]
fn an_address_that_is_asked_for_is_given_or_refused() {
    let node = Node::new();
    let agent = node.agent();
    let pod = node.pod("c1");
    let text = pod.call("ADD").env("CNI_ARGS", "IP=10.244.1.77").run().error(2);
    assert!(text.contains("10.244.1.77"), "{text}");
    agent.await_closed(1);
    assert_eq!(agent.asked(), ["reserve"]);
    assert!(kernel::links(&node.space).is_empty());
    let next = Ipv4Addr::new(10, 244, 1, 2).to_string();
    let result =
        node.pod("c2").call("ADD").with("runtimeConfig", json!({"ips": [format!("{next}/24")]})).run().result();
    assert_eq!(result["ips"][0]["address"], format!("{next}/32"));
}

/// X2, code 2: what Osmia does not do; C11, take-away 5.
#[test]
fn unserved_capabilities_are_refused_before_anything_is_made() {
    let node = Node::new();
    let agent = node.agent();
    let pod = node.pod("c1");
    for (key, value, says) in [
        (
            "runtimeConfig",
            json!({"PortMappings": [{"HostPort": 8080, "ContainerPort": 80, "Protocol": "TCP"}]}),
            "8080",
        ),
        ("runtimeConfig", json!({"bandwidth": {"ingressRate": 8_000_000}}), "8000000"),
        ("ipam", json!({"type": "host-local"}), "host-local"),
    ] {
        let text = pod.call("ADD").with(key, value).run().error(2);
        assert!(text.contains(says), "{text}");
    }
    assert_eq!(agent.asked(), Vec::<&str>::new());
}

/// C14: `dns` of the configuration is in the result.
#[test]
fn dns_is_passed_on() {
    let node = Node::new();
    let _agent = node.agent();
    let dns = json!({"nameservers": ["10.96.0.10"], "search": ["cluster.local"]});
    let result = node.pod("c1").call("ADD").with("dns", dns.clone()).run().result();
    assert_eq!(result["dns"], dns);
}

/// The agent's refusal is the runtime's, code and text.
#[test]
fn a_refusal_of_the_agent_is_passed_on() {
    let node = Node::new();
    let _agent = FakeAgent::start(&node, |_, _| Act::refuse(117, "10.244.1.0/24 is exhausted"));
    let text = node.pod("c1").call("ADD").run().error(117);
    assert!(text.contains("exhausted"), "{text}");
}

/// E18, D7: the node's own namespace is never touched.
#[test]
fn the_nodes_own_namespace_is_refused() {
    let node = Node::new();
    let agent = node.agent();
    node.space.ip("link add eth0 type veth peer name other").unwrap();
    let call = node.call("ADD").env("CNI_CONTAINERID", "c1").env("CNI_IFNAME", "net1");
    for path in ["/proc/self/ns/net", "/proc/thread-self/ns/net"] {
        let text = call.clone().env("CNI_NETNS", path).run().error(8);
        assert!(text.contains("CNI_NETNS"), "{text}");
    }
    assert_eq!(kernel::links(&node.space).len(), 2);
    assert_eq!(agent.asked(), Vec::<&str>::new());
}

#[test]
fn a_path_that_is_no_network_namespace_is_refused() {
    let node = Node::new();
    let agent = node.agent();
    let file = node.folder.join("file");
    fs::write(&file, "x").unwrap();
    let call = node.call("ADD").env("CNI_CONTAINERID", "c1").env("CNI_IFNAME", "eth0");
    for path in [file.to_str().unwrap(), "/nowhere/at/all", "/proc/self/ns/uts"] {
        let text = call.clone().env("CNI_NETNS", path).run().error(4);
        assert!(text.contains("CNI_NETNS") && text.contains(path), "{text}");
    }
    assert_eq!(agent.asked(), Vec::<&str>::new());
}
