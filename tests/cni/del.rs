//! DEL: by the key alone, as often as it comes, with the agent there, away or mute.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use osmia_cni::queue::{Entry, MAX_ENTRIES, Queue};
use serde_json::{Value, json};

use crate::fake_agent::{Act, FakeAgent};
use crate::kernel;
use crate::node::{Node, Pod, write};

/// D1 to D3, D6, V3: the three DELs of containerd, then everything that may be missing, wrong or different.
#[test]
fn succeeds_whatever_is_missing() {
    let node = Node::new();
    let agent = node.agent();
    let pod = node.pod("c1");
    let result = pod.add("1.0.0");
    let del = pod.call("DEL");
    let file = node.folder.join("file");
    fs::write(&file, "x").unwrap();
    for call in [
        del.clone().with("prevResult", result),
        del.clone().env("CNI_NETNS", ""),
        del.clone().without("CNI_NETNS"),
        del.clone().env("CNI_NETNS", "/nowhere/at/all"),
        del.clone().env("CNI_NETNS", file.display().to_string()),
        del.clone().env("CNI_NETNS", "/proc/self/ns/uts"),
        del.clone().with("prevResult", json!("damaged")),
        del.clone().with("prevResult", json!({"ips": [{"interface": 9}]})),
        del.clone().with("ipam", json!({"type": "host-local"})).with("runtimeConfig", json!(5)),
        del.clone().config(node.config("0.3.0")).with("name", json!("renamed")),
        del.clone().env("CNI_ARGS", "garbage"),
        del.clone().env("CNI_CONTAINERID", "never-added"),
    ] {
        call.run().silent();
    }
    assert_eq!(agent.asked().iter().filter(|a| **a == "delete").count(), 12);
}

/// E18, D7: a path that has come to name the node's own namespace; nothing is touched and the agent is not asked.
#[test]
fn the_nodes_own_namespace_is_refused() {
    let node = Node::new();
    let agent = node.agent();
    node.space.ip("link add eth0 type veth peer name other").unwrap();
    let del = node.call("DEL").env("CNI_CONTAINERID", "c1").env("CNI_IFNAME", "eth0");
    let text = del.env("CNI_NETNS", "/proc/self/ns/net").run().error(8);
    assert!(text.contains("CNI_NETNS") && text.contains("empty"), "{text}");
    assert_eq!(kernel::links(&node.space).len(), 2);
    assert_eq!(agent.asked(), Vec::<&str>::new());
}

fn added(node: &Node) -> Pod<'_> {
    let _agent = node.agent();
    let pod = node.pod("c1");
    pod.add("1.0.0");
    pod
}

/// Take-away 13: with the agent away DEL succeeds, the pod is off the network at once, and a durable entry waits. Repeats do not use
/// up the queue.
#[test]
fn the_agent_away_is_no_error_and_leaves_an_entry() {
    let node = Node::new();
    let pod = added(&node);
    let start = Instant::now();
    for _ in 0..3 {
        let said = pod.call("DEL").env("CNI_NETNS", "").run();
        said.silent();
        assert!(said.stderr().contains("queue"), "{}", said.stderr());
        assert!(kernel::links(&node.space).is_empty() && kernel::links(&pod.space).is_empty());
    }
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(node.queued(), [format!("{}.json", pod.host_link())]);
    let entry: Entry = serde_json::from_slice(&fs::read(node.queue().join(&node.queued()[0])).unwrap()).unwrap();
    assert_eq!(entry.key, pod.key());
    assert_eq!(entry.boot_id, fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim());
    assert_eq!(fs::metadata(node.queue()).unwrap().permissions().mode() & 0o777, 0o700);
}

/// The agent drains under an exclusive lock and listens only afterwards. A DEL that comes meanwhile waits and goes by the socket.
#[test]
fn a_del_during_the_drain_goes_to_the_agent() {
    let node = Node::new();
    let pod = added(&node);
    let queue = Queue::in_state(&node.folder.join("state"));
    let drain = queue.lock_exclusive(Instant::now() + Duration::from_secs(1)).unwrap();
    let agent = thread::scope(|scope| {
        let starting = scope.spawn(|| {
            thread::sleep(Duration::from_millis(500));
            let agent = node.agent();
            drop(drain);
            agent
        });
        pod.call("DEL").run().silent();
        starting.join().unwrap()
    });
    assert_eq!(agent.asked(), ["delete"]);
    assert_eq!(node.queued(), Vec::<String>::new());
}

