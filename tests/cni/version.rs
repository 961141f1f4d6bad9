//! VERSION.

use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::node::Node;

/// R13, N1, E12: podman sends the word `dummy` and an empty container id.
#[test]
fn answers_whatever_else_is_there() {
    let node = Node::new();
    let expected = json!({"cniVersion": "1.1.0", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]});
    let call = node.call("VERSION");
    let dummy = call.clone().env("CNI_NETNS", "dummy").env("CNI_IFNAME", "a/b").env("CNI_CONTAINERID", "");
    for call in [call.clone(), dummy, call.clone().stdin(""), call.stdin("{{{ no JSON")] {
        assert_eq!(call.run().result(), expected);
    }
}

/// N1: stdin is not read, so one that nobody closes does not hold it up.
#[test]
fn does_not_wait_for_stdin() {
    let node = Node::new();
    let mut child = node.call("VERSION").command().stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let _open = child.stdin.take();
    let until = Instant::now() + Duration::from_secs(5);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("VERSION waits for stdin");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Start to exit at most 1.5 × `/bin/true`. The fastest of many runs of each: what other processes of the machine add is not ours.
#[test]
fn takes_no_longer_than_a_process_takes() {
    let node = Node::new();
    let time = |command: &mut Command| {
        let start = Instant::now();
        assert!(command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
        start.elapsed()
    };
    let (mut plugin, mut nothing) = (Duration::MAX, Duration::MAX);
    for _ in 0..100 {
        plugin = plugin.min(time(&mut node.call("VERSION").command()));
        nothing = nothing.min(time(Command::new("/bin/true").env_clear()));
    }
    assert!(plugin.as_secs_f64() <= 1.5 * nothing.as_secs_f64(), "VERSION {plugin:?}, /bin/true {nothing:?}");
}

/// The binary runs on any node: no program header of type PT_INTERP (3), so no loader and no libc of the host.
#[test]
fn the_binary_is_static() {
    let file = std::fs::File::open(&Node::new().plugin).unwrap();
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).unwrap();
    assert_eq!(&head[..5], b"\x7fELF\x02");
    let offset = u64::from_le_bytes(head[32..40].try_into().unwrap());
    let size = u64::from(u16::from_le_bytes(head[54..56].try_into().unwrap()));
    let count = u64::from(u16::from_le_bytes(head[56..58].try_into().unwrap()));
    for i in 0..count {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, offset + i * size).unwrap();
        assert_ne!(u32::from_le_bytes(kind), 3, "the plugin needs a loader: build it with crt-static");
    }
}
