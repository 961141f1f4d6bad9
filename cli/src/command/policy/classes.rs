//! `osmia policy classes`: addresses that all rules in use treat alike.

use std::collections::{BTreeMap, BTreeSet};

use osmia_maps::{
    Access, Pins,
    decode::{Cell, Record},
    layout::{Addr, Meta, RouteKey},
    tables,
};

use super::{listed, say_stale};
use crate::{
    arguments::Common,
    command::{
        if_pinned,
        names::{Names, texts},
    },
    failure::Failure,
    render::{Document, List},
};

pub(super) fn run(pins: &Pins, common: &Common, meta: &Meta, class: Option<u32>) -> Result<Document, Failure> {
    let addresses = if_pinned(tables::PEERS.open(pins, Access::ReadOnly))?.map(|table| table.rows()).transpose()?;
    let ranges = if_pinned(tables::PEER_BLOCKS.open(pins, Access::ReadOnly))?.map(|table| table.rows()).transpose()?;
    let (addresses, ranges) = (addresses.unwrap_or_default(), ranges.unwrap_or_default());
    let names = Names::read(common, meta);
    match class {
        None => Ok(all(&names, &addresses, &ranges)),
        Some(class) => one(&names, addresses, ranges, class),
    }
}

/// A class in words.
fn peers(names: &Names, class: u32) -> Cell {
    match names.class_atoms(class) {
        _ if class == 0 => Cell::name("whom no rule in use speaks of"),
        Some(atoms) => texts(atoms),
        None => Cell::name("unknown to the catalogue"),
    }
}

fn all(names: &Names, addresses: &[(Addr, u32)], ranges: &[(RouteKey, u32)]) -> Document {
    let mut counts: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    for class in names.classes() {
        counts.entry(class).or_default();
    }
    addresses.iter().for_each(|(_, class)| counts.entry(*class).or_default()[0] += 1);
    ranges.iter().for_each(|(_, class)| counts.entry(*class).or_default()[1] += 1);
    let record = |(class, [addresses, ranges]): (&u32, &[u64; 2])| {
        Record::new()
            .with("class", Cell::Number((*class).into()))
            .with("addresses", Cell::Number(*addresses))
            .with("ranges", Cell::Number(*ranges))
            .with("peers", peers(names, *class))
    };
    let records = counts.iter().map(record).collect();
    listed(names, List::of("classes", records), "no classes: no rule in use speaks of anybody")
}

fn one(
    names: &Names,
    addresses: Vec<(Addr, u32)>,
    ranges: Vec<(RouteKey, u32)>,
    class: u32,
) -> Result<Document, Failure> {
    let addresses: BTreeSet<Addr> = addresses.into_iter().filter(|row| row.1 == class).map(|row| row.0).collect();
    let ranges: BTreeSet<(Addr, u32)> =
        ranges.into_iter().filter(|row| row.1 == class).map(|row| (Addr(row.0.addr), row.0.bits)).collect();
    if class != 0 && addresses.is_empty() && ranges.is_empty() && names.class_atoms(class).is_none() {
        return Err(Failure::Unknown(format!("there is no class {class}")));
    }
    let atoms = names.signature(class).unwrap_or_default();
    let atoms = atoms.iter().map(|(atom, port)| {
        Record::new()
            .with("atom", Cell::Number((*atom).into()))
            .with("port", Cell::nonzero(*port))
            .with("peer", Cell::Text(names.atom_text(*atom).into()))
    });
    let atoms: Vec<Record> = atoms.collect();
    let addresses =
        addresses.into_iter().map(|address| Record::new().with("address", Cell::Address(address))).collect();
    let ranges = ranges.into_iter().map(|(addr, bits)| Record::new().with("range", Cell::Prefix(addr, bits))).collect();
    let stale = names.stale().to_vec();
    let sentence = format!("class {class}: {}", peers(names, class));
    let document = Document::new({
        let stale = stale.clone();
        move |document, page| {
            page.heading(&sentence)?;
            say_stale(page, &stale)?;
            for (list, none) in document.lists.iter().zip(["no peer speaks of it", "no addresses", "no ranges"]) {
                page.line("")?;
                match list.len() {
                    0 => page.line(none)?,
                    _ => page.table(|| list.rows())?,
                }
            }
            Ok(())
        }
    });
    Ok(document
        .with("class", Cell::Number(class.into()))
        .with("stale", texts(stale))
        .list(List::of("atoms", atoms))
        .list(List::of("addresses", addresses))
        .list(List::of("ranges", ranges)))
}
