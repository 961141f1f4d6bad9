//! `osmia policy sets`: rule sets, what one direction of endpoints is held to.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use osmia_maps::{
    Access, MapError, Pins,
    catalogue::{Ports, SetHead, SetRule},
    decode::{Cell, Record, policy, protocol},
    layout::{Meta, VerdictKey, VerdictRow, policy::V_ALLOW},
    tables,
};

use super::{listed, say_stale};
use crate::{
    arguments::Common,
    command::{
        if_pinned,
        names::{Names, direction_name, policies_cell, policies_text, rule_sets, texts},
    },
    failure::Failure,
    render::{Document, List},
};

/// Members of a row that its key's text has as well.
const KEY: [&str; 3] = ["set", "class", "proto"];

/// Endpoints by the rule set they have.
type Users = BTreeMap<u32, BTreeSet<u32>>;

pub(super) fn run(pins: &Pins, common: &Common, meta: &Meta, set: Option<u32>) -> Result<Document, Failure> {
    let mut rows = Vec::new();
    each_row(pins, |key, row| {
        if set.is_none_or(|set| set == key.asked.set) {
            rows.push((*key, *row));
        }
    })?;
    let (endpoints, names) = super::endpoints_and_names(pins, common, meta)?;
    let mut users = Users::new();
    for (slot, endpoint) in &endpoints {
        for (_, number) in rule_sets(endpoint) {
            users.entry(number).or_default().insert(*slot);
        }
    }
    match set {
        None => Ok(all(&names, &users, &rows)),
        Some(set) => one(names, &users, rows, set),
    }
}

fn each_row(pins: &Pins, mut each: impl FnMut(&VerdictKey, &VerdictRow)) -> Result<(), MapError> {
    let Some(table) = if_pinned(tables::VERDICTS.open(pins, Access::ReadOnly))? else { return Ok(()) };
    table.each_batch(|keys, rows| {
        keys.iter().zip(rows).for_each(|(key, row)| each(key, row));
        Ok(())
    })
}

fn all(names: &Names, users: &Users, rows: &[(VerdictKey, VerdictRow)]) -> Document {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for (key, _) in rows {
        *counts.entry(key.asked.set).or_default() += 1;
    }
    let numbers: BTreeSet<u32> = names.sets().chain(users.keys().chain(counts.keys()).copied()).collect();
    let record = |number: u32| {
        let set = names.set(number);
        let of = users.get(&number);
        Record::new()
            .with("set", Cell::Number(number.into()))
            .and(head(set))
            .with("endpoints", Cell::Number(of.map_or(0, BTreeSet::len) as u64))
            .with("rules", set.map_or(Cell::Absent, |set| Cell::Number(set.len as u64)))
            .with("rows", Cell::Number(counts.get(&number).copied().unwrap_or(0)))
            .with("isolation", Cell::Text(isolation(names, rows, number).into()))
    };
    let records: Vec<Record> = numbers.into_iter().map(record).collect();
    listed(names, List::of("sets", records), "no rule sets: no pod of this node is isolated")
}

/// What isolates, by the catalogue, or by the head of anybody where that denies.
fn isolation(names: &Names, rows: &[(VerdictKey, VerdictRow)], number: u32) -> String {
    match names.set(number) {
        Some(set) => names.cookie_text(set.isolation),
        None => {
            let denies = |row: &VerdictRow| row.flags & V_ALLOW == 0;
            let head = rows.iter().find(|(key, row)| *key == VerdictKey::head(number, 0) && denies(row));
            head.map_or_else(|| "unknown to the catalogue".to_owned(), |(_, row)| names.cookie_text(row.cookie))
        }
    }
}

fn head(set: Option<&SetHead>) -> Record {
    Record::new()
        .with("direction", set.map_or(Cell::Absent, |set| Cell::name(direction_name(set.direction))))
        .with("policies", set.map_or(Cell::Absent, |set| policies_cell(&set.policies)))
}

