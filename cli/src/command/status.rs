//! `osmia status`: what is loaded, how full it is, what is wrong.

pub(super) mod heartbeat;
mod policy;
mod problems;
mod seen;
mod text;

use osmia_maps::{
    Pins,
    decode::{Cell, Record, config, meta},
    facts::LinkState,
    layout::{Addr, Stat},
};

use self::{problems::Problem, seen::Seen};
use crate::{
    arguments::Common,
    failure::Failure,
    render::{Document, List, utc},
};

/// Exit code where something is wrong.
const RED: u8 = 7;

pub(super) const EXAMPLES: &str = "\
Lines with ! say that packets are lost or will be, or that something told is not in force; lines with ? may be all right.
docs/operations.md says what to do about each. Exit code: 7 where a line has !, else 0.

Examples:
  osmia status
  osmia status --json --watch 10      a document every ten seconds, for programs: `problems`
  osmia status --bpffs /srv/n2/bpf/osmia --run /srv/n2/run
                                      another node's pins, and its agent's heartbeat";

pub(super) fn run(pins: &Pins, common: &Common) -> Result<Document, Failure> {
    let seen = Seen::read(pins, common)?;
    let problems = problems::find(&seen);
    let sizes = seen.sizes.iter().map(super::map::Size::record).collect();
    let mut document = Document::new(text::write)
        .with("bpffs", Cell::Text(pins.root().display().to_string().into()))
        .with("layouts_pinned", Cell::List(seen.layouts.iter().map(|l| Cell::Number((*l).into())).collect()));
    for (name, cell) in members(&seen).iter() {
        document = document.with(name, cell.clone());
    }
    Ok(document
        .list(List::of("uplinks", seen.uplinks()))
        .list(List::of("links", seen.links.iter().map(|link| link_record(&seen, link)).collect()))
        .list(List::of("maps", sizes))
        .list(List::of("counters", counters(&seen)))
        .list(List::of("problems", problems.iter().map(Problem::record).collect()))
        .ending(if problems.iter().any(|problem| problem.bad) { RED } else { 0 }))
}

/// Single members, in the order of the text.
fn members(seen: &Seen) -> Record {
    let number = |n: u32| Cell::Number(n.into());
    let count = |n: usize| Cell::Number(n as u64);
    let row = &seen.context.meta;
    let agent = Record::new()
        .with("version", Cell::Text(meta::version(row).into()))
        .with("heartbeat", seen.heartbeat.as_ref().map_or(Cell::Absent, |beat| Cell::Age(beat.age)));
    let age = seen.context.clock.map(|clock| clock.since(row.loaded_ns));
    let loaded = age.and_then(|age| std::time::SystemTime::now().checked_sub(age));
    let programs = Record::new()
        .with("loaded", loaded.map_or(Cell::Absent, |time| Cell::Text(utc(time).into())))
        .with("loaded_ago", Cell::Age(age))
        .with("object", Cell::Text(meta::object(row).into()))
        .with(
            "jump_tables",
            Cell::List(seen.generations.iter().map(|g| Cell::Text(format!("{g:016x}").into())).collect()),
        );
    let clock = Record::new()
        .with("hz", number(row.hz))
        .with("tick_shift", number(row.tick_shift))
        .with("tick", Cell::Age(seen.context.clock.map(|clock| clock.tick_length())));
    let live = seen.epochs.iter().skip(1).filter(|epoch| **epoch != 0);
    let epochs = Record::new()
        .with("in_use", count(live.clone().count()))
        .with("highest", number(live.max().copied().unwrap_or(0)));
    let endpoints = Record::new()
        .with("present", count(seen.endpoints.len()))
        .with("ready", count(seen.endpoints.iter().filter(|(_, e)| seen::is_ready(e)).count()));
    let nodes = Record::new().with("tunnel", count(seen.tunnel_nodes)).with("native", count(seen.native_nodes));
    let drops = Record::new()
        .with("packets", Cell::Number(seen.drops.iter().map(|(_, count)| count.packets).sum()))
        .with("bytes", Cell::Size(seen.drops.iter().map(|(_, count)| count.bytes).sum()))
        .with("reasons", count(seen.drops.len()));
    let config = seen.context.config.as_ref().map(|row| config::value(row, &seen.context));
    let memory = seen.sizes.iter().filter_map(|size| size.seen.as_ref()?.0.memory).sum();
    Record::new()
        .with("agent", Cell::Record(agent))
        .with("programs", Cell::Record(programs))
        .with("clock", Cell::Record(clock))
        .with("catalogue", Cell::Number(row.catalogue))
        .with("config", config.map_or(Cell::Absent, Cell::Record))
        .with("devices_named", Cell::Bool(seen.context.devices.are_here()))
        .with("route_generation", number(seen.epochs.first().copied().unwrap_or(0)))
        .with("epochs", Cell::Record(epochs))
        .with("endpoints", Cell::Record(endpoints))
        .with("policy", seen.policy.as_ref().map_or(Cell::Absent, |policy| Cell::Record(policy.record())))
        .with("nodes", Cell::Record(nodes))
        .with("drops", Cell::Record(drops))
        .with("memory", Cell::Size(memory))
}

fn link_record(seen: &Seen, link: &osmia_maps::facts::PinnedLink) -> Record {
    let (state, id) = match link.state {
        Some(LinkState::Attached(id)) => ("attached", Cell::Number(id.into())),
        Some(LinkState::Detached) => ("detached", Cell::Absent),
        None => ("unknown", Cell::Absent),
    };
    Record::new()
        .with("device", seen.context.device(link.ifindex))
        .with("program", Cell::Text(link.program.clone().into()))
        .with("state", Cell::name(state))
        .with("program_id", id)
}

/// Every counter in JSON, those that counted in the text.
fn counters(seen: &Seen) -> Vec<Record> {
    let of = |stat: &Stat| Cell::Number(seen.stat(*stat));
    Stat::ALL
        .iter()
        .map(|stat| Record::new().with("counter", Cell::name(stat.name())).with("count", of(stat)))
        .collect()
}

impl Seen {
    fn uplinks(&self) -> Vec<Record> {
        let record = |(ifindex, row): &(u32, osmia_maps::layout::Uplink)| {
            Record::new()
                .with("device", self.context.device(*ifindex))
                .with("v4", Cell::v4(row.v4))
                .with("v6", Cell::address(Addr::v6(row.v6)))
                .with("mtu", Cell::Number(row.mtu.into()))
                .with("mac", Cell::Mac(row.mac))
        };
        self.uplinks.iter().map(record).collect()
    }
}
