//! `explain`: the verdict is that of the maps, its names those of the catalogue.

use osmia_maps::{
    Access,
    catalogue::{CrowdedOut, Line},
    layout::{Meta, VerdictKey},
    tables,
};
use serde_json::{Value, json};

use crate::fixture::{
    GENERATION, Policed,
    policed::{DB_FROM_WEB, DB_IN, DB_ISOLATED, WEB, allow, deny, key, lines},
};

/// The one packet of a document.
fn only(document: &Value) -> &Value {
    let [packet] = &document["packets"].as_array().unwrap()[..] else { panic!("{document}") };
    packet
}

#[test]
fn an_allowed_packet_names_object_and_rule_at_both_ends() {
    let machine = Policed::new();
    let (code, document) = machine.explain(&["shop/web-0", "shop/db-0", "5432/tcp"]);
    assert_eq!((code, &document["verdict"], &document["stale"]), (0, &json!("allow"), &json!([])), "{document}");
    // The one family that both have.
    let packet = only(&document);
    assert_eq!(
        packet["src"],
        json!({"address": "10.1.0.5", "is": "pod", "slot": 1, "pod": "shop/web-0", "node": null})
    );
    assert_eq!(packet["egress"]["reason"], "shop/web egress[0]: to pods app=db: tcp pg");
    assert_eq!(packet["ingress"]["reason"], "shop/db ingress[0]: from pods app=web: tcp 5432");
    assert_eq!((&packet["ingress"]["rule_set"], &packet["ingress"]["class"]), (&json!(3), &json!(7)));
    assert_eq!(packet["stale"], json!([]), "{packet}");
    let text = machine.text(&["explain", "10.1.0.5", "10.1.0.6", "5432/tcp"]);
    for line in [
        "allowed: tcp 10.1.0.5 -> 10.1.0.6:5432\n",
        "  to   10.1.0.6 (pod shop/db-0 of this node)\n",
        "egress of shop/web-0: allowed\n  by shop/web egress[0]: to pods app=db: tcp pg (rule set 4, class 8, cookie 13)\n",
        "ingress of shop/db-0: allowed\n  by shop/db ingress[0]: from pods app=web: tcp 5432 (rule set 3, class 7, cookie 11)\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn a_denied_packet_names_what_isolates_and_the_nearest_miss() {
    let machine = Policed::new();
    for (src, port, rule, fails) in [
        ("10.1.0.5", "5433/tcp", "shop/db ingress[0]: from pods app=web: tcp 5432", json!(["port"])),
        ("10.1.0.5", "5432/udp", "shop/db ingress[0]: from pods app=web: tcp 5432", json!(["protocol"])),
        ("10.2.0.7", "5432/tcp", "shop/db ingress[0]: from pods app=web: tcp 5432", json!(["peer"])),
        (
            "198.51.100.5",
            "8088/tcp",
            "shop/db ingress[1]: from 198.51.100.0/24 except 198.51.100.66/32: tcp 8080-8087",
            json!(["port"]),
        ),
        (
            "198.51.100.66",
            "8080/tcp",
            "shop/db ingress[1]: from 198.51.100.0/24 except 198.51.100.66/32: tcp 8080-8087",
            json!(["peer"]),
        ),
        // Both rules fail on two: the first by name.
        ("10.2.0.7", "80/tcp", "shop/db ingress[0]: from pods app=web: tcp 5432", json!(["peer", "port"])),
        ("10.2.0.7", "icmp", "shop/db ingress[0]: from pods app=web: tcp 5432", json!(["peer", "protocol"])),
    ] {
        let (code, document) = machine.explain(&[src, "shop/db-0", port]);
        assert_eq!((code, &document["verdict"]), (5, &json!("deny")), "{src} {port}: {document}");
        let ingress = &only(&document)["ingress"];
        assert_eq!(ingress["policies"], json!(["shop/db", "shop/default-deny"]));
        assert_eq!(
            (&ingress["nearest"]["rule"], &ingress["nearest"]["fails_on"]),
            (&json!(rule), &fails),
            "{src} {port}"
        );
        assert_eq!(only(&document)["stale"], json!([]), "{src} {port}: {document}");
    }
    let ended = machine.osmia(&["explain", "10.2.0.7", "shop/db-0", "5432/tcp"]);
    for line in [
        "denied: tcp 10.2.0.7 -> 10.1.0.6:5432\n",
        "egress: judged on node 3(192.0.2.3): run osmia explain there\n",
        "ingress of shop/db-0: denied\n  isolated by shop/db, shop/default-deny (rule set 3, class 0, cookie 10)\n",
        "  10.2.0.7 counts as nobody whom a rule on this node names\n",
        "  nearest: shop/db ingress[0]: from pods app=web: tcp 5432\n           fails on peer 10.2.0.7\n",
    ] {
        assert!(ended.stdout.contains(line), "{line:?} is not in\n{}", ended.stdout);
    }
}

#[test]
fn a_row_written_by_hand_is_followed() {
    let machine = Policed::new();
    let ask = || machine.explain(&["shop/web-0", "shop/db-0", "5432/tcp"]);
    let row = key(DB_IN, WEB, 6, 5432, 0);
    machine.put_verdict(row, deny(DB_ISOLATED));
    let (code, denied) = ask();
    assert_eq!((code, &only(&denied)["ingress"]["verdict"]), (5, &json!("deny")), "{denied}");
    assert_eq!(only(&denied)["egress"]["verdict"], "allow");
    let said = only(&denied)["stale"].to_string();
    assert!(said.contains("by the catalogue a rule allows it: shop/db ingress[0]"), "{said}");

    machine.put_verdict(row, allow(DB_FROM_WEB));
    assert_eq!(ask().0, 0);

    // The other way: what no rule allows.
    assert_eq!(machine.explain(&["shop/web-0", "shop/db-0", "53/udp"]).0, 5);
    machine.put_verdict(VerdictKey::head(DB_IN, WEB), allow(DB_FROM_WEB));
    let (code, allowed) = machine.explain(&["shop/web-0", "shop/db-0", "53/udp"]);
    let said = only(&allowed)["stale"].to_string();
    assert!(code == 0 && said.contains("no such rule allows it: rows and catalogue differ"), "{allowed}");
}

#[test]
fn what_no_rule_is_asked_about_is_said() {
    let machine = Policed::new();
    let told = |arguments: &[&str], code: i32| {
        let (found, document) = machine.explain(arguments);
        assert_eq!(found, code, "{arguments:?}: {document}");
        only(&document).clone()
    };
    let door = told(&["192.0.2.1", "shop/db-0", "80/tcp"], 0);
    assert_eq!(door["ingress"]["freed"], "from a socket of this node: the door rule, a node reaches its own pods");
    assert_eq!(door["src"]["is"], "this_node");
    let forwarded = told(&["192.0.2.1", "shop/db-0", "80/tcp", "--forwarded"], 5);
    assert_eq!(forwarded["ingress"]["freed"], Value::Null);
    let service = told(&["shop/web-0", "10.96.0.10", "80/tcp"], 6);
    assert_eq!((&service["dst"]["is"], &service["ingress"]["judged"]), (&json!("service"), &json!("backend")));
    assert_eq!(
        (&service["egress"]["judged"], &service["egress"]["verdict"]),
        (&json!("backend"), &Value::Null),
        "{service}"
    );
    let itself = told(&["10.1.0.6", "10.1.0.6", "80/tcp"], 0);
    assert!(itself["ingress"]["freed"].as_str().unwrap().contains("a pod reaches itself"), "{itself}");
    let open = told(&["10.1.0.7", "198.51.100.1", "icmp"], 0);
    assert_eq!((&open["egress"]["rule_set"], &open["ingress"]["judged"]), (&Value::Null, &json!("nowhere")));
    // Isolated both ways until its Pod is told.
    let late = told(&["shop/late-0", "10.1.0.7", "80/tcp"], 5);
    assert!(late["egress"]["reason"].as_str().unwrap().starts_with("provisional"), "{late}");
    // Nothing of this is judged here.
    let other = told(&["10.2.0.7", "198.51.100.1", "80/tcp"], 6);
    assert_eq!((&other["verdict"], &other["egress"]["node"]["number"]), (&json!("not_judged"), &json!(3)));
}

/// What a person reads who lost a packet: the first line never says more than this node knows.
#[test]
fn the_first_line_says_no_more_than_is_known_here() {
    let machine = Policed::new();
    let read = |src: &str, dst: &str, port: &str| machine.osmia(&["explain", src, dst, port]).stdout;
    for (src, dst, port, lines) in [
        // Its ingress is another node's.
        (
            "shop/web-0",
            "10.2.0.7",
            "53/udp",
            &[
                "allowed by this node, judged by another as well: udp 10.1.0.5 -> 10.2.0.7:53\n",
                "\ningress: judged on node 3(192.0.2.3): run osmia explain there\n",
            ][..],
        ),
        // A service is chosen by the stack.
        (
            "shop/web-0",
            "10.96.0.10",
            "80/tcp",
            &[
                "not judged before it is translated: tcp 10.1.0.5 -> 10.96.0.10:80\n",
                "\negress of shop/web-0: judged after the translation, on the address and port of the pod behind the service\n",
                "\ningress: judged as that of the pod behind the service: explain its address, with the port that it listens on\n",
            ],
        ),
        (
            "10.1.0.7",
            "10.96.0.10",
            "80/tcp",
            &["\negress of slot 3 (no pod named): allowed\n  its runtime named no pod: no policy is asked\n"],
        ),
        // Nobody has the address: allowed would be half of the truth.
        (
            "shop/web-0",
            "10.1.0.99",
            "53/udp",
            &[
                "allowed by policy, and dropped all the same: udp 10.1.0.5 -> 10.1.0.99:53\n",
                "\nnote: no pod of this node has 10.1.0.99: the packet is dropped (NO_ENDPOINT), whatever policy says\n",
            ],
        ),
        (
            "shop/web-0",
            "10.0.9.1",
            "53/udp",
            &["\nnote: no node has 10.0.9.1 in its ranges: the packet is dropped (UNOWNED)"],
        ),
        (
            "10.1.0.99",
            "shop/db-0",
            "5432/tcp",
            &["\nnote: no pod of this node has 10.1.0.99: a packet from it that comes in"],
        ),
        // Nodes, and pods that are their node.
        (
            "192.0.2.1",
            "shop/db-0",
            "80/tcp",
            &["  from 192.0.2.1 (this node, or a pod with its hostNetwork)\n", "is judged: ask with --forwarded\n"],
        ),
        (
            "shop/web-0",
            "192.0.2.3",
            "53/udp",
            &["\ningress: node 3(192.0.2.3) and pods with its hostNetwork are held to no policy\n"],
        ),
        // Whom the rules take it for.
        (
            "shop/web-0",
            "shop/db-0",
            "5433/tcp",
            &["\n  10.1.0.5 counts as pods app=web\n", "\n           fails on port 5433\n"],
        ),
        ("shop/late-0", "198.51.100.1", "80/tcp", &["\n  provisional: no Pod object was told yet ("]),
    ] {
        let text = read(src, dst, port);
        for line in lines {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }
    // A pod that is not here, or is its node.
    let ended = machine.osmia(&["explain", "shop/elsewhere-0", "shop/db-0", "80/tcp"]);
    for words in ["kubectl get pod -n shop elsewhere-0 -o wide", "hostNetwork is its node: give the node's address"] {
        assert!(ended.status.code() == Some(4) && ended.stderr.contains(words), "{}", ended.stderr);
    }
    // What is said of rows that are behind.
    let behind = Line::Behind { at_ms: 1_796_031_500_000, why: "map verdicts is full".into() };
    machine.write(&lines().into_iter().chain([behind]).collect::<Vec<_>>());
    let text = read("shop/web-0", "shop/db-0", "5432/tcp");
    assert!(
        text.starts_with("allowed: ") && text.contains("refused: map verdicts is full; this is of before\n"),
        "{text}"
    );
}

#[test]
fn both_families_of_two_pods_are_told() {
    let machine = Policed::new();
    let (code, document) = machine.explain(&["shop/web-0", "fd00:2::7", "icmp"]);
    assert_eq!((code, &only(&document)["proto"]), (5, &json!("icmpv6")), "{document}");
    let (code, document) = machine.explain(&["shop/web-0", "shop/web-0", "80/tcp"]);
    assert_eq!((code, document["packets"].as_array().unwrap().len()), (0, 2), "{document}");
    let ended = machine.osmia(&["explain", "shop/db-0", "fd00:2::7", "80/tcp"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("no addresses of one family: 10.1.0.6 and fd00:2::7"), "{}", ended.stderr);
}

#[test]
fn without_names_the_verdict_stands_and_what_is_missing_is_said() {
    let machine = Policed::new();
    let ended = machine.osmia(&["explain", "shop/nobody", "10.1.0.6", "80/tcp"]);
    assert_eq!(ended.status.code(), Some(4));
    assert!(ended.stderr.contains("no pod of this node is called shop/nobody"), "{}", ended.stderr);

    let without = |gone: Line, words: &str| {
        let lines: Vec<Line> = lines().into_iter().chain([gone]).collect();
        machine.write(&lines);
        let (code, document) = machine.explain(&["10.1.0.5", "10.1.0.6", "5433/tcp"]);
        let said = only(&document)["stale"].to_string();
        assert!(code == 5 && said.contains(words), "{words}: {document}");
    };
    let gone = |classes: &[u32], sets: &[u32], cookies: &[u32]| Line::Gone {
        atoms: vec![],
        classes: classes.to_vec(),
        sets: sets.to_vec(),
        cookies: cookies.to_vec(),
    };
    without(gone(&[], &[], &[DB_ISOLATED]), "ingress: the catalogue does not know cookie 10");
    without(gone(&[], &[DB_IN], &[]), "ingress: the catalogue does not know rule set 3");
    without(gone(&[WEB], &[], &[]), "ingress: the catalogue does not know class 7");

    machine.forget();
    let (code, document) = machine.explain(&["10.1.0.5", "10.1.0.6", "5432/tcp"]);
    assert_eq!(code, 0, "{document}");
    assert!(document["stale"][0].as_str().unwrap().starts_with("no names: "), "{document}");
    let ended = machine.osmia(&["explain", "shop/web-0", "10.1.0.6", "80/tcp"]);
    assert!(ended.status.code() == Some(4) && ended.stderr.contains("no names: "), "{}", ended.stderr);
}

#[test]
fn another_generation_of_the_catalogue_is_said() {
    let machine = Policed::new();
    machine.inside(|pins| {
        let table = tables::META.open(pins, Access::ReadWrite).unwrap();
        let row = table.get(&0).unwrap().unwrap();
        table.put(&0, &Meta { catalogue: GENERATION + 1, ..row }).unwrap();
    });
    let (code, document) = machine.explain(&["10.1.0.5", "10.1.0.6", "5432/tcp"]);
    assert_eq!(code, 0);
    assert_eq!(
        document["stale"],
        json!(["the maps are of catalogue generation 13, the catalogue of 12: names may be missing"])
    );
    let text = machine.text(&["policy", "list"]);
    assert!(text.starts_with("? the maps are of catalogue generation 13"), "{text}");
}

#[test]
fn an_address_that_has_no_room_is_said() {
    let machine = Policed::new();
    let ask = |lowest: [u8; 4]| {
        let now = Some(CrowdedOut { addresses: 3, lowest: lowest.into() });
        machine.write(&lines().into_iter().chain([Line::CrowdedOut { now }]).collect::<Vec<_>>());
        only(&machine.explain(&["10.2.0.7", "shop/db-0", "5432/tcp"]).1)["stale"].to_string()
    };
    let said = ask([10, 2, 0, 7]);
    assert!(said.contains("10.2.0.7 is no pod to the rules of this node, whatever they say: 3 addresses"), "{said}");
    assert!(!ask([10, 2, 0, 8]).contains("no room"), "lower addresses have");
}
