use std::time::Duration;

use osmia_maps::{
    Standing,
    decode::{Context, catalogue},
    facts::{Facts, PinnedLink},
    layout::{Config, Endpoint, LAYOUT, Meta, Uplink, drops::DropCount, endpoint::E_PRESENT, endpoint::E_READY},
};

use super::{super::heartbeat::Heartbeat, *};
use crate::command::map::Size;

const POD: u32 = 12;
const UPLINK: u32 = 2;

fn link(program: Attached, ifindex: u32) -> PinnedLink {
    PinnedLink { program: program.name.to_owned(), ifindex, state: Some(LinkState::Attached(7)) }
}

/// A node with one pod on which nothing is wrong.
fn well() -> Seen {
    let config = Config { door_host: 4, door_pods: 3, tunnel_dev: 5, ..Config::default() };
    let facts =
        Facts { id: 1, kind: "hash", key_size: 16, value_size: 128, max: 1000, memory: Some(4096), evicts: false };
    Seen {
        context: Context::of(Meta { hz: 250, ..Meta::default() }, Some(config), 0, []),
        layouts: vec![LAYOUT],
        beside: Vec::new(),
        heartbeat: Some(Heartbeat { path: "/run/osmia/heartbeat".into(), age: Some(Duration::from_secs(3)) }),
        generations: vec![1],
        tcx: true,
        links: vec![
            link(programs::FROM_UPLINK, UPLINK),
            link(programs::TO_UPLINK, UPLINK),
            link(programs::FROM_DOOR, 3),
            link(programs::TO_DOOR, 4),
            link(programs::FROM_TUNNEL_DEVICE, 5),
            link(programs::FROM_POD, POD),
            link(programs::TO_POD, POD),
        ],
        sizes: catalogue::ALL.map(|view| Size { name: view.name(), about: "", seen: Some((facts, 10)) }).into(),
        epochs: vec![9, 0, 4],
        endpoints: vec![(2, Endpoint { ifindex: POD, flags: E_PRESENT | E_READY, ..Endpoint::default() })],
        uplinks: vec![(UPLINK, Uplink::default())],
        tunnel_nodes: 1,
        native_nodes: 0,
        lost_nodes: BTreeSet::new(),
        drops: vec![(DropReason::Malformed as u8, DropCount { packets: 5, bytes: 100 })],
        stats: vec![0; 64],
        policy: None,
    }
}

/// What is said once `change` was made: red lines start with `!`.
fn said(change: impl FnOnce(&mut Seen)) -> Vec<String> {
    let mut seen = well();
    change(&mut seen);
    find(&seen).into_iter().map(|problem| format!("{}{}", if problem.bad { "!" } else { "?" }, problem.text)).collect()
}

#[test]
fn nothing_is_said_where_nothing_is_wrong() {
    assert_eq!(said(|_| {}), [""; 0]);
    assert_eq!(said(|seen| seen.heartbeat = None), [""; 0], "nobody said where the agent would be");
}

#[test]
fn a_silent_agent_is_said() {
    let silent = said(|seen| seen.heartbeat.as_mut().unwrap().age = Some(Duration::from_secs(90)));
    assert_eq!(silent, ["!the agent has been silent for 1m30s; packets of known pods flow on"]);
    let gone = said(|seen| seen.heartbeat.as_mut().unwrap().age = None);
    assert_eq!(gone, ["!the agent is not running: there is no /run/osmia/heartbeat; packets of known pods flow on"]);
}

#[test]
fn a_hook_without_its_program_is_said() {
    let without = |program: Attached| said(move |seen| seen.links.retain(|link| link.program != program.name));
    assert_eq!(without(programs::TO_POD), ["!osm_to_pod is not attached to #12"]);
    assert_eq!(without(programs::FROM_UPLINK), ["!osm_from_uplnk is not attached to #2"]);
    assert_eq!(without(programs::TO_DOOR), ["!osm_to_door is not attached to #4"]);
    assert_eq!(without(programs::FROM_DOOR), ["!osm_from_door is not attached to #3"]);
    assert_eq!(without(programs::FROM_TUNNEL_DEVICE), ["!osm_from_tundev is not attached to #5"]);
    assert_eq!(
        said(|seen| seen.links.clear()),
        ["!no pinned link is attached: no program runs, or only as clsact filters"]
    );
    let old_kernel = said(|seen| {
        seen.links.clear();
        seen.tcx = false;
    });
    assert_eq!(old_kernel, [""; 0]);
}

#[test]
fn a_link_whose_device_is_gone_does_not_count_as_attached() {
    let said = said(|seen| seen.links[5].state = Some(LinkState::Detached));
    assert_eq!(
        said,
        ["!osm_from_pod is not attached to #12", "?the link of osm_from_pod is pinned for #12, which is gone"]
    );
}

#[test]
fn full_and_missing_maps_are_said() {
    let used = |used| {
        said(move |seen| {
            seen.sizes
                .iter_mut()
                .filter(|size| size.name == FLOW4)
                .for_each(|size| size.seen.as_mut().unwrap().1 = used);
        })
    };
    assert_eq!(used(899), [""; 0]);
    assert_eq!(used(900), ["?map flow4 is nearly full: 900 of 1000 rows"]);
    assert_eq!(used(1000), ["!map flow4 is full (1000 rows): new IPv4 flows stay on probation"]);
    assert_eq!(said(|seen| seen.sizes[0].seen = None), ["!map meta is not pinned"]);
}

#[test]
fn counters_of_trouble_are_said_and_others_are_not() {
    let counted = said(|seen| {
        seen.stats[Stat::FlowTableFull as usize] = 3;
        seen.stats[Stat::FlowOpened as usize] = 1_000_000;
        seen.drops.push((DropReason::Program as u8, DropCount { packets: 7, bytes: 0 }));
    });
    assert_eq!(
        counted,
        [
            "!3 times a flow stayed on probation since the established table was full",
            "!7 packets dropped as PROGRAM: a part of the program set is missing; a start of the agent repairs it",
        ]
    );
}

#[test]
fn ways_that_lead_nowhere_are_said() {
    let no_tunnel = said(|seen| {
        seen.context.config.as_mut().unwrap().tunnel_dev = 0;
    });
    assert_eq!(no_tunnel, ["!nodes are reached through the tunnel, and there is no tunnel device"]);
    assert_eq!(said(|seen| seen.lost_nodes.extend([3, 9])), ["!routes lead to nodes without a row: 3, 9"]);
    assert_eq!(said(|seen| seen.uplinks.clear()), ["!there is no uplink: nothing leaves this node"]);
    let not_ready = said(|seen| seen.endpoints[0].1.flags = E_PRESENT);
    assert_eq!(not_ready, ["?endpoints not ready, by slot: 2"]);
}

/// Another layout's folder beside ours.
fn beside(meta: Option<Meta>, links: usize) -> Standing {
    Standing { layout: LAYOUT + 1, meta, links }
}

#[test]
fn of_two_layouts_it_is_said_which_is_in_force() {
    let filling = said(|seen| seen.beside.push(beside(None, 0)));
    assert!(filling[0].contains("not in force, this layout is;"), "{filling:?}");
    let moving = said(|seen| seen.beside.push(beside(Some(Meta::default()), 3)));
    assert!(moving[0].contains("run on 3 links, this layout's on"), "{moving:?}");
}

#[test]
fn bad_ones_come_first() {
    let said = said(|seen| {
        seen.beside.push(beside(None, 0));
        seen.uplinks.clear();
    });
    assert!(said[0].starts_with('!') && said[1].starts_with('?'), "{said:?}");
}
