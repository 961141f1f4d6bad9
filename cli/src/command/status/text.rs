//! The status for a person.

use std::{fmt::Display, io};

use osmia_maps::decode::{Cell, Record};

use crate::{
    command::names::STATES,
    render::{Document, Page},
};

const ABSENT: &Cell = &Cell::Absent;

/// A member of a member: `of(head, ["agent", "version"])`.
fn of<'a>(head: &'a Record, path: [&str; 2]) -> &'a Cell {
    match head.get(path[0]) {
        Some(Cell::Record(inner)) => inner.get(path[1]).unwrap_or(ABSENT),
        _ => ABSENT,
    }
}

fn line(page: &mut Page<'_>, name: &str, text: impl Display) -> io::Result<()> {
    page.line(format_args!("  {name:<11}{text}"))
}

pub(super) fn write(document: &Document, page: &mut Page<'_>) -> io::Result<()> {
    let head = &document.head;
    let top = |name| head.get(name).unwrap_or(ABSENT);
    page.heading(format_args!("layout {} below {}", top("layout"), top("bpffs")))?;
    let heartbeat = match of(head, ["agent", "heartbeat"]) {
        Cell::Age(Some(age)) => format!(", heartbeat {} ago", Cell::Age(Some(*age))),
        _ => String::new(),
    };
    line(page, "agent", format_args!("{}{heartbeat}", of(head, ["agent", "version"])))?;
    let programs = |name| of(head, ["programs", name]);
    let loaded = format!("{} ({} ago)", programs("loaded"), programs("loaded_ago"));
    line(
        page,
        "programs",
        format_args!("loaded {loaded}, object {}, catalogue {}", programs("object"), top("catalogue")),
    )?;
    let clock = |name| of(head, ["clock", name]);
    let tick = match clock("tick") {
        Cell::Age(Some(tick)) => format!("{} ms", tick.as_millis()),
        _ => "unknown".to_owned(),
    };
    line(page, "clock", format_args!("{} Hz, a tick is {tick}", clock("hz")))?;
    let config = |name| of(head, ["config", name]);
    let addresses = [config("node4"), config("node6")].into_iter().filter(|cell| !cell.is_absent());
    let addresses = addresses.map(Cell::to_string).collect::<Vec<_>>().join(" ");
    line(page, "node", format_args!("{addresses}, pod MTU {}, mark {}", config("pod_mtu"), config("mark")))?;
    if matches!(top("devices_named"), Cell::Bool(false)) {
        line(page, "devices", "by index only: these pins are not of this network namespace's node")?;
    }
    line(page, "door", format_args!("{} {}", config("door_host"), config("door_pods")))?;
    let tunnel = match config("tunnel_device") {
        Cell::Absent => "none".to_owned(),
        device => format!("{device}, port {}, VNI {}", config("tunnel_port"), config("vni")),
    };
    line(page, "tunnel", tunnel)?;
    let epochs = |name| of(head, ["epochs", name]);
    let generation = top("route_generation");
    line(
        page,
        "epochs",
        format_args!(
            "route generation {generation}, {} endpoint epochs, highest {}",
            epochs("in_use"),
            epochs("highest")
        ),
    )?;
    let nodes = |name| of(head, ["nodes", name]);
    line(page, "nodes", format_args!("{} by tunnel, {} native", nodes("tunnel"), nodes("native")))?;
    let endpoints = |name| of(head, ["endpoints", name]);
    line(page, "endpoints", format_args!("{}, {} ready", endpoints("present"), endpoints("ready")))?;
    if let Cell::Record(policy) = top("policy") {
        line(page, "policy", policy_line(policy))?;
    }
    let drops = |name| of(head, ["drops", name]);
    line(page, "drops", format_args!("{} packets for {} reasons (osmia drop)", drops("packets"), drops("reasons")))?;
    line(page, "memory", format_args!("{} of maps", top("memory")))?;
    lists(document, page)
}

/// What is in force, and what it makes of the pods.
fn policy_line(policy: &Record) -> String {
    let of = |name| policy.get(name).unwrap_or(ABSENT);
    let in_force = match of("in_force") {
        Cell::Record(at) if at.get("generation").is_some_and(|generation| !generation.is_absent()) => {
            let at = |name| at.get(name).unwrap_or(ABSENT);
            format!("generation {} in force since {} ({} ago)", at("generation"), at("since"), at("age"))
        }
        _ => "nothing in force".to_owned(),
    };
    let pods: Vec<String> = STATES
        .iter()
        .filter(|state| *of(state) != Cell::Number(0))
        .map(|state| format!("{} {state}", of(state)))
        .collect();
    let pods = if pods.is_empty() { String::new() } else { format!("; pods: {}", pods.join(", ")) };
    format!("{in_force}, {} policies{pods} (osmia policy list)", of("policies"))
}

fn lists(document: &Document, page: &mut Page<'_>) -> io::Result<()> {
    for list in document.lists.iter().filter(|list| list.len() > 0) {
        page.line("")?;
        match list.name {
            "problems" => {
                for problem in list.rows() {
                    let text = problem.get("text").unwrap_or(ABSENT);
                    let bad = problem.get("level").is_some_and(|level| *level == Cell::name("error"));
                    if bad { page.bad(format_args!("! {text}"))? } else { page.doubtful(format_args!("? {text}"))? }
                }
            }
            "links" => page.table(|| devices(list.rows().collect()).into_iter())?,
            "counters" => page.table(|| list.rows().filter(|row| row.get("count") != Some(&Cell::Number(0))))?,
            _ => page.table(|| list.rows())?,
        }
    }
    Ok(())
}

/// A line a device instead of one a link.
fn devices(links: Vec<Record>) -> Vec<Record> {
    let mut devices: Vec<(Cell, Vec<Cell>)> = Vec::new();
    for link in &links {
        let get = |name| link.get(name).cloned().unwrap_or(Cell::Absent);
        let program = match get("state") {
            state if state == Cell::name("attached") => get("program"),
            state => Cell::Text(format!("{}({state})", get("program")).into()),
        };
        match devices.last_mut().filter(|(device, _)| *device == get("device")) {
            Some((_, programs)) => programs.push(program),
            None => devices.push((get("device"), vec![program])),
        }
    }
    let record = |(device, programs)| Record::new().with("device", device).with("programs", Cell::List(programs));
    devices.into_iter().map(record).collect()
}
