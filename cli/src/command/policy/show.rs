//! `osmia policy show`: one NetworkPolicy.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use osmia_maps::{
    Access, MapError, Pins,
    catalogue::{Direction, PolicyName, Reason},
    decode::{Cell, Context, Record, human_duration},
    layout::{FlowEntry, flow::F_OPENER},
    tables,
};

use super::{
    Named, in_force,
    list::{self, Known},
    say_stale,
};
use crate::{
    arguments::Common,
    command::{
        flow, if_pinned,
        names::{Names, direction_name, policies_cell, texts},
        status::heartbeat::{Heartbeat, LATE},
    },
    failure::Failure,
    render::{Document, List},
};

/// What a rule has let pass, of the flows that are in the tables now; both directions of a flow.
#[derive(Clone, Copy, Default)]
struct Traffic {
    flows: u64,
    packets: u64,
    bytes: u64,
}

/// What an isolation has kept out, of the rows that are kept.
#[derive(Clone, Copy, Default)]
struct Dropped {
    flows: u64,
    packets: u64,
    last: Option<u32>,
}

pub(super) fn run(pins: &Pins, common: &Common, named: &Named) -> Result<Document, Failure> {
    let context = Context::read(pins)?;
    let (endpoints, names) = super::endpoints_and_names(pins, common, &context.meta)?;
    let known = list::known(&names, &endpoints);
    let mut of_name = known.into_iter().filter(|(policy, _)| named.is(policy));
    // Of two of one name the one in force: the other has left rows that are about to go.
    let (policy, known) =
        of_name.by_ref().max_by_key(|(_, known)| known.at.map(|at| at.generation)).ok_or_else(|| {
            let Named { namespace, name } = named;
            let why = names.stale().first().map(|why| format!(" ({why})")).unwrap_or_default();
            let behind = names.told().behind.as_ref().map(in_force::behind_text);
            let more: String = behind.into_iter().chain(untold(&names)).map(|why| format!("; {why}")).collect();
            Failure::Unknown(format!(
                "no NetworkPolicy {namespace}/{name} is in force on this node, says {}{why}{more}",
                names.place()
            ))
        })?;
    let missing = missing(&names, &known);
    let in_force = missing.is_empty();
    let sentence = sentence(&policy, &known, &missing);
    let heartbeat = common.run_folder().map(|run| Heartbeat::read(&run)).transpose();
    let heartbeat = heartbeat.context("looking for the agent's heartbeat")?;
    let late = heartbeat.and_then(|beat| match beat.age {
        None => Some("the agent is not running: what was changed since is not in force".to_owned()),
        Some(age) if age > LATE => Some(format!(
            "the agent was last heard of {} ago: what was changed since is not in force",
            human_duration(age)
        )),
        Some(_) => None,
    });
    let rules = rules(pins, &names, &policy)?;
    let drops = drops(pins, &context, &names, &policy)?;
    let stale: Vec<String> = names.stale().iter().cloned().chain(late).chain(untold(&names)).collect();
    let (shown, refused) = (stale.clone(), known.refused.clone());
    let document = Document::new(move |document, page| {
        match in_force {
            true => page.line(&sentence)?,
            false => page.bad(&sentence)?,
        }
        say_stale(page, &shown)?;
        for part in &refused {
            page.bad(format_args!("! the API would refuse this part, which allows nothing: {part}"))?;
        }
        for (list, none) in
            document.lists.iter().zip(["it isolates no pod of this node", "no rules", "nothing of it dropped"])
        {
            page.line("")?;
            match list.len() {
                0 => page.line(none)?,
                _ => page.table(|| list.rows())?,
            }
        }
        Ok(())
    });
    let mut document = document
        .with("namespace", Cell::Text(policy.namespace.clone().into()))
        .with("name", Cell::Text(policy.name.clone().into()))
        .with("uid", Cell::Text(policy.uid.clone().into()))
        .with("in_force", Cell::Bool(in_force))
        .with("missing", texts(missing))
        .with("refused", texts(known.refused.iter().cloned()))
        .with("isolates", known.directions());
    for (name, cell) in in_force::record(known.at.as_ref()).iter() {
        document = document.with(name, cell.clone());
    }
    Ok(document
        .with("stale", texts(stale))
        .list(List::of("endpoints", list::endpoints(&names, &known).collect()))
        .list(List::of("rules", rules))
        .list(List::of("drops", drops)))
}

/// Why the source may know it otherwise, or that it went, without this node being told.
fn untold(names: &Names) -> Option<String> {
    let (first, more) = names.told().source.split_first()?;
    let more = if more.is_empty() { String::new() } else { format!("; {} more in `osmia status`", more.len()) };
    Some(format!("the source cannot tell all, what it said last holds: {first}{more}"))
}

