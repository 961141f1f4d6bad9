use super::super::testing::{Numbers, context, json};
use super::*;

fn entry() -> FlowEntry {
    FlowEntry {
        hook: 12,
        target: 3,
        action: FlowAction::Tunnel as u8,
        flags: F_OPENER | F_REPLIED,
        tcp: T_SYN | T_SYN_ACK | T_ESTABLISHED,
        mtu: 1450,
        src_slot: 5,
        src_epoch: 7,
        route_gen: 9,
        last_seen: 900,
        packets: 10,
        bytes: 1000,
        created: 0,
        replied: 500,
        ..FlowEntry::default()
    }
}

#[test]
fn an_entry_is_shown_by_names_and_ages() {
    assert_eq!(
        value(&entry(), &context()).to_string(),
        "hook=pod hook_device=#12 action=tunnel node=3(192.168.0.3) flags=opener,replied tcp=syn,syn_ack,established mtu=1450 \
         packets=10 bytes=1000 age=16.0s replied=8.0s idle=1.6s src_slot=5 src_epoch=7 route_generation=9"
    );
}

#[test]
fn json_has_every_field_whatever_the_action() {
    let names = |entry: &FlowEntry| value(entry, &context()).iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(&entry()), names(&FlowEntry::default()));
    let text = json(&value(&entry(), &context()));
    assert!(text.contains(r#""node":{"number":3,"address":"192.168.0.3"}"#), "{text}");
    assert!(text.contains(r#""device":null"#), "{text}");
    assert!(text.contains(r#""idle":1.6"#), "{text}");
}

#[test]
fn rewrites_are_shown_only_where_they_are_done() {
    let mut entry = FlowEntry {
        new_src: Addr::v4([1, 2, 3, 4]),
        new_sport: 61000_u16.to_be_bytes(),
        new_dst: Addr::v4([5, 6, 7, 8]),
        action: FlowAction::Uplink as u8,
        target: 2,
        hook: HOOK_UPLINK,
        ..FlowEntry::default()
    };
    assert!(!value(&entry, &context()).to_string().contains("new_"));
    entry.flags = F_REWRITE_SRC;
    let text = value(&entry, &context()).to_string();
    assert!(text.contains("new_src=1.2.3.4 new_sport=61000"), "{text}");
    assert!(!text.contains("new_dst"), "{text}");
    assert!(text.starts_with("hook=uplink action=uplink device=#2 "), "{text}");
}

#[test]
fn bytes_no_program_writes_are_shown_as_they_are() {
    let entry = FlowEntry { action: 99, flags: 0xff, tcp: 0xff, target: 0xabc, hook: u32::MAX, ..FlowEntry::default() };
    let text = value(&entry, &context()).to_string();
    assert!(text.contains("action=unknown(99) device=0xabc "), "{text}");
    assert!(
        text.contains("flags=opener,replied,rewrite_src,rewrite_dst,node_socket,no_hop,held,opposite_out"),
        "{text}"
    );
    assert!(text.contains("tcp=syn,syn_ack,established,fin,fin_peer,rst,0xc0"), "{text}");
    assert!(text.contains("hook=pod hook_device=#4294967295"), "{text}");
}

#[test]
fn a_number_without_a_row_is_no_node() {
    let entry = FlowEntry { action: FlowAction::Native as u8, target: 77, ..FlowEntry::default() };
    assert!(value(&entry, &context()).to_string().contains("node=77(no row)"));
    assert_eq!(node_of(&entry), 77);
    assert_eq!(node_of(&FlowEntry { action: FlowAction::Peer as u8, target: 12, from_node: 3, ..entry }), 3);
}

#[test]
fn any_bytes_decode() {
    let mut numbers = Numbers::new();
    for _ in 0..2000 {
        let entry = FlowEntry {
            hook: numbers.next() as u32,
            target: numbers.next() as u32,
            action: numbers.next() as u8,
            flags: numbers.next() as u8,
            tcp: numbers.next() as u8,
            zero0: numbers.next() as u8,
            mtu: numbers.next() as u16,
            from_node: numbers.next() as u16,
            src_slot: numbers.next() as u32,
            src_epoch: numbers.next() as u32,
            dst_slot: numbers.next() as u32,
            dst_epoch: numbers.next() as u32,
            route_gen: numbers.next() as u32,
            last_seen: numbers.next() as u32,
            packets: numbers.next(),
            bytes: numbers.next(),
            created: numbers.next() as u32,
            egress_cookie: numbers.next() as u32,
            ingress_cookie: numbers.next() as u32,
            new_sport: numbers.bytes(),
            new_dport: numbers.bytes(),
            new_src: Addr(numbers.bytes()),
            new_dst: Addr(numbers.bytes()),
            next_hop: Addr(numbers.bytes()),
            replied: numbers.next() as u32,
            reserved: numbers.bytes(),
        };
        let record = value(&entry, &context());
        assert!(!record.to_string().is_empty());
        assert!(serde_json::from_str::<serde_json::Value>(&json(&record)).unwrap().is_object());
    }
}

#[test]
fn keys_come_back_from_their_text() {
    let mut numbers = Numbers::new();
    for _ in 0..500 {
        let key = FlowKey4 {
            src: numbers.bytes(),
            dst: numbers.bytes(),
            sport: numbers.bytes(),
            dport: numbers.bytes(),
            proto: numbers.next() as u8,
            zone: numbers.next() as u8 & 1,
            zero: [0; 2],
        };
        assert_eq!((FLOW4.parse)(&(FLOW4.text)(&key), &context()), Ok(key));
        let key = FlowKey6 {
            src: numbers.bytes(),
            dst: numbers.bytes(),
            sport: numbers.bytes(),
            dport: [0; 2],
            proto: numbers.next() as u8,
            zone: numbers.next() as u8 & 1,
            zero: [0; 2],
        };
        assert_eq!((FLOW6.parse)(&(FLOW6.text)(&key), &context()), Ok(key));
    }
    assert!((FLOW4.parse)("tcp [fd00::1]:80 [fd00::2]:1", &context()).unwrap_err().contains("flow6"));
    assert!((FLOW6.parse)("tcp 10.0.0.1:80 10.0.0.2:1", &context()).unwrap_err().contains("flow4"));
    assert!((FLOW4.parse)("tcp 10.0.0.1:80", &context()).is_err());
}

#[test]
fn the_key_of_the_examples_is_one() {
    assert!((FLOW4.parse)(FLOW4.example, &context()).is_ok());
    assert!((FLOW6.parse)(FLOW6.example, &context()).is_ok());
}

#[test]
fn an_entry_is_current_while_its_epochs_hold() {
    let mut epochs = [0; 8];
    epochs[0] = 9;
    epochs[5] = 7;
    assert!(is_current(&entry(), &epochs));
    epochs[5] = 8;
    assert!(!is_current(&entry(), &epochs), "the source's epoch");
    epochs[5] = 7;
    epochs[0] = 10;
    assert!(!is_current(&entry(), &epochs), "the route generation");
    assert!(!is_current(&FlowEntry { src_slot: u32::MAX, ..entry() }, &epochs), "a slot beyond the table");
    assert!(!is_current(&entry(), &[]));
}
