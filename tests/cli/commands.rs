//! `map`, `endpoint` and `drop` on known rows.

use osmia_maps::tables;
use serde_json::{Value, json};

use crate::fixture::Machine;

fn age(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no age"))
}

#[test]
fn every_row_of_every_map_comes_back_by_its_key() {
    let machine = Machine::with_rows();
    for name in tables::NAMES {
        let dump = machine.json(&["map", "dump", name]);
        assert_eq!(dump["map"], name);
        let rows = dump["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{name} has no row to try");
        for row in rows {
            let key = row["key_text"].as_str().unwrap();
            let got = machine.json(&["map", "get", name, key]);
            assert_eq!(got["key"], row["key"], "{name} {key}");
            // Ages go on between the two, and one row of counters has its CPUs as well.
            let value = row["value"].as_object().unwrap();
            for (field, expected) in value.iter().filter(|(_, value)| !value.is_f64()) {
                assert_eq!(got["value"][field], *expected, "{name} {key} {field}");
            }
        }
        let text = machine.text(&["map", "dump", name]);
        assert_eq!(text.lines().count(), rows.len() + 1, "{text}");
    }
}

#[test]
fn a_route_is_the_longest_that_covers() {
    let machine = Machine::with_rows();
    let get = |key: &str| machine.json(&["map", "get", "routes", key]);
    let far = get("10.2.0.7");
    assert_eq!(far["key"]["prefix"], "10.2.0.0/24");
    assert_eq!(far["value"], json!({"kind": "remote_block", "node": {"number": 3, "address": "192.0.2.3"}}));
    assert_eq!(get("10.0.77.1")["value"]["kind"], "unowned");
    assert_eq!(get("192.0.2.3")["key"]["prefix"], "192.0.2.3/32");
    assert_eq!(machine.osmia(&["map", "get", "routes", "10.9.0.1"]).status.code(), Some(4));
}

#[test]
fn the_words_of_a_key_need_no_quotes() {
    let machine = Machine::with_rows();
    let entry = machine.json(&["map", "get", "flow4", "tcp", "10.1.0.5:40000", "10.2.0.7:80"]);
    assert_eq!(entry["key_text"], "tcp 10.1.0.5:40000 10.2.0.7:80");
    let text = machine.text(&["map", "get", "flow4", "tcp 10.1.0.5:40000 10.2.0.7:80"]);
    assert!(text.contains("node              3(192.0.2.3)\n"), "{text}");
    let zone = machine.json(&["map", "get", "flow6_new", "tcp", "[fd00:1::5]:40000", "[fd00:2::7]:443", "1"]);
    assert_eq!(zone["key"]["zone"], 1);
}

#[test]
fn counters_are_summed_over_the_cpus() {
    let machine = Machine::with_rows();
    let row = machine.json(&["map", "get", "stats", "forward_peer"]);
    assert_eq!(row["value"]["count"], 1000);
    let cpus = row["value"]["per_cpu"].as_array().unwrap();
    assert_eq!(cpus.last().unwrap()["count"], 1000);
    assert_eq!(machine.json(&["map", "get", "drops", "unowned"])["value"]["packets"], 3);
}

#[test]
fn the_list_of_maps_has_sizes() {
    let machine = Machine::with_rows();
    let list = machine.json(&["map", "list"]);
    let maps = list["maps"].as_array().unwrap();
    assert_eq!(maps.len(), tables::NAMES.len());
    let flow4 = maps.iter().find(|map| map["map"] == "flow4").unwrap();
    assert_eq!((flow4["used"].as_u64(), flow4["max"].as_u64()), (Some(2), Some(64)));
    assert_eq!((&flow4["kind"], &flow4["value_size"]), (&json!("hash"), &json!(128)));
    assert!(flow4["memory"].as_u64().unwrap() > 64 * 128, "{flow4}");
    let nodes = maps.iter().find(|map| map["map"] == "nodes").unwrap();
    assert_eq!(nodes["used"], 1, "unused rows of an array do not count");
}

#[test]
fn endpoints_have_names_and_numbers() {
    let machine = Machine::with_rows();
    let list = machine.json(&["endpoint", "list", "--traffic"]);
    let [a, b] = &list["endpoints"].as_array().unwrap()[..] else { panic!("{list}") };
    assert_eq!((&a["slot"], &a["v4"], &a["v6"]), (&json!(1), &json!("10.1.0.5"), &json!("fd00:1::5")));
    assert_eq!((&a["mac"], &a["ready"], &a["epoch"]), (&json!("02:00:00:00:00:32"), &json!(true), &json!(7)));
    assert_eq!((&a["flows"], &a["egress_rules"]), (&json!(2), &Value::Null));
    // Slot 1 is the source of four entries and the destination of two, ten packets each.
    assert_eq!((&a["sent_packets"], &a["received_packets"]), (&json!(40), &json!(20)));
    assert_eq!((&b["v4"], &b["v6"], &b["ready"]), (&json!("10.1.0.6"), &Value::Null, &json!(false)));
    let text = machine.text(&["endpoint", "list"]);
    assert!(text.starts_with("SLOT  DEVICE  V4 "), "{text}");
    assert!(!text.contains("EGRESS RULES"), "a column that is empty in all rows: {text}");
}

#[test]
fn drops_have_reasons_addresses_and_ages() {
    let machine = Machine::with_rows();
    let drops = machine.json(&["drop"]);
    assert_eq!(
        drops["reasons"],
        json!([{"reason": "UNOWNED", "packets": 3, "bytes": 300}, {"reason": "MULTICAST", "packets": 1, "bytes": 60}])
    );
    let rows = drops["rows"].as_array().unwrap();
    assert_eq!(rows[0]["reason"], "MULTICAST", "the last one first");
    assert_eq!(
        (&rows[1]["src"], &rows[1]["dst"], &rows[1]["dport"]),
        (&json!("10.1.0.5"), &json!("10.9.9.9"), &json!(25))
    );
    let (first, last) = (age(&rows[1]["first"]), age(&rows[1]["last"]));
    assert!((20.0..30.0).contains(&first) && (10.0..20.0).contains(&last), "{first} {last}");
    let one = machine.json(&["drop", "--reason", "unowned"]);
    assert_eq!((one["reasons"].as_array().unwrap().len(), one["rows"].as_array().unwrap().len()), (1, 1));
    assert_eq!(machine.json(&["drop", "--limit", "0"])["rows"], json!([]));
    let text = machine.text(&["drop"]);
    assert!(text.contains("UNOWNED          3  300 B"), "{text}");
    assert!(text.contains("the last 2 of 2 flows"), "{text}");
}