/// What keeps it, or a change of it, from being in force on this node.
fn missing(names: &Names, known: &Known) -> Vec<String> {
    let catalogue = names.told();
    let mut missing = Vec::new();
    if known.at.is_none() {
        missing.push("it is being written".to_owned());
    }
    let written = catalogue.in_force.map_or(0, |at| at.generation);
    match &catalogue.behind {
        Some(behind) => missing.push(in_force::behind_text(behind)),
        None if known.at.is_some() && written < catalogue.generation => {
            missing.push(format!("generation {} is being written", catalogue.generation));
        }
        None => {}
    }
    if !known.over_budget.is_empty() {
        let pods: Vec<String> = known.over_budget.iter().map(|slot| names.pod_text(*slot)).collect();
        missing
            .push(format!("its rules need more rows than there is room for on {}, isolated instead", pods.join(", ")));
    }
    missing
}

/// Is it in force on this node?
fn sentence(policy: &PolicyName, known: &Known, missing: &[String]) -> String {
    let pods = match known.endpoints.len() {
        0 => "it isolates no pod of this node".to_owned(),
        1 => "it isolates 1 pod of this node".to_owned(),
        count => format!("it isolates {count} pods of this node"),
    };
    let at = known.at.as_ref().map(in_force::text);
    match (missing, at) {
        ([], Some(at)) => format!("{policy} is in force on this node: {at}; {pods}"),
        (_, at) => {
            let before = at.map(|at| format!("; before that: {at}")).unwrap_or_default();
            format!("{policy} is not in force on this node as it was told last: {}{before}; {pods}", missing.join("; "))
        }
    }
}

/// Its rules, with what each has let pass.
fn rules(pins: &Pins, names: &Names, policy: &PolicyName) -> Result<Vec<Record>, MapError> {
    let is_of = |set: &u32| names.set(*set).is_some_and(|set| set.policies.contains(policy));
    let cookies: BTreeSet<u32> =
        names.sets().filter(is_of).flat_map(|set| names.rules(set)).map(|rule| rule.cookie).collect();
    let mut rules: Vec<(Direction, usize, u32, &str)> = Vec::new();
    for cookie in cookies {
        if let Some(Reason::Rule { policy: of, direction, rule, text }) = names.reason(cookie)
            && of == policy
        {
            rules.push((*direction, *rule, cookie, text));
        }
    }
    rules.sort_unstable();
    let mut traffic: BTreeMap<u32, Traffic> = rules.iter().map(|rule| (rule.2, Traffic::default())).collect();
    let mut add = |cookie: u32, entry: &FlowEntry| {
        if let Some(traffic) = traffic.get_mut(&cookie) {
            traffic.flows += u64::from(entry.flags & F_OPENER != 0);
            traffic.packets = traffic.packets.saturating_add(entry.packets);
            traffic.bytes = traffic.bytes.saturating_add(entry.bytes);
        }
    };
    flow::each_entry(pins, |_, _, entry| {
        add(entry.egress_cookie, entry);
        add(entry.ingress_cookie, entry);
    })?;
    let record = |(direction, rule, cookie, text): (Direction, usize, u32, &str)| {
        let traffic = traffic.get(&cookie).copied().unwrap_or_default();
        Record::new()
            .with("direction", Cell::name(direction_name(direction)))
            .with("rule", Cell::Number(rule as u64))
            .with("flows", Cell::Number(traffic.flows))
            .with("packets", Cell::Number(traffic.packets))
            .with("bytes", Cell::Size(traffic.bytes))
            .with("cookie", Cell::Number(cookie.into()))
            .with("text", Cell::Text(text.to_owned().into()))
    };
    Ok(rules.into_iter().map(record).collect())
}

/// Its isolations, with what each has kept out.
fn drops(pins: &Pins, context: &Context, names: &Names, policy: &PolicyName) -> Result<Vec<Record>, MapError> {
    let mut dropped: BTreeMap<u32, Dropped> = BTreeMap::new();
    if let Some(table) = if_pinned(tables::DROP_ROWS.open(pins, Access::ReadOnly))? {
        table.each_batch(|keys, rows| {
            for (key, row) in keys.iter().zip(rows).filter(|(key, _)| key.cookie != 0) {
                let dropped = dropped.entry(key.cookie).or_default();
                dropped.flows += 1;
                dropped.packets = dropped.packets.saturating_add(row.packets);
                // Ticks wrap: the later of two is the one a little behind the other.
                let later = |last: u32| row.last.wrapping_sub(last) < 1 << 31;
                dropped.last = Some(dropped.last.filter(|last| !later(*last)).unwrap_or(row.last));
            }
            Ok(())
        })?;
    }
    let of = dropped.into_iter().filter_map(|(cookie, dropped)| match names.reason(cookie)? {
        Reason::Isolated { direction, policies } | Reason::OverBudget { direction, policies }
            if policies.contains(policy) =>
        {
            let record = Record::new()
                .with("direction", Cell::name(direction_name(*direction)))
                .with("flows", Cell::Number(dropped.flows))
                .with("packets", Cell::Number(dropped.packets))
                .with("last", Cell::Age(dropped.last.and_then(|tick| context.age(tick))))
                .with("cookie", Cell::Number(cookie.into()))
                .with("isolated_by", policies_cell(policies));
            Some(record)
        }
        _ => None,
    });
    Ok(of.collect())
}
