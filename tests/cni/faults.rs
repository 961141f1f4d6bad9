//! ADD broken at each step: the agent closes, hangs, talks nonsense, or the plugin is killed.

use std::os::unix::process::ExitStatusExt;

use osmia_cni::protocol::{Answer, Assignment, Failure, Request, frame};
use serde_json::json;

use crate::fake_agent::{Act, FakeAgent, name};
use crate::kernel;
use crate::node::Node;

fn other_protocol() -> Vec<u8> {
    let body = br#"{"protocol":99,"body":{"answer":"done"}}"#;
    [&(body.len() as u32).to_be_bytes()[..], body].concat()
}

fn torn() -> Vec<u8> {
    let whole = frame::encode(&Answer::Done).unwrap();
    whole[..whole.len() - 3].to_vec()
}

/// A4, A5: whatever the agent does at whichever message, ADD fails with code 11 and leaves nothing in either namespace.
#[test]
fn a_broken_agent_leaves_nothing_behind() {
    let faults = [
        ("close", Act::Close),
        ("hang", Act::Hang),
        ("torn", Act::Bytes(torn())),
        ("huge", Act::Bytes(vec![0xff; 64])),
        ("nonsense", Act::Bytes([&4_u32.to_be_bytes()[..], b"{]{]"].concat())),
        ("other release", Act::Bytes(other_protocol())),
        ("refusal", Act::Say(Answer::Failed(Failure::new(11, "later")))),
        ("other question", Act::Say(Answer::Attachment(assignment()))),
    ];
    std::thread::scope(|scope| {
        for step in ["reserve", "commit"] {
            for (fault, act) in faults.clone() {
                scope.spawn(move || {
                    let node = Node::new();
                    let agent = FakeAgent::start(&node, move |r, _| (name(r) == step).then(|| act.clone()));
                    let pod = node.pod("c1");
                    let text = pod.call("ADD").with("timeout", json!(2)).run().error(11);
                    assert!(text.len() > 20 || fault == "refusal", "{step} {fault}: {text}");
                    assert_eq!(kernel::links(&node.space), Vec::<String>::new(), "{step} {fault}");
                    assert_eq!(kernel::links(&pod.space), Vec::<String>::new(), "{step} {fault}");
                    assert_eq!(*agent.asked().last().unwrap(), step);
                });
            }
        }
    });
}

fn assignment() -> Assignment {
    Assignment {
        host_link: "osm000000000000".into(),
        addresses: vec!["10.244.1.9".parse().unwrap()],
        mtu: 1400,
        gateway_mac: crate::fake_agent::GATEWAY_MAC.into(),
        pod_mac: "02:00:00:00:00:09".into(),
    }
}

/// An assignment that cannot be built is refused before anything is made.
#[test]
fn a_bad_assignment_is_refused() {
    for (what, change) in [
        ("link name", (|a| a.host_link = "eth7".into()) as fn(&mut Assignment)),
        ("no address", |a| a.addresses.clear()),
        ("two of a family", |a| a.addresses = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]),
        ("MAC", |a| a.pod_mac = "x".into()),
        ("gateway MAC", |a| a.gateway_mac = String::new()),
    ] {
        let node = Node::new();
        let agent = FakeAgent::start(&node, move |request, right| {
            let mut bad = right.clone();
            change(&mut bad);
            (name(request) == "reserve").then_some(Act::Say(Answer::Reserved(bad)))
        });
        node.pod("c1").call("ADD").run().error(11);
        agent.await_closed(1);
        assert_eq!(agent.asked(), ["reserve"], "{what}");
        assert!(kernel::links(&node.space).is_empty(), "{what}");
    }
}

/// A kernel that refuses: reported in its words, nothing left, the agent sees the connection close.
#[test]
fn a_refusal_of_the_kernel_leaves_nothing_behind() {
    for (what, change) in [
        // Larger than a veth can be.
        ("MTU", (|a| a.mtu = 100_000) as fn(&mut Assignment)),
        // Refused after the link exists.
        ("address", |a| a.addresses = vec!["224.0.0.1".parse().unwrap(), "ff02::5".parse().unwrap()]),
    ] {
        let node = Node::new();
        let agent = FakeAgent::start(&node, move |request, right| {
            let mut bad = right.clone();
            change(&mut bad);
            (name(request) == "reserve").then_some(Act::Say(Answer::Reserved(bad)))
        });
        let pod = node.pod("c1");
        let text = pod.call("ADD").run().error(100);
        assert!(text.contains("eth0"), "{what}: {text}");
        agent.await_closed(1);
        assert_eq!(agent.asked(), ["reserve"], "{what}");
        assert!(kernel::links(&node.space).is_empty() && kernel::links(&pod.space).is_empty(), "{what}");
    }
}

/// Section 0, take-away 4: a time-out is SIGKILL, and DEL follows, here without the namespace (A4). The agent sees the connection
/// close; the DEL and one more succeed; nothing is left.
#[test]
fn a_plugin_killed_at_each_step_is_cleaned_up_by_del() {
    for (step, agent_alive) in [("reserve", true), ("commit", true), ("reserve", false), ("commit", false)] {
        let node = Node::new();
        let agent = FakeAgent::start(&node, move |r, _| (name(r) == step).then_some(Act::Kill));
        let pod = node.pod("c1");
        let killed = pod.call("ADD").run();
        assert_eq!(killed.0.status.signal(), Some(9), "{step}");
        assert_eq!(killed.0.stdout, "");
        agent.await_closed(1);
        assert_eq!(kernel::links(&pod.space).len(), usize::from(step == "commit"), "killed at {step}");
        let agent = agent_alive.then_some(agent);
        for _ in 0..2 {
            pod.call("DEL").env("CNI_NETNS", "").run().silent();
        }
        match agent {
            // The real one removes the link; this one only answers.
            Some(agent) => assert_eq!(agent.asked().last(), Some(&"delete")),
            None => {
                assert!(kernel::links(&node.space).is_empty() && kernel::links(&pod.space).is_empty());
                assert_eq!(node.queued().len(), 1);
            }
        }
    }
}

/// A DEL of a killed DEL.
#[test]
fn a_killed_del_is_repeated() {
    let node = Node::new();
    let first = std::sync::atomic::AtomicBool::new(true);
    let agent = FakeAgent::start(&node, move |request, _| {
        let kill = name(request) == "delete" && first.swap(false, std::sync::atomic::Ordering::SeqCst);
        kill.then_some(Act::Kill)
    });
    let pod = node.pod("c1");
    pod.add("1.0.0");
    assert_eq!(pod.call("DEL").run().0.status.signal(), Some(9));
    pod.call("DEL").run().silent();
    assert_eq!(agent.asked(), ["reserve", "commit", "delete", "delete"]);
    let started =
        |request: &Request| if let Request::Delete { started_ns, .. } = request { Some(*started_ns) } else { None };
    let times: Vec<_> = agent.requests().iter().filter_map(started).collect();
    assert!(times[0] < times[1], "a later DEL must be told from an earlier one: {times:?}");
}
