//! `osmia policy classes`: addresses that all rules in use treat alike.

use std::{collections::BTreeSet, rc::Rc};

use osmia_maps::{
    Access, Pins,
    decode::{Cell, Record},
    layout::{Addr, Meta, RouteKey},
    tables,
};

use super::{listed_by, say_stale};
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
        None => Ok(all(names, &addresses, &ranges)),
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

fn all(names: Names, addresses: &[(Addr, u32)], ranges: &[(RouteKey, u32)]) -> Document {
    let counts = count(names.classes(), addresses.iter().map(|row| row.1), ranges.iter().map(|row| row.1));
    let (names, counts) = (Rc::new(names), Rc::<[_]>::from(counts));
    let (of, to_measure) = (Rc::clone(&names), Rc::clone(&counts));
    let list = List::new("classes", counts.len(), move |index| {
        let row @ (class, _) = *counts.get(index)?;
        Some(record(row, peers(&of, class)))
    });
    // Whom a class is made of is read from the catalogue, half a million times on a node with as many rules as it takes.
    listed_by(&names, list, "no classes: no rule in use speaks of anybody", move |page, list| {
        page.measured_table(to_measure.iter().map(|row| record(*row, Cell::name(""))), list.rows())
    })
}

fn record((class, [addresses, ranges]): (u32, [u64; 2]), peers: Cell) -> Record {
    Record::with_capacity(4)
        .with("class", Cell::Number(class.into()))
        .with("addresses", Cell::Number(addresses))
        .with("ranges", Cell::Number(ranges))
        .with("peers", peers)
}

/// How many addresses and ranges each class has, by number.
fn count(
    named: impl Iterator<Item = u32>,
    addresses: impl Iterator<Item = u32>,
    ranges: impl Iterator<Item = u32>,
) -> Vec<(u32, [u64; 2])> {
    let named = named.map(|class| (class, [0, 0]));
    let addresses = addresses.map(|class| (class, [1, 0]));
    let mut counts: Vec<(u32, [u64; 2])> = named.chain(addresses).chain(ranges.map(|class| (class, [0, 1]))).collect();
    // Stable: what stands in order already, as names do, costs nothing.
    counts.sort_by_key(|(class, _)| *class);
    counts.dedup_by(|(class, [addresses, ranges]), (of, [all_addresses, all_ranges])| {
        let same = class == of;
        if same {
            *all_addresses += *addresses;
            *all_ranges += *ranges;
        }
        same
    });
    counts
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_counts_what_points_to_it() {
        let counts = count([1, 2, 5].into_iter(), [5, 0, 5].into_iter(), [1, 5].into_iter());
        assert_eq!(counts, [(0, [1, 0]), (1, [0, 1]), (2, [0, 0]), (5, [2, 1])]);
    }
}
