//! GC.

use osmia_cni::protocol::{AttachmentKey, Request};
use serde_json::{Value, json};

use crate::fake_agent::{Act, FakeAgent};
use crate::node::Node;

fn collected(agent: &FakeAgent) -> Vec<(String, Vec<AttachmentKey>)> {
    let collect =
        |request| if let Request::Collect { network, valid } = request { Some((network, valid)) } else { None };
    agent.requests().into_iter().filter_map(collect).collect()
}

/// G1, G2, G4, G5: both spellings; `[]` and null are "none valid"; the network's name goes with it.
#[test]
fn the_agent_gets_the_list() {
    let node = Node::new();
    let agent = node.agent();
    let list = json!([{"containerID": "b", "ifname": "eth0"}, {"containerID": "a", "ifname": "net1"}]);
    for (key, value) in [
        ("cni.dev/valid-attachments", list.clone()),
        ("cni.dev/attachments", list),
        ("cni.dev/valid-attachments", json!([])),
        ("cni.dev/valid-attachments", Value::Null),
    ] {
        node.call("GC").with(key, value).with("name", json!("blue")).run().silent();
    }
    let keys = vec![AttachmentKey::new("a", "net1").unwrap(), AttachmentKey::new("b", "eth0").unwrap()];
    let expected: Vec<_> = [keys.clone(), keys, vec![], vec![]].into_iter().map(|k| ("blue".to_owned(), k)).collect();
    assert_eq!(collected(&agent), expected);
}

/// G2: without a list, or with one that cannot be read, nothing may be removed.
#[test]
fn without_a_list_nothing_is_removed() {
    let node = Node::new();
    let agent = node.agent();
    assert!(node.call("GC").run().error(7).contains("valid-attachments"));
    for list in [json!("x"), json!([1]), json!([{"containerID": "a"}])] {
        node.call("GC").with("cni.dev/valid-attachments", list).run().error(7);
    }
    assert!(collected(&agent).is_empty());
}

/// C18, G3: errors come out.
#[test]
fn what_fails_is_said() {
    let node = Node::new();
    let with =
        |version: &str| node.call("GC").config(node.config(version)).with("cni.dev/valid-attachments", json!([]));
    with("1.0.0").run().error(1);
    with("1.1.0").with("timeout", json!(1)).run().error(11);
    let _agent = FakeAgent::start(&node, |_, _| Act::refuse(130, "2 of 3 attachments could not be removed"));
    assert!(with("1.1.0").run().error(130).contains("2 of 3"));
}