/// An agent that takes the request and never answers, closes, or is of another release: nobody knows what it did, so the entry waits.
#[test]
fn an_unconfirmed_del_is_queued() {
    let other = br#"{"protocol":99,"body":{"answer":"done"}}"#;
    let other = [&(other.len() as u32).to_be_bytes()[..], other].concat();
    for act in [Act::Hang, Act::Close, Act::Bytes(vec![0; 3]), Act::Bytes(other)] {
        let node = Node::new();
        let pod = added(&node);
        let agent = FakeAgent::start(&node, move |_, _| Some(act.clone()));
        pod.call("DEL").with("timeout", json!(1)).run().silent();
        assert_eq!(node.queued().len(), 1);
        assert!(kernel::links(&node.space).is_empty());
        assert_eq!(agent.asked()[0], "delete");
    }
}

/// D5, take-away 8: a refusal is an error that never reads as success; the pod is off the network all the same (D4).
#[test]
fn a_refusal_never_reads_as_success() {
    let node = Node::new();
    let pod = added(&node);
    let _agent = FakeAgent::start(&node, |_, _| Act::refuse(120, "journal: No such file or directory; pod not found"));
    let text = pod.call("DEL").run().error(120).to_lowercase();
    assert!(!text.contains("not found") && !text.contains("no such file"), "{text}");
    assert!(text.contains("journal"));
    assert!(kernel::links(&node.space).is_empty());
}

/// Neither agent nor queue: the one case in which DEL must be tried again. The link goes all the same.
#[test]
fn an_error_says_what_to_do_when_nobody_takes_it() {
    // The state folder is a file; nothing can be below it. Root may write anywhere else.
    let node = Node::new();
    let pod = added(&node);
    write(&node.folder.join("state"), "a file");
    let text = pod.call("DEL").run().error(11);
    assert!(text.contains("queue") && text.contains("writable"), "{text}");
    let lower = text.to_lowercase();
    assert!(!lower.contains("not found") && !lower.contains("no such file"), "{text}");
    assert!(kernel::links(&node.space).is_empty());

    let node = Node::new();
    let pod = added(&node);
    let text = pod.call("DEL").with("bootId", json!("/nowhere/boot_id")).run().error(11).to_lowercase();
    assert!(text.contains("bootid") && !text.contains("no such file"), "{text}");
    assert!(kernel::links(&node.space).is_empty());
}

/// Section 4: at most 256 entries, then DEL fails; one that is there already is no new entry.
#[test]
fn a_full_queue_is_an_error() {
    let node = Node::new();
    for i in 0..MAX_ENTRIES {
        write(&node.queue().join(format!("osm{i:012}.json")), "{}");
    }
    let pod = node.pod("c1");
    let text = pod.call("DEL").run().error(11);
    assert!(text.contains("256") && text.contains("osmia-agent"), "{text}");
    fs::rename(node.queue().join("osm000000000000.json"), node.queue().join(format!("{}.json", pod.host_link())))
        .unwrap();
    pod.call("DEL").run().silent();
    assert_eq!(node.queued().len(), MAX_ENTRIES);
}

/// C16 for DEL: what cannot be read is still an error, in words that do not read as success.
#[test]
fn garbage_is_an_error_for_del_too() {
    let node = Node::new();
    let del = node.call("DEL").env("CNI_CONTAINERID", "c1").env("CNI_IFNAME", "eth0");
    for (config, code) in [
        (json!([]), 6),
        (json!({"cniVersion": "1.0.0"}), 7),
        (json!({"cniVersion": "9.9.9", "name": "not found"}), 1),
        (json!({"cniVersion": "not found", "name": "x"}), 6),
        (json!({"cniVersion": "1.0.0", "name": "not found"}), 7),
    ] {
        let text = del.clone().config(config).run().error(code);
        assert!(!text.contains("not found"), "{text}");
    }
    let _: Value = serde_json::from_str(&del.stdin("{").run().0.stdout).unwrap();
}
