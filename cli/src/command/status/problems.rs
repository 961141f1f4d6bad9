//! What is wrong, from what was seen. Pure.

mod policy;

use std::collections::BTreeSet;

use osmia_maps::{
    decode::{Cell, Record, human_duration},
    facts::LinkState,
    layout::{
        DropReason, Stat,
        maps::{ENDPOINT_ADDR, ENDPOINT_IF, FLOW4, FLOW6, ROUTES, UPLINKS},
        programs::{self, Attached},
    },
};

use super::{
    heartbeat::LATE,
    seen::{Seen, is_ready},
};

/// Maps that refuse rows when they are full, and what that does.
const REFUSING: [(&str, &str); 6] = [
    (FLOW4, "new IPv4 flows stay on probation"),
    (FLOW6, "new IPv6 flows stay on probation"),
    (ROUTES, "prefixes are missing"),
    (ENDPOINT_ADDR, "pods cannot be added"),
    (ENDPOINT_IF, "pods cannot be added"),
    (UPLINKS, "uplinks are missing"),
];
/// Percent of rows in use from which a map counts as nearly full.
const NEARLY: u64 = 90;

/// Reasons that say that something of ours is broken, rather than that a packet was bad.
const BROKEN: [(DropReason, &str); 4] = [
    (DropReason::Program, "a part of the program set is missing; a start of the agent repairs it"),
    (DropReason::TunnelDevice, "packets needed the tunnel device and there was none"),
    (DropReason::NoNode, "routes led to nodes without a row"),
    (DropReason::MasqPorts, "no masquerade port was free: widen --masquerade-ports"),
];

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    /// Packets are lost or will be, or something told is not in force; else it may be all right.
    pub(super) bad: bool,
    pub(super) text: String,
}

impl Problem {
    fn bad(text: impl Into<String>) -> Self {
        Self { bad: true, text: text.into() }
    }

    fn doubtful(text: impl Into<String>) -> Self {
        Self { bad: false, text: text.into() }
    }

    pub(super) fn record(&self) -> Record {
        let level = if self.bad { "error" } else { "warning" };
        Record::new().with("level", Cell::name(level)).with("text", Cell::Text(self.text.clone().into()))
    }
}

/// All problems, the bad ones first.
pub(super) fn find(seen: &Seen) -> Vec<Problem> {
    let mut found = Vec::new();
    agent(seen, &mut found);
    maps(seen, &mut found);
    seen.policy.iter().for_each(|seen| policy::find(seen, &mut found));
    hooks(seen, &mut found);
    ways(seen, &mut found);
    counted(seen, &mut found);
    found.sort_by_key(|problem| !problem.bad);
    found
}

fn agent(seen: &Seen, found: &mut Vec<Problem>) {
    match &seen.heartbeat {
        Some(beat) if beat.age.is_none() => {
            let path = beat.path.display();
            found.push(Problem::bad(format!(
                "the agent is not running: there is no {path}; packets of known pods flow on"
            )));
        }
        Some(beat) if beat.age.is_some_and(|age| age > LATE) => {
            let age = human_duration(beat.age.unwrap_or_default());
            found.push(Problem::bad(format!("the agent has been silent for {age}; packets of known pods flow on")));
        }
        _ => {}
    }
    for other in &seen.beside {
        let (layout, theirs, ours) = (other.layout, other.links, seen.links.len());
        let moving =
            format!("its programs run on {theirs} links, this layout's on {ours}: flows and counters are these alone");
        let state = if other.meta.is_some() { &moving } else { "not in force, this layout is" };
        found.push(Problem::doubtful(format!(
            "layout {layout} is pinned as well, {state}; an upgrade has not finished, and the agent's next start finishes it"
        )));
    }
    if seen.context.clock.is_none() {
        found.push(Problem::bad("the meta row tells no tick length: ages are not shown"));
    }
    if seen.epochs.first().is_none_or(|generation| *generation == 0) {
        found.push(Problem::doubtful("the route generation is 0: the agent has written no routes yet"));
    }
}

fn maps(seen: &Seen, found: &mut Vec<Problem>) {
    for size in &seen.sizes {
        let Some((facts, used)) = &size.seen else {
            found.push(Problem::bad(format!("map {} is not pinned", size.name)));
            continue;
        };
        let Some((_, effect)) = REFUSING.iter().find(|(name, _)| *name == size.name) else { continue };
        let (used, max) = (u64::from(*used), u64::from(facts.max));
        if used >= max {
            found.push(Problem::bad(format!("map {} is full ({max} rows): {effect}", size.name)));
        } else if used * 100 >= max * NEARLY {
            found.push(Problem::doubtful(format!("map {} is nearly full: {used} of {max} rows", size.name)));
        }
    }
}

