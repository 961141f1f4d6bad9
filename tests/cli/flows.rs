//! `flow list`: what is shown, in which order, and the filters.

use serde_json::{Value, json};

use crate::fixture::Machine;

fn flows(machine: &Machine, filters: &[&str]) -> Vec<Value> {
    let list = machine.json(&[&["flow", "list"], filters].concat());
    assert_eq!(list["total"], 6);
    list["flows"].as_array().unwrap().clone()
}

#[test]
fn an_entry_has_names_and_ages() {
    let machine = Machine::with_rows();
    let found = flows(&machine, &["--dst", "10.2.0.7"]);
    let [flow] = &found[..] else { panic!("{found:?}") };
    for (field, value) in [
        ("state", json!("established")),
        ("proto", json!("tcp")),
        ("src", json!("10.1.0.5")),
        ("sport", json!(40_000)),
        ("action", json!("tunnel")),
        ("node", json!({"number": 3, "address": "192.0.2.3"})),
        ("device", Value::Null),
        ("hook", json!("pod")),
        ("hook_device", json!({"ifindex": 50, "name": null})),
        ("flags", json!(["opener", "replied"])),
        ("tcp", json!(["established"])),
        ("mtu", Value::Null),
        ("packets", json!(10)),
        ("current", json!(true)),
    ] {
        assert_eq!(flow[field], value, "{field} of {flow}");
    }
    let (age, idle) = (flow["age"].as_f64().unwrap(), flow["idle"].as_f64().unwrap());
    assert!((20.0..30.0).contains(&age) && (10.0..20.0).contains(&idle), "{age} {idle}");
}

#[test]
fn filters_take_what_they_name() {
    let machine = Machine::with_rows();
    for (filters, count) in [
        (&["--src", "10.1.0.0/16"][..], 2),
        (&["--src", "10.1.0.5", "--proto", "tcp"], 1),
        (&["--src", "fd00:1::/32"], 2),
        (&["--dst", "198.51.100.1"], 1),
        (&["--port", "80"], 2),
        (&["--port", "443"], 2),
        (&["--proto", "udp"], 2),
        (&["--proto", "17"], 2),
        // The reply to the masqueraded flow names the pod only in its rewrite.
        (&["--pod", "10.1.0.5"], 4),
        (&["--pod", "10.1.0.6"], 0),
        (&["--node", "3"], 4),
        (&["--node", "192.0.2.3", "--state", "established"], 3),
        (&["--node", "4"], 0),
        (&["--state", "established"], 3),
        (&["--state", "new"], 3),
        (&["--action", "uplink"], 1),
        (&["--action", "peer"], 2),
        (&["--limit", "2"], 2),
        (&["--limit", "0"], 0),
    ] {
        assert_eq!(flows(&machine, filters).len(), count, "{filters:?}");
    }
    let ended = machine.osmia(&["flow", "list", "--node", "192.0.2.99"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("no node has the address 192.0.2.99"), "{}", ended.stderr);
}

#[test]
fn the_last_used_come_first() {
    let machine = Machine::with_rows();
    let idle: Vec<f64> = flows(&machine, &[]).iter().map(|flow| flow["idle"].as_f64().unwrap()).collect();
    assert!(idle.is_sorted(), "{idle:?}");
    let first = &flows(&machine, &["--limit", "1"])[0];
    assert_eq!(first["dst"], "198.51.100.1");
}

#[test]
fn an_entry_of_another_epoch_is_stale() {
    let machine = Machine::with_rows();
    let found = flows(&machine, &["--port", "443"]);
    assert!(found.iter().all(|flow| flow["current"] == false), "{found:?}");
    let text = machine.text(&["flow", "list"]);
    assert_eq!(text.matches("stale").count(), 2, "{text}");
}

#[test]
fn a_line_reads_as_a_sentence() {
    let machine = Machine::with_rows();
    let text = machine.text(&["flow", "list"]);
    let line = |start: &str| {
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.find(|line| line.contains(start)).unwrap_or_else(|| panic!("{start} is not in\n{text}"))
    };
    let out = line("10.1.0.5:53 198.51.100.1:53");
    assert!(out.starts_with("new udp 10.1.0.5:53 198.51.100.1:53 opener #50 uplink #42 src=192.0.2.1:61001"), "{out}");
    let from = line("10.2.0.7:80 10.1.0.5:40000");
    assert!(from.starts_with("established tcp 10.2.0.7:80 10.1.0.5:40000 reply node 3(192.0.2.3) peer #50"), "{from}");
    assert!(line("[fd00:1::5]:40000").contains("443 opener"), "{text}");
    assert!(line("tcp(out)").starts_with("new tcp(out)"), "{text}");
    assert!(text.ends_with("6 shown of 6 that match, 6 entries in the tables\n"), "{text}");
}
