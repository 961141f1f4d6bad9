//! What is not there is said, what is not ours is not read: message, JSON and exit code.

use osmia_lab::Ended;
use osmia_maps::{
    Pins,
    layout::{LAYOUT, maps},
    pins::DEFAULT_ROOT,
};
use serde_json::Value;

use crate::fixture::{Machine, Sizes, create, put_meta};

const COMMANDS: [&[&str]; 12] = [
    &["status"],
    &["map", "list"],
    &["map", "dump", "flow4"],
    &["map", "get", "endpoint_addr", "10.1.0.5"],
    &["endpoint", "list"],
    &["flow", "list"],
    &["drop"],
    &["policy", "list"],
    &["policy", "show", "shop/db"],
    &["policy", "sets"],
    &["policy", "classes"],
    &["explain", "10.1.0.5", "10.1.0.6", "80/tcp"],
];

/// Every command must end with the code, say all of `words` on stderr and the kind in JSON, and print nothing else.
fn refused(machine: &Machine, at: &[&str], code: i32, kind: &str, words: &[&str]) {
    for command in COMMANDS {
        let ended = machine.osmia(&[command, at].concat());
        assert_eq!(ended.status.code(), Some(code), "{command:?}: {}", ended.text());
        for word in words {
            assert!(ended.stderr.contains(word), "{command:?} does not say {word:?}: {}", ended.stderr);
        }
        assert_eq!(ended.stdout, "", "{command:?}");
        let Ended { stdout, .. } = machine.osmia(&[command, at, &["--json"]].concat());
        let json: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(json["error"]["kind"], kind, "{command:?}: {json}");
        assert_eq!(json.as_object().unwrap().len(), 1, "{json}");
    }
}

#[test]
fn without_pins_it_is_said_what_that_means() {
    let machine = Machine::new();
    refused(&machine, &[], 3, "nothing_pinned", &["nothing is pinned below /sys/fs/bpf/osmia", "since the last boot"]);
    refused(&machine, &["--bpffs", "/tmp/osm-no-bpffs"], 3, "not_bpffs", &["mount -t bpf"]);
}

#[test]
fn another_layout_is_named_and_not_read() {
    let machine = Machine::new();
    machine.inside(|_| {
        let other = Pins::of_layout(DEFAULT_ROOT, LAYOUT + 6);
        create(&other, Sizes { flows: 64, addresses: 64 });
    });
    let (found, ours) = (format!("holds layout {}", LAYOUT + 6), format!("this build reads layout {LAYOUT}"));
    refused(&machine, &[], 3, "other_layout", &[&found, &ours]);
    let Ended { stdout, .. } = machine.osmia(&["status", "--json"]);
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["error"]["layouts_pinned"], serde_json::json!([LAYOUT + 6]));
    assert_eq!(json["error"]["layout_read"], LAYOUT);
}

#[test]
fn a_meta_row_of_another_layout_in_our_folder_is_believed() {
    let machine = Machine::with_rows();
    machine.inside(|pins| put_meta(pins, LAYOUT + 1));
    let says = format!("says layout {}", LAYOUT + 1);
    refused(&machine, &[], 3, "bad_meta", &[&says, "not read any further"]);
}

#[test]
fn a_map_of_another_shape_is_refused_by_name() {
    let machine = Machine::with_rows();
    machine.inside(|pins| {
        let path = pins.map(maps::ENDPOINT_ADDR);
        std::fs::remove_file(&path).unwrap();
        aya::maps::HashMap::<_, u64, u32>::create(8, 0).unwrap().pin(path).unwrap();
    });
    let ended = machine.osmia(&["map", "dump", "endpoint_addr"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("endpoint_addr has key size 8, this build needs 16"), "{}", ended.stderr);
    assert!(machine.osmia(&["map", "dump", "flow4"]).status.success(), "the other maps are read");
}

#[test]
fn no_such_row_has_an_exit_code_of_its_own() {
    let machine = Machine::with_rows();
    let ended = machine.osmia(&["map", "get", "endpoint_addr", "10.1.0.99"]);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(4), ""));
    assert!(ended.stderr.contains("endpoint_addr has no row 10.1.0.99"), "{}", ended.stderr);
    for row in ["endpoints 1000000", "epochs 1000000", "nodes 9000", "stats 64"] {
        let line = [&["map", "get"], &row.split(' ').collect::<Vec<_>>()[..]].concat();
        assert_eq!(machine.osmia(&line).status.code(), Some(4), "{row}");
    }
}

#[test]
fn a_bad_key_is_answered_with_how_keys_are_written() {
    let machine = Machine::with_rows();
    let ended = machine.osmia(&["map", "get", "flow4", "tcp", "10.0.0.1:80"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("PROTOCOL SOURCE:PORT DESTINATION:PORT"), "{}", ended.stderr);
    let ended = machine.osmia(&["map", "get", "nothing", "1"]);
    assert!(ended.stderr.contains("endpoint_addr"), "names what there is: {}", ended.stderr);
    assert_eq!(machine.osmia(&["flow", "list", "--proto", "nothing"]).status.code(), Some(2), "wrong usage");
}
