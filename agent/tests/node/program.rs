//! The dataplane's pins and rows, with the real kernel: what a start adopts, replaces, refuses and leaves behind.

use std::{collections::BTreeSet, fs};

use osmia_agent::{
    clock::SystemClock,
    compile::Desired,
    model::Exit,
    program::{Attaching, Dataplane, OBJECT, OpenError, Options, ProgramLog},
};
use osmia_maps::{
    Access, LayoutError, Pins,
    layout::{
        Addr, Config, Endpoint, FlowEntry, FlowKey4, Node, Route, RouteKey, Uplink, endpoint::E_PRESENT,
        flow::F_OPENER, meta, node::N_PRESENT, programs,
    },
    sys::pinned_link_info,
    tables,
};

use crate::space;

fn options() -> Options {
    Options {
        pins: Pins::new(space::root()),
        mark: programs::DEFAULT_MARK,
        flow_memory: 2 << 20,
        attaching: Attaching::Auto,
        log: ProgramLog::Off,
    }
}

fn open(options: &Options) -> Dataplane {
    Dataplane::open(options, OBJECT, &SystemClock).unwrap_or_else(|e| panic!("{e:?}"))
}

fn node(last: u8) -> Node {
    Node {
        flags: N_PRESENT,
        uplink: 1,
        mtu: 1450,
        zero: [0; 6],
        tunnel: Addr::v4([192, 0, 2, last]),
        next_hop4: Addr::NONE,
        next_hop6: Addr::NONE,
        next_hop_tunnel: Addr::NONE,
        outer: [0; 72],
    }
}

fn route(third: u8) -> RouteKey {
    RouteKey { bits: 96 + 24, addr: Addr::v4([10, 0, third, 0]).0 }
}

/// An uplink `up0`, a door, two nodes with a block each.
fn desired() -> Desired {
    let mut desired = Desired::default();
    let (up, door) = (space::ifindex("up0"), space::ifindex("door0"));
    desired.config = Config { door_host: door, mark: 1 << 24, ..Config::default() };
    desired.uplinks.insert(up, Uplink { mtu: 1500, ..Uplink::default() });
    for number in [1, 2] {
        desired.nodes.insert(number, node(number as u8));
        desired.routes.insert(route(number as u8), Route { kind: 3, zero: 0, node: number });
    }
    desired
}

fn devices() {
    space::ip("link add up0 type veth peer name up1");
    space::ip("link add door0 type veth peer name door1");
}