/// Every hook that should have a program.
fn wanted(seen: &Seen) -> BTreeSet<(u32, &'static str)> {
    let on = |ifindex: u32, hooks: &[Attached]| hooks.iter().map(move |hook| (ifindex, hook.name)).collect::<Vec<_>>();
    let uplinks = seen.uplinks.iter().flat_map(|(i, _)| on(*i, &[programs::FROM_UPLINK, programs::TO_UPLINK]));
    let pods = seen.endpoints.iter().filter(|(_, row)| is_ready(row));
    let pods = pods.flat_map(|(_, row)| on(row.ifindex, &[programs::FROM_POD, programs::TO_POD]));
    let config = seen.context.config.unwrap_or_default();
    let single = [
        (config.door_host, programs::TO_DOOR),
        (config.door_pods, programs::FROM_DOOR),
        (config.tunnel_dev, programs::FROM_TUNNEL_DEVICE),
    ];
    let single = single.into_iter().filter(|(ifindex, _)| *ifindex != 0).map(|(ifindex, hook)| (ifindex, hook.name));
    uplinks.chain(pods).chain(single).collect()
}

fn hooks(seen: &Seen, found: &mut Vec<Problem>) {
    let device = |ifindex| seen.context.device(ifindex);
    for link in seen.links.iter().filter(|link| link.state == Some(LinkState::Detached)) {
        let text = format!("the link of {} is pinned for {}, which is gone", link.program, device(link.ifindex));
        found.push(Problem::doubtful(text));
    }
    let wanted = wanted(seen);
    let attached = |link: &&osmia_maps::facts::PinnedLink| link.state != Some(LinkState::Detached);
    let pinned: BTreeSet<(u32, &str)> =
        seen.links.iter().filter(attached).map(|link| (link.ifindex, link.program.as_str())).collect();
    // Filters of a clsact qdisc leave no pins.
    if !seen.tcx || wanted.is_empty() {
        return;
    }
    if pinned.is_empty() {
        found.push(Problem::bad("no pinned link is attached: no program runs, or only as clsact filters"));
        return;
    }
    for (ifindex, program) in wanted.iter().filter(|hook| !pinned.contains(*hook)) {
        found.push(Problem::bad(format!("{program} is not attached to {}", device(*ifindex))));
    }
}

fn ways(seen: &Seen, found: &mut Vec<Problem>) {
    if seen.context.config.is_none_or(|config| config.door_host == 0) {
        found.push(Problem::bad("the configuration names no door: the agent has not finished a start"));
    }
    if seen.uplinks.is_empty() {
        found.push(Problem::bad("there is no uplink: nothing leaves this node"));
    }
    if seen.tunnel_nodes > 0 && seen.context.config.is_some_and(|config| config.tunnel_dev == 0) {
        found.push(Problem::bad("nodes are reached through the tunnel, and there is no tunnel device"));
    }
    if !seen.lost_nodes.is_empty() {
        let lost: Vec<String> = seen.lost_nodes.iter().map(u16::to_string).collect();
        found.push(Problem::bad(format!("routes lead to nodes without a row: {}", lost.join(", "))));
    }
    let waiting = seen.endpoints.iter().filter(|(_, row)| !is_ready(row)).map(|(slot, _)| slot.to_string());
    let waiting: Vec<String> = waiting.collect();
    if !waiting.is_empty() {
        found.push(Problem::doubtful(format!("endpoints not ready, by slot: {}", waiting.join(", "))));
    }
}

fn counted(seen: &Seen, found: &mut Vec<Problem>) {
    for (stat, what) in [
        (Stat::FlowTableFull, "the established table was full"),
        (Stat::FlowEndpointFull, "their endpoint had its share of it"),
    ] {
        match seen.stat(stat) {
            0 => {}
            count => found.push(Problem::bad(format!("{count} times a flow stayed on probation since {what}"))),
        }
    }
    for (reason, what) in BROKEN {
        let count = seen.drops.iter().find(|(number, _)| *number == reason as u8).map_or(0, |(_, count)| count.packets);
        if count != 0 {
            found.push(Problem::bad(format!("{count} packets dropped as {}: {what}", reason.name())));
        }
    }
}

#[cfg(test)]
mod tests;
