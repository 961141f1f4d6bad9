//! `status`: what is said of a node, and what is wrong with it.

use std::fs;

use aya::{
    EbpfLoader,
    programs::{
        LinkOrder, SchedClassifier,
        links::FdLink,
        tc::{TcAttach, TcAttachType},
    },
};
use osmia_maps::{
    Access, Pins,
    layout::{FlowEntry, LAYOUT, Stat, maps, programs},
    pins::DEFAULT_ROOT,
    tables,
};
use serde_json::{Value, json};

use crate::fixture::{Machine, count, flow4};

fn problems(status: &Value) -> Vec<&str> {
    status["problems"].as_array().unwrap().iter().map(|problem| problem["text"].as_str().unwrap()).collect()
}

#[test]
fn a_node_is_described() {
    let machine = Machine::with_rows();
    let (code, status) = machine.status(&[]);
    assert_eq!(code, 7, "no program runs");
    for (path, value) in [
        ("/layout", json!(LAYOUT)),
        ("/layouts_pinned", json!([LAYOUT])),
        ("/bpffs", json!(DEFAULT_ROOT)),
        ("/agent/version", json!("0.1.0-cli")),
        ("/programs/object", json!("00000000000000ab")),
        ("/clock", json!({"hz": 250, "tick_shift": 2, "tick": 0.016})),
        ("/catalogue", json!(12)),
        ("/config/node4", json!("192.0.2.1")),
        ("/config/door_host", json!({"ifindex": 40, "name": "osmia0"})),
        ("/config/tunnel_device", json!({"ifindex": 43, "name": null})),
        ("/devices_named", json!(true)),
        ("/route_generation", json!(9)),
        ("/epochs", json!({"in_use": 2, "highest": 8})),
        ("/endpoints", json!({"present": 2, "ready": 1})),
        ("/nodes", json!({"tunnel": 1, "native": 0})),
        ("/drops", json!({"packets": 4, "bytes": 360, "reasons": 2})),
        ("/uplinks/0/device/ifindex", json!(42)),
    ] {
        assert_eq!(status.pointer(path), Some(&value), "{path}");
    }
    let loaded = status["programs"]["loaded_ago"].as_f64().unwrap();
    assert!((5.0..600.0).contains(&loaded), "{loaded}");
    assert_eq!(status["maps"].as_array().unwrap().len(), tables::NAMES.len());

    let text = machine.osmia(&["status"]).stdout;
    for line in [
        "  agent      0.1.0-cli",
        "  clock      250 Hz, a tick is 16 ms",
        "  door       osmia0(40) osmia1(41)",
        "  tunnel     #43, port 4789, VNI 1",
        "  epochs     route generation 9, 2 endpoint epochs, highest 8",
        "  endpoints  2, 1 ready",
        "? endpoints not ready, by slot: 2",
    ] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line:?} is not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours in a file");
}

#[test]
fn what_is_wrong_is_said() {
    let machine = Machine::with_rows();
    let (_, before) = machine.status(&[]);
    assert!(problems(&before).iter().any(|text| text.starts_with("the agent is not running")), "{before}");
    assert!(
        problems(&before).contains(&"no pinned link is attached: no program runs, or only as clsact filters"),
        "{before}"
    );

    fs::write(machine.run.join("heartbeat"), "").unwrap();
    machine.inside(|pins| {
        count(pins, Stat::FlowTableFull, 3);
        fs::remove_file(pins.map(maps::FRAGMENTS)).unwrap();
        fs::create_dir_all(Pins::of_layout(DEFAULT_ROOT, LAYOUT + 1).folder()).unwrap();
        let rows: Vec<_> = (0..62).map(|i| (flow4([1; 4], i, [2; 4], 0, 17), FlowEntry::default())).collect();
        tables::FLOW4.open(pins, Access::ReadWrite).unwrap().put_all(&rows).unwrap();
        let row = osmia_maps::layout::Route { kind: 3, zero: 0, node: 99 };
        let key = osmia_maps::layout::RouteKey { bits: 104, addr: osmia_maps::layout::Addr::v4([77, 0, 0, 0]).0 };
        tables::ROUTES.open(pins, Access::ReadWrite).unwrap().put(&key, &row).unwrap();
    });
    let (_, after) = machine.status(&[]);
    let said = problems(&after);
    for text in [
        "3 times a flow stayed on probation since the established table was full",
        "map fragments is not pinned",
        "map flow4 is full (64 rows): new IPv4 flows stay on probation",
        "routes lead to nodes without a row: 99",
    ] {
        assert!(said.contains(&text), "{text:?} is not in {said:?}");
    }
    assert!(said.iter().any(|text| text.starts_with(&format!("layout {} is pinned as well", LAYOUT + 1))), "{said:?}");
    assert!(!said.iter().any(|text| text.starts_with("the agent")), "{said:?}");
    assert!(after["agent"]["heartbeat"].as_f64().unwrap() < 30.0);
}

#[test]
fn links_are_shown_until_their_device_is_gone() {
    let machine = Machine::with_rows();
    machine.inside(|pins| {
        let object = std::env::var_os("OSMIA_OBJECT").unwrap();
        let mut loader = EbpfLoader::new();
        for name in tables::NAMES {
            loader.map_max_entries(name, 1);
        }
        let mut object = loader.load_file(object).unwrap();
        let program: &mut SchedClassifier = object.program_mut(programs::CLOCK).unwrap().try_into().unwrap();
        program.load().unwrap();
        // Any program will do: what counts is the pin.
        let order = TcAttach::Tcx { attach_type: TcAttachType::Egress, order: LinkOrder::default() };
        let link = program.attach(40, order).unwrap();
        let link: FdLink = program.take_link(link).unwrap().try_into().unwrap();
        link.pin(pins.link(programs::TO_DOOR.name, 40)).unwrap();
    });
    let (_, status) = machine.status(&[]);
    assert_eq!(status["links"][0]["device"], json!({"ifindex": 40, "name": "osmia0"}));
    assert_eq!(
        (&status["links"][0]["program"], &status["links"][0]["state"]),
        (&json!("osm_to_door"), &json!("attached"))
    );
    assert!(status["links"][0]["program_id"].is_u64());
    let said = problems(&status);
    assert!(said.contains(&"osm_from_door is not attached to osmia1(41)"), "{said:?}");
    assert!(!said.iter().any(|text| text.contains("osm_to_door")), "{said:?}");
    let text = machine.osmia(&["status"]).stdout;
    assert!(text.lines().any(|line| line.starts_with("osmia0(40)  osm_to_door")), "{text}");

    machine.space.ip("link del osmia0").unwrap();
    let (_, status) = machine.status(&[]);
    assert_eq!(status["links"][0]["state"], "detached");
    let said = problems(&status);
    assert!(said.contains(&"the link of osm_to_door is pinned for #40, which is gone"), "{said:?}");
    assert!(said.iter().any(|text| text.starts_with("no pinned link is attached")), "{said:?}");
}
