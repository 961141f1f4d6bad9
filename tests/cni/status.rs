//! STATUS: fails only when pods are in danger or an ADD could not succeed within its own wait (T1), and never takes long (T3).

use std::fs::File;
use std::time::{Duration, Instant, SystemTime};

use osmia_cni::protocol::{Answer, Failure};
use osmia_maps::layout::LAYOUT;

use crate::fake_agent::{Act, FakeAgent};
use crate::node::{Node, write};

fn pinned(node: &Node, layout: u32) {
    write(&node.folder.join("pins").join(layout.to_string()).join("meta"), "");
}

fn heartbeat(node: &Node, age: Duration) {
    let file = File::create(node.folder.join("run/heartbeat")).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

const FRESH: Duration = Duration::from_secs(50);
const OLD: Duration = Duration::from_secs(70);

#[test]
fn an_agent_that_works_is_fine() {
    let node = Node::new();
    let _agent = node.agent();
    pinned(&node, LAYOUT);
    heartbeat(&node, Duration::ZERO);
    node.call("STATUS").run().silent();
    // A clock that was set: the agent answers, that counts.
    heartbeat(&node, OLD);
    node.call("STATUS").run().silent();
}

/// T1: silent for less than 60 s with pins present is a restart, longer is 50.
#[test]
fn a_short_silence_is_a_restart() {
    let node = Node::new();
    pinned(&node, LAYOUT);
    heartbeat(&node, FRESH);
    node.call("STATUS").run().silent();
    heartbeat(&node, OLD);
    let text = node.call("STATUS").run().error(50);
    assert!(text.contains("osmia-agent") && text.contains("start"), "{text}");
    std::fs::remove_file(node.folder.join("run/heartbeat")).unwrap();
    node.call("STATUS").run().error(50);
}

/// T1: pins absent or of another layout: running pods may be cut off.
#[test]
fn no_pins_of_this_layout_is_worse() {
    let node = Node::new();
    let _agent = node.agent();
    heartbeat(&node, Duration::ZERO);
    assert!(node.call("STATUS").run().error(51).contains("pins"));
    pinned(&node, LAYOUT + 1);
    node.call("STATUS").run().error(51);
    pinned(&node, LAYOUT);
    node.call("STATUS").run().silent();
}

/// What the agent knows better; only the codes of STATUS count.
#[test]
fn the_agents_word_counts() {
    for (code, fails) in [(50, true), (51, true), (117, false)] {
        let node = Node::new();
        let _agent = FakeAgent::start(&node, move |_, _| {
            Some(Act::Say(Answer::Failed(Failure::new(code, "node has no podCIDR"))))
        });
        pinned(&node, LAYOUT);
        heartbeat(&node, Duration::ZERO);
        let said = node.call("STATUS").run();
        if fails {
            assert!(said.error(code.into()).contains("podCIDR"));
        } else {
            said.silent();
        }
    }
}

/// T3: an agent that does not answer costs no more than 50 ms beyond a process's start; measured on the fastest of some calls.
#[test]
fn a_mute_agent_does_not_hold_it_up() {
    let node = Node::new();
    let _agent = FakeAgent::start(&node, |_, _| Some(Act::Hang));
    pinned(&node, LAYOUT);
    heartbeat(&node, FRESH);
    let time = || {
        let start = Instant::now();
        node.call("STATUS").run().silent();
        start.elapsed()
    };
    let fastest = (0..10).map(|_| time()).min().unwrap();
    assert!(fastest < Duration::from_millis(50), "{fastest:?}");
    heartbeat(&node, OLD);
    node.call("STATUS").run().error(50);
}

/// C18.
#[test]
fn an_old_configuration_has_no_status() {
    let node = Node::new();
    for version in ["0.3.0", "0.4.0", "1.0.0"] {
        let text = node.call("STATUS").config(node.config(version)).run().error(1);
        assert!(text.contains(version) && text.contains("1.1.0"), "{text}");
    }
}