fn pinned_links(pins: &Pins) -> BTreeSet<String> {
    fs::read_dir(pins.links()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

fn jump_tables(pins: &Pins) -> Vec<String> {
    let names = fs::read_dir(pins.folder()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|n| Pins::progs_start(n).is_some()).collect()
}

#[test]
fn a_second_start_adopts_rows_and_replaces_programs_on_the_same_links() {
    space::enter();
    devices();
    let options = options();
    let pins = &options.pins;
    let up = space::ifindex("up0");

    let mut first = open(&options);
    let meta = pins.check().unwrap();
    assert_eq!(meta.magic, meta::MAGIC);
    let applied = first.apply(&desired()).unwrap();
    assert_eq!(applied.rows, 6);
    assert_eq!(first.apply(&desired()).unwrap().rows, 0);
    let pin = pins.link(programs::FROM_UPLINK.name, up);
    let before = pinned_link_info(&pin).unwrap();
    assert_eq!(before.ifindex, up);
    drop(first);
    assert_eq!(pinned_link_info(&pin).unwrap(), before, "the programs run on without the agent");

    let mut second = open(&options);
    let after = pinned_link_info(&pin).unwrap();
    assert_eq!(after.id, before.id, "the link was replaced instead of its program");
    assert_ne!(after.program, before.program, "the old program still runs");
    let again = second.apply(&desired()).unwrap();
    assert_eq!(again.rows, 0, "rows that are there were written again");
    assert!(again.generation > applied.generation, "the route generation did not go on");
    assert_eq!(jump_tables(pins).len(), 1);
    assert_eq!(second.nodes().unwrap(), desired().nodes);
}

#[test]
fn rows_and_programs_that_are_not_wanted_any_more_go() {
    space::enter();
    devices();
    let options = options();
    open(&options).apply(&desired()).unwrap();

    // By an agent that has not written them itself.
    let mut less = desired();
    let up = space::ifindex("up0");
    less.uplinks.clear();
    less.nodes.remove(&2);
    less.routes.remove(&route(2));
    let mut dataplane = open(&options);
    let applied = dataplane.apply(&less).unwrap();
    assert_eq!(applied.rows, 3);
    assert_eq!(dataplane.nodes().unwrap(), less.nodes);
    assert_eq!(tables::ROUTES.open(&options.pins, Access::ReadOnly).unwrap().dump().unwrap(), less.routes);
    assert_eq!(tables::UPLINKS.open(&options.pins, Access::ReadOnly).unwrap().dump().unwrap(), less.uplinks);
    assert!(!pinned_links(&options.pins).iter().any(|n| n.ends_with(&format!("-{up}"))));
    assert!(pinned_links(&options.pins).iter().any(|n| n.starts_with("osm_to_door-")));
}

#[test]
fn another_route_of_the_kernel_is_another_generation() {
    space::enter();
    devices();
    let mut dataplane = open(&options());
    let first = dataplane.apply(&desired()).unwrap();
    assert_eq!(dataplane.apply(&desired()).unwrap().generation, first.generation);
    let exit = |metric| Exit { table: 254, to: None, family: 4, metric, kind: 1, hops: vec![(1, None)] };
    for metric in [100, 200] {
        let before = dataplane.apply(&Desired { exits: vec![exit(metric - 1)], ..desired() }).unwrap();
        let moved = dataplane.apply(&Desired { exits: vec![exit(metric)], ..desired() }).unwrap();
        assert_eq!((moved.rows, moved.generation > before.generation), (0, true));
    }
}

/// A link's pin that can not be opened stands for a device that refuses: the others get their programs, and flows learn of the new rows.
#[test]
fn a_device_that_refuses_its_program_holds_neither_the_others_nor_the_generation_back() {
    space::enter();
    devices();
    space::ip("link add aa0 type veth peer name aa1");
    let options = options();
    let pins = &options.pins;
    let mut dataplane = open(&options);
    let first = dataplane.apply(&desired()).unwrap();

    let mut more = desired();
    let (refusing, last) = (space::ifindex("aa0"), space::ifindex("aa1"));
    more.uplinks.extend([refusing, last].map(|ifindex| (ifindex, Uplink { mtu: 1500, ..Uplink::default() })));
    more.routes.insert(route(3), Route { kind: 3, zero: 0, node: 1 });
    let pin = pins.link(programs::FROM_UPLINK.name, refusing);
    fs::create_dir(&pin).unwrap();
    let error = dataplane.apply(&more).unwrap_err();
    assert!(error.to_string().contains(&refusing.to_string()), "{error}");
    let generation = tables::EPOCHS.open(pins, Access::ReadOnly).unwrap().get(&0).unwrap().unwrap();
    assert!(generation > first.generation, "flows go on by the old rows");
    assert_eq!(tables::ROUTES.open(pins, Access::ReadOnly).unwrap().dump().unwrap(), more.routes);
    for (program, ifindex) in
        [(programs::TO_UPLINK, refusing), (programs::FROM_UPLINK, last), (programs::TO_UPLINK, last)]
    {
        assert_eq!(pinned_link_info(&pins.link(program.name, ifindex)).unwrap().ifindex, ifindex, "{}", program.name);
    }

    fs::remove_dir(&pin).unwrap();
    dataplane.apply(&more).unwrap();
    assert_eq!(pinned_link_info(&pin).unwrap().ifindex, refusing);
}

#[test]
fn more_rows_than_a_map_takes_change_nothing() {
    space::enter();
    devices();
    let options = options();
    let mut dataplane = open(&options);
    dataplane.apply(&desired()).unwrap();
    let mut many = desired();
    many.uplinks.extend((1000..1100).map(|i| (i, Uplink::default())));
    let error = dataplane.apply(&many).unwrap_err();
    assert!(error.to_string().contains("uplinks"), "{error}");
    assert_eq!(tables::UPLINKS.open(&options.pins, Access::ReadOnly).unwrap().dump().unwrap(), desired().uplinks);
}

#[test]
fn an_endpoint_has_rows_programs_and_an_epoch_that_never_repeats() {
    space::enter();
    devices();
    space::ip("link add pod0 type veth peer name pod1");
    let options = options();
    let pins = &options.pins;
    let mut dataplane = open(&options);
    let ifindex = space::ifindex("pod0");
    let pod = Endpoint { ifindex, v4: [10, 0, 0, 5], v6: [0xfd; 16], ..Endpoint::default() };
    let epochs = tables::EPOCHS.open(pins, Access::ReadOnly).unwrap();
    let by_addr = tables::ENDPOINT_ADDR.open(pins, Access::ReadOnly).unwrap();
    let by_if = tables::ENDPOINT_IF.open(pins, Access::ReadOnly).unwrap();

    dataplane.put_endpoint(7, pod).unwrap();
    let first = epochs.get(&7).unwrap().unwrap();
    assert_eq!(by_addr.get(&Addr::v4(pod.v4)).unwrap(), Some(7));
    assert_eq!(by_addr.get(&Addr::v6(pod.v6)).unwrap(), Some(7));
    assert_eq!(by_if.get(&ifindex).unwrap(), Some(7));
    assert_eq!(pinned_links(pins).len(), 2);

    // Another address: the old one leads nowhere.
    let moved = Endpoint { v4: [10, 0, 0, 6], ..pod };
    dataplane.put_endpoint(7, moved).unwrap();
    assert_eq!(by_addr.get(&Addr::v4(pod.v4)).unwrap(), None);
    assert_eq!(by_addr.get(&Addr::v4(moved.v4)).unwrap(), Some(7));
    assert_eq!(dataplane.endpoints().unwrap().get(&7).map(|e| e.v4), Some(moved.v4));

    assert!(dataplane.remove_endpoint(7).unwrap());
    assert!(!dataplane.remove_endpoint(7).unwrap());
    assert!(by_addr.rows().unwrap().is_empty() && by_if.rows().unwrap().is_empty());
    drop(dataplane);
    let mut dataplane = open(&options);
    dataplane.put_endpoint(7, pod).unwrap();
    assert!(epochs.get(&7).unwrap().unwrap() > first + 2);

    // Until the device goes, its programs stay; then only the pins are left, and are collected.
    assert_eq!(dataplane.collect_links().unwrap(), 0);
    space::ip("link del pod0");
    assert_eq!(dataplane.collect_links().unwrap(), 2);
    assert!(dataplane.put_endpoint(7, pod).unwrap_err().to_string().contains("device"));
}

#[test]
fn keys_that_a_killed_agent_left_are_repaired() {
    space::enter();
    devices();
    let options = options();
    let mut dataplane = open(&options);
    let by_addr = tables::ENDPOINT_ADDR.open(&options.pins, Access::ReadWrite).unwrap();
    let by_if = tables::ENDPOINT_IF.open(&options.pins, Access::ReadWrite).unwrap();
    by_addr.put(&Addr::v4([10, 9, 9, 9]), &3).unwrap();
    by_if.put(&4711, &3).unwrap();
    assert_eq!(dataplane.repair_endpoint_keys().unwrap(), 2);
    assert_eq!(dataplane.repair_endpoint_keys().unwrap(), 0);

    // Killed between the endpoint and its keys.
    let endpoints = tables::ENDPOINTS.open(&options.pins, Access::ReadWrite).unwrap();
    let pod = Endpoint { ifindex: 77, flags: E_PRESENT, v4: [10, 0, 0, 5], ..Endpoint::default() };
    endpoints.put(&7, &pod).unwrap();
    assert_eq!(dataplane.repair_endpoint_keys().unwrap(), 2);
    assert_eq!((by_addr.get(&Addr::v4(pod.v4)).unwrap(), by_if.get(&77).unwrap()), (Some(7), Some(7)));
}

#[test]
fn clsact_filters_are_adopted_and_replaced_in_place() {
    space::enter();
    devices();
    let options = Options { attaching: Attaching::Clsact, ..options() };
    open(&options).apply(&desired()).unwrap();
    let filters = || space::run("tc", "filter show dev up0 ingress");
    let before = filters();
    assert!(before.contains("osm_from_uplnk") && before.contains("pref 4000"), "{before}");
    open(&options).apply(&desired()).unwrap();
    let after = filters();
    assert_ne!(after, before, "the old program still runs");
    assert_eq!(after.matches("handle 0x6f73").count(), 1, "{after}");
    let mut none = desired();
    none.uplinks.clear();
    open(&options).apply(&none).unwrap();
    assert!(!filters().contains("osm_from_uplnk"));
}

#[test]
fn hooks_of_the_underlay_change_the_way_they_are_attached() {
    space::enter();
    devices();
    let tcx = options();
    let clsact = Options { attaching: Attaching::Clsact, ..tcx.clone() };
    let filters = || {
        let hooks = ["up0 ingress", "up0 egress", "door0 egress"];
        hooks.map(|hook| space::run("tc", &format!("filter show dev {hook}")).matches("handle 0x6f73").count())
    };
    open(&tcx).apply(&desired()).unwrap();
    assert_eq!((pinned_links(&tcx.pins).len(), filters()), (3, [0; 3]));
    open(&clsact);
    assert_eq!((pinned_links(&tcx.pins).len(), filters()), (0, [1; 3]));
    open(&tcx);
    assert_eq!((pinned_links(&tcx.pins).len(), filters()), (3, [0; 3]));
}

#[test]
fn a_check_names_each_row_and_program_that_is_not_as_it_was_put() {
    for attaching in [Attaching::Auto, Attaching::Clsact] {
        // In a thread of its own: its namespaces go with it.
        std::thread::spawn(move || checks(attaching)).join().unwrap();
    }
}

fn checks(attaching: Attaching) {
    space::enter();
    devices();
    space::ip("link add pod0 type veth peer name pod1");
    let options = Options { attaching, ..options() };
    let pins = &options.pins;
    let mut dataplane = open(&options);
    let ifindex = space::ifindex("pod0");
    let pod = Endpoint { ifindex, v4: [10, 0, 0, 5], v6: [0xfd; 16], mac: [2; 6], ..Endpoint::default() };
    dataplane.put_endpoint(7, pod).unwrap();
    let expect = |dataplane: &Dataplane, wanted: &[&str]| {
        let found = dataplane.check_endpoint(7, &pod).unwrap();
        assert_eq!(found.len(), wanted.len(), "{attaching:?}: {found:?}");
        for (found, wanted) in found.iter().zip(wanted) {
            assert!(found.contains(wanted), "{attaching:?}: {found}");
        }
    };
    expect(&dataplane, &[]);

    let endpoints = tables::ENDPOINTS.open(pins, Access::ReadWrite).unwrap();
    let row = endpoints.get(&7).unwrap().unwrap();
    endpoints.put(&7, &Endpoint { mac: [4; 6], ..row }).unwrap();
    expect(&dataplane, &["row 7 of map endpoints is another"]);
    endpoints.put(&7, &Endpoint::default()).unwrap();
    expect(&dataplane, &["map endpoints has no row 7"]);
    endpoints.put(&7, &row).unwrap();
    let by_addr = tables::ENDPOINT_ADDR.open(pins, Access::ReadWrite).unwrap();
    by_addr.remove(&Addr::v4(pod.v4)).unwrap();
    by_addr.put(&Addr::v6(pod.v6), &9).unwrap();
    let by_if = tables::ENDPOINT_IF.open(pins, Access::ReadWrite).unwrap();
    by_if.remove(&ifindex).unwrap();
    expect(&dataplane, &["endpoint_addr has no row for 10.0.0.5", "leads to 9, not to 7", "endpoint_if has no row"]);
    dataplane.put_endpoint(7, pod).unwrap();
    expect(&dataplane, &[]);

    // Another agent's programs, then none at one of the hooks.
    let other = open(&options);
    expect(&dataplane, &["not this agent's osm_from_pod", "not this agent's osm_to_pod"]);
    expect(&other, &[]);
    if attaching == Attaching::Auto {
        fs::remove_file(pins.link(programs::TO_POD.name, ifindex)).unwrap();
    } else {
        space::run("tc", "filter del dev pod0 egress");
    }
    expect(&other, &["program osm_to_pod is not on its host link"]);
}

#[test]
fn a_pinned_flow_table_keeps_its_size() {
    space::enter();
    devices();
    let small = options();
    open(&small);
    let rows = || tables::FLOW4.open(&small.pins, Access::ReadOnly).unwrap().capacity();
    let before = rows();
    open(&Options { flow_memory: 16 << 20, ..small.clone() });
    assert_eq!(rows(), before);
}

#[test]
fn the_agent_embeds_what_the_loader_reads_and_nothing_for_debuggers() {
    let names = |name: &[u8]| OBJECT.windows(name.len()).any(|text| text == name);
    assert!(names(b".BTF.ext\0"), "{} bytes", OBJECT.len());
    assert!(!names(b".debug_"), "{} bytes", OBJECT.len());
}

#[test]
fn a_place_that_is_no_bpffs_is_refused_with_the_command() {
    space::enter();
    let folder = tempfile::tempdir().unwrap();
    let options = Options { pins: Pins::new(folder.path().join("osmia")), ..options() };
    let error = Dataplane::open(&options, OBJECT, &SystemClock).unwrap_err();
    assert!(matches!(error, OpenError::Layout(LayoutError::NotBpffs { .. })), "{error:?}");
    assert!(error.to_string().contains("mount -t bpf"), "{error}");
}

#[test]
fn pins_of_another_layout_are_named_and_left_alone() {
    space::enter();
    devices();
    let options = options();
    let other = Pins::of_layout(space::root(), 999);
    fs::create_dir_all(other.links()).unwrap();
    let error = Dataplane::open(&options, OBJECT, &SystemClock).unwrap_err();
    assert!(error.to_string().contains("999"), "{error}");
    assert!(matches!(options.pins.check(), Err(LayoutError::Other { .. })));
    assert!(other.links().exists() && !options.pins.folder().exists());
}

#[test]
fn a_folder_that_says_another_layout_is_never_decoded() {
    space::enter();
    devices();
    let options = options();
    open(&options);
    let table = tables::META.open(&options.pins, Access::ReadWrite).unwrap();
    let mut row = table.get(&0).unwrap().unwrap();
    row.layout = 77;
    table.put(&0, &row).unwrap();
    let error = Dataplane::open(&options, OBJECT, &SystemClock).unwrap_err();
    assert!(error.to_string().contains("77"), "{error}");
}

#[test]
fn a_map_of_another_shape_is_refused_before_anything_changes() {
    space::enter();
    devices();
    let options = options();
    fs::create_dir_all(options.pins.folder()).unwrap();
    let pin = options.pins.map("nodes");
    space::run("bpftool", &format!("map create {} type array key 4 value 8 entries 16 name nodes", pin.display()));
    let error = Dataplane::open(&options, OBJECT, &SystemClock).unwrap_err();
    assert!(matches!(&error, OpenError::Incompatible { map, .. } if map == "nodes"), "{error:?}");
    assert!(pinned_links(&options.pins).is_empty());
}

#[test]
fn an_agent_without_object_says_so() {
    space::enter();
    assert!(matches!(Dataplane::open(&options(), &[], &SystemClock), Err(OpenError::NoObject)));
}

#[test]
fn flows_that_are_over_are_swept_and_living_ones_stay() {
    space::enter();
    devices();
    let options = options();
    let dataplane = open(&options);
    let meta = *dataplane.meta();
    let rate = meta.hz >> meta.tick_shift;
    let now = (meta.jiffies >> meta.tick_shift) as u32;
    let long_ago = now.wrapping_sub(3600 * rate);
    let table = tables::FLOW4.open(&options.pins, Access::ReadWrite).unwrap();
    let key = |port: u16| FlowKey4 {
        src: [10, 0, 0, 1],
        dst: [10, 0, 0, 2],
        sport: port.to_be_bytes(),
        proto: 17,
        ..FlowKey4::default()
    };
    // A pair: the opener's direction and its opposite.
    let put = |port: u16, seen: u32, opposite_seen: u32| {
        let entry = FlowEntry { flags: F_OPENER, src_slot: 7, last_seen: seen, ..FlowEntry::default() };
        table.put(&key(port), &entry).unwrap();
        let opposite = FlowEntry { dst_slot: 7, last_seen: opposite_seen, ..FlowEntry::default() };
        table.put(&key(port).opposite(&entry), &opposite).unwrap();
    };
    for port in 1..=500 {
        put(port, long_ago, long_ago);
    }
    put(1000, now, now);
    put(1001, long_ago, now);
    let budgets = tables::BUDGETS.open(&options.pins, Access::ReadWrite).unwrap();
    budgets.put(&7, &(9 << 32 | 502)).unwrap();

    let swept = dataplane.sweep(&SystemClock).unwrap();
    assert_eq!((swept.removed, swept.flows), (1000, 2));
    let left: BTreeSet<FlowKey4> = table.dump().unwrap().into_keys().collect();
    let living = [1000, 1001].map(|port| [key(port), key(port).opposite(&FlowEntry::default())]);
    assert_eq!(left, living.concat().into_iter().collect());
    assert_eq!(budgets.get(&7).unwrap(), Some(9 << 32 | 2), "flows are counted again, the other half stays");
}

#[test]
fn an_object_that_lacks_a_program_is_refused_by_its_name() {
    space::enter();
    let wanted = programs::TO_DOOR.name.as_bytes();
    let mut object = OBJECT.to_vec();
    for at in 0..object.len() - wanted.len() {
        if object.get(at..at + wanted.len()) == Some(wanted) {
            object[at + wanted.len() - 1] = b'x';
        }
    }
    let options = options();
    let error = Dataplane::open(&options, &object, &SystemClock).unwrap_err();
    assert!(matches!(&error, OpenError::Lacks { kind: "program", name } if name == "osm_to_door"), "{error:?}");
    assert!(pinned_links(&options.pins).is_empty());
}
