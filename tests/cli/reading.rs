//! That the CLI only reads, that it reads another node's pins by path, and that it goes on reading with `--watch`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, Stdio},
};

use osmia_maps::{
    Access, MapError,
    layout::{Addr, maps},
    pins::DEFAULT_ROOT,
    tables,
};
use rustix::thread::{CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities};
use serde_json::Value;

use crate::fixture::{Machine, osmia};

/// A process that is ended with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_read_only_map_cannot_be_written() {
    let machine = Machine::with_rows();
    machine.inside(|pins| {
        let table = tables::ENDPOINT_ADDR.open(pins, Access::ReadOnly).unwrap();
        let error = table.put(&Addr::v4([1; 4]), &1).unwrap_err();
        let MapError::Call { source, .. } = error else { panic!("{error:?}") };
        assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied);
        assert!(table.remove(&Addr::v4([10, 1, 0, 5])).is_err());
    });
}

/// The pins may be read but not written, also by root without the capability to override that: whoever opened one to write fails.
#[test]
fn no_command_opens_a_map_to_write() {
    let machine = Machine::with_rows();
    let outcomes = machine.inside(|pins| {
        for name in tables::NAMES {
            fs::set_permissions(pins.map(name), fs::Permissions::from_mode(0o400)).unwrap();
        }
        remove_capability_from_bounding_set(CapabilitySet::DAC_OVERRIDE).unwrap();
        let dumps = tables::NAMES.map(|name| vec!["map", "dump", name]);
        let others = ["status", "map list", "map get meta", "endpoint list --traffic", "flow list", "drop"];
        let policy =
            ["policy list", "policy sets", "policy sets 9", "policy classes 2", "explain 10.1.0.5 10.1.0.6 80/tcp"];
        let mut outcomes = Vec::new();
        let commands = others.into_iter().chain(policy).map(|line| line.split(' ').collect::<Vec<_>>()).chain(dumps);
        for arguments in commands {
            let ended = osmia(&arguments).output().unwrap();
            // Red, since no program runs, is an answer as well.
            let done = ended.status.success() || arguments == ["status"] && ended.status.code() == Some(7);
            outcomes.push((format!("{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr)), done));
        }
        // The control: what a process without the capability may do.
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::DAC_OVERRIDE);
        set_capabilities(None, sets).unwrap();
        let to_write = tables::META.open(pins, Access::ReadWrite);
        assert!(to_write.is_err(), "a map can be opened to write: this test would prove nothing");
        assert!(tables::META.open(pins, Access::ReadOnly).is_ok());
        outcomes
    });
    for (what, done) in outcomes {
        assert!(done, "{what}");
    }
}

#[test]
fn another_node_is_read_by_path() {
    let machine = Machine::with_rows();
    let inside = machine.space.run(|| Command::new("sleep").arg("60").spawn()).unwrap().unwrap();
    let inside = Ends(inside);
    let path = format!("/proc/{}/root{DEFAULT_ROOT}", inside.0.id());
    let other = Machine::new();
    let status = other.status(&["--bpffs", &path]).1;
    assert_eq!(status["endpoints"]["present"], 2);
    assert_eq!(status["devices_named"], false, "osmia0 is a device of the other namespace");
    assert_eq!(status["config"]["door_host"]["name"], Value::Null);
    let text = other.osmia(&["status", "--bpffs", &path]).stdout;
    assert!(text.contains("by index only"), "{text}");
    // Not even where a device of that index has the right name.
    other.space.ip("link add osmia0 index 40 type veth peer name osmia1 index 41").unwrap();
    assert_eq!(other.status(&["--bpffs", &path]).1["devices_named"], false);
}

#[test]
fn watched_json_is_a_document_a_line() {
    let machine = Machine::with_rows();
    let child = machine
        .space
        .run(|| osmia(&["status", "--json", "--watch", "0.1"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn());
    let mut child = Ends(child.unwrap().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["route_generation"], 9);
    machine.inside(|pins| tables::EPOCHS.open(pins, Access::ReadWrite).unwrap().put(&0, &10).unwrap());
    assert!((0..20).any(|_| next()["route_generation"] == 10), "it is read anew each time");
    // Pins that go, as in an upgrade, do not end it.
    machine.inside(|pins| fs::remove_file(pins.map(maps::META)).unwrap());
    assert!((0..20).any(|_| next()["error"]["kind"].is_string()));
    assert!(child.0.try_wait().unwrap().is_none(), "it goes on");
}

#[test]
fn who_stops_reading_ends_it_without_noise() {
    let machine = Machine::with_rows();
    let child = machine
        .space
        .run(|| osmia(&["flow", "list", "--watch", "0.05"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
    let mut child = Ends(child.unwrap().unwrap());
    let mut out = child.0.stdout.take().unwrap();
    out.read_exact(&mut [0; 5]).unwrap();
    drop(out);
    assert!(child.0.wait().unwrap().success());
    let mut noise = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut noise).unwrap();
    assert_eq!(noise, "");
}