fn one(names: Names, users: &Users, mut rows: Vec<(VerdictKey, VerdictRow)>, number: u32) -> Result<Document, Failure> {
    let set = names.set(number).cloned();
    let of = users.get(&number);
    if set.is_none() && of.is_none() && rows.is_empty() {
        return Err(Failure::Unknown(format!("there is no rule set {number}")));
    }
    rows.sort_unstable_by_key(|(key, _)| *key);
    let endpoints: Vec<Record> = of
        .into_iter()
        .flatten()
        .map(|slot| Record::new().with("slot", Cell::Number((*slot).into())).with("pod", names.pod_cell(*slot)))
        .collect();
    let rules: Vec<Record> = names.rules(number).iter().map(|rule| rule_record(&names, rule)).collect();
    let stale = names.stale().to_vec();
    let sentence = match &set {
        Some(set) => {
            let policies = match set.policies.is_empty() {
                true => names.cookie_text(set.isolation),
                false => policies_text(&set.policies),
            };
            format!("rule set {number}: {} of {policies}", direction_name(set.direction))
        }
        None => format!("rule set {number}: unknown to the catalogue"),
    };
    let isolation = Cell::Text(isolation(&names, &rows, number).into());
    let (len, names) = (rows.len(), Rc::new(names));
    let rows = List::new("rows", len, move |index| {
        let (key, row) = rows.get(index)?;
        Some(row_record(&names, key, row))
    });
    let document = Document::new({
        let stale = stale.clone();
        move |document, page| {
            page.heading(&sentence)?;
            say_stale(page, &stale)?;
            for (list, none) in document.lists.iter().zip(["no endpoint has it", "no rules", "no verdict rows"]) {
                page.line("")?;
                match list.len() {
                    0 => page.line(none)?,
                    // The text of a key says all of it.
                    _ => page.table(|| list.rows().map(|row| KEY.into_iter().fold(row, Record::without)))?,
                }
            }
            Ok(())
        }
    });
    let mut document = document.with("set", Cell::Number(number.into()));
    for (name, cell) in head(set.as_ref()).with("isolation", isolation).iter() {
        document = document.with(name, cell.clone());
    }
    Ok(document
        .with("stale", texts(stale))
        .list(List::of("endpoints", endpoints))
        .list(List::of("rules", rules))
        .list(rows))
}

/// A rule of a set, its peers in words.
fn rule_record(names: &Names, rule: &SetRule) -> Record {
    let peers = match &rule.peers {
        None => Cell::name("anybody"),
        Some(atoms) => texts(atoms.iter().map(|atom| names.atom_text(*atom))),
    };
    let named = rule.named.iter().map(|(atom, _)| names.atom_text(*atom));
    let ports = match &rule.ports {
        None => Cell::name("all"),
        Some(ports) => texts(ports.iter().map(ports_text)),
    };
    Record::new()
        .with("cookie", Cell::Number(rule.cookie.into()))
        .with("peers", peers)
        .with("ports", ports)
        .with("named_ports", texts(named))
        .with("rule", Cell::Text(names.cookie_text(rule.cookie).into()))
}

fn ports_text(ports: &Ports) -> String {
    let proto = protocol::text(ports.protocol);
    match (ports.first, ports.last) {
        (0, u16::MAX) => proto.into_owned(),
        (first, last) if first == last => format!("{proto} {first}"),
        (first, last) => format!("{proto} {first}-{last}"),
    }
}

fn row_record(names: &Names, key: &VerdictKey, row: &VerdictRow) -> Record {
    let class = match key.asked.class {
        0 => Some(vec!["anybody else".to_owned()]),
        class => names.class_atoms(class),
    };
    let class = class.unwrap_or_else(|| vec!["unknown to the catalogue".to_owned()]);
    Record::new()
        .with("key_text", Cell::Text(policy::text(key).into()))
        .and(policy::key(key))
        .with("peer", texts(class))
        .and(policy::value(row))
        .with("reason", Cell::Text(names.cookie_text(row.cookie).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_as_in_a_policy() {
        let ports = |first, last| ports_text(&Ports { protocol: 6, first, last });
        assert_eq!([ports(0, 65535), ports(80, 80), ports(80, 81)], ["tcp", "tcp 80", "tcp 80-81"]);
    }
}
