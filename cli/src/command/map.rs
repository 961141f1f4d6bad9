//! `osmia map`: the maps as they are.

use std::rc::Rc;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use osmia_maps::{
    MapError, Pins,
    decode::{Cell, Context, MapView, Record, Rows, catalogue},
    facts::Facts,
};

use super::{if_pinned, sizes};
use crate::{
    failure::Failure,
    render::{Document, List},
};

#[derive(Subcommand, Debug)]
pub(crate) enum Map {
    /// Every map with its kind, rows and memory
    List,
    /// All rows of a map, decoded; the first column is what `map get` takes
    Dump(Dump),
    /// One row of a map by its key
    #[command(after_help = key_help())]
    Get(Get),
}

#[derive(Args, Debug)]
pub(crate) struct Dump {
    /// Name of the map (`osmia map list`)
    name: String,
    /// Rows of arrays that nobody uses as well
    #[arg(long)]
    all: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Get {
    /// Name of the map (`osmia map list`)
    name: String,
    /// The key; its words need no quotes
    key: Vec<String>,
}

/// How the keys of each map are written. Neighbours with the same keys share a line.
fn key_help() -> String {
    let mut help = "Keys:\n".to_owned();
    for views in catalogue::ALL.chunk_by(|a, b| a.key_help() == b.key_help()) {
        let names: Vec<&str> = views.iter().map(|view| view.name()).collect();
        let written = views.first().map_or("", |view| view.key_help());
        help.push_str(&format!("  {}\n      {written}\n", names.join(", ")));
        // There is nothing to learn from a number; of two maps with the same keys one is enough.
        for same in views.chunk_by(|a, b| a.example() == b.example()) {
            if let Some(view) = same.last().filter(|view| view.example().parse::<u32>().is_err()) {
                help.push_str(&format!("      osmia map get {} {}\n", view.name(), view.example()));
            }
        }
    }
    help.push_str(
        "Numbers may be hex (0x1f). Devices have names where the pins are of this network namespace's node.\n",
    );
    help.push_str("Exit code 4: there is no such row.");
    help
}

fn find(name: &str) -> Result<&'static dyn MapView, Failure> {
    catalogue::find(name).ok_or_else(|| {
        let names: Vec<&str> = catalogue::ALL.iter().map(|view| view.name()).collect();
        anyhow!("there is no map `{name}`; there are {}", names.join(", ")).into()
    })
}

/// How full a map is.
#[derive(Debug)]
pub(super) struct Size {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// `None`: not pinned.
    pub(super) seen: Option<(Facts, u32)>,
}

impl Size {
    pub(super) fn of(pins: &Pins, view: &dyn MapView) -> Result<Self, MapError> {
        let facts = if_pinned(view.facts(pins))?;
        let used = if_pinned(view.used(pins))?;
        Ok(Self { name: view.name(), about: view.about(), seen: facts.zip(used) })
    }

    /// Members of JSON, columns of a table.
    pub(super) fn record(&self) -> Record {
        let of =
            |cell: fn(&Facts, u32) -> Cell| self.seen.as_ref().map_or(Cell::Absent, |(facts, used)| cell(facts, *used));
        Record::new()
            .with("map", Cell::name(self.name))
            .with("kind", of(|facts, _| Cell::name(facts.kind)))
            .with("used", of(|_, used| Cell::Number(used.into())))
            .with("max", of(|facts, _| Cell::Number(facts.max.into())))
            .with("memory", of(|facts, _| facts.memory.map_or(Cell::Absent, Cell::Size)))
            .with("key_size", of(|facts, _| Cell::Number(facts.key_size.into())))
            .with("value_size", of(|facts, _| Cell::Number(facts.value_size.into())))
            .with("id", of(|facts, _| Cell::Number(facts.id.into())))
    }
}

impl Map {
    pub(super) fn run(&self, pins: &Pins) -> Result<Document, Failure> {
        match self {
            Self::List => list(pins),
            Self::Dump(dump) => dump.run(pins),
            Self::Get(get) => get.run(pins),
        }
    }
}

fn list(pins: &Pins) -> Result<Document, Failure> {
    pins.check()?;
    let rows = sizes(pins)?.iter().map(|size| size.record().with("about", Cell::name(size.about))).collect();
    let document = Document::new(|document, page| {
        for list in &document.lists {
            page.table(|| list.rows())?;
        }
        Ok(())
    });
    Ok(document.list(List::of("maps", rows)))
}

impl Dump {
    fn run(&self, pins: &Pins) -> Result<Document, Failure> {
        let view = find(&self.name)?;
        let context = Rc::new(Context::read(pins)?);
        let rows: Rc<dyn Rows> = view.rows(pins, self.all)?.into();
        let (len, of) = (rows.len(), Rc::clone(&context));
        let shown = Rc::clone(&rows);
        let list = List::new("rows", len, move |index| {
            let row = rows.row(index, &of)?;
            let record = Record::new().with("key_text", Cell::Text(row.text.into()));
            Some(record.with("key", Cell::Record(row.key)).with("value", Cell::Record(row.value)))
        });
        let document = Document::new(move |_, page| {
            if len == 0 {
                return page.line("no rows");
            }
            // The text says all of a key but a device's name.
            page.table(|| {
                (0..len).filter_map(|index| {
                    let row = shown.row(index, &context)?;
                    let record = Record::new().with("key", Cell::Text(row.text.into()));
                    let named = row.key.iter().filter(|(_, cell)| matches!(cell, Cell::Device(_, Some(_))));
                    let named = named.fold(record, |record, (name, cell)| record.with(name, cell.clone()));
                    Some(named.and(row.value))
                })
            })
        });
        Ok(document.with("map", Cell::name(view.name())).list(list))
    }
}

impl Get {
    fn run(&self, pins: &Pins) -> Result<Document, Failure> {
        let view = find(&self.name)?;
        let context = Context::read(pins)?;
        let key = self.key.join(" ");
        let row = view.get(pins, &context, &key)?.ok_or(Failure::NoRow { map: view.name(), key })?;
        let document = Document::new(|document, page| {
            let parts = ["key", "value"].into_iter().filter_map(|part| match document.head.get(part) {
                Some(Cell::Record(record)) => Some(record),
                _ => None,
            });
            for (name, cell) in parts.flat_map(Record::iter) {
                page.line(format_args!("{name:<18}{cell}"))?;
            }
            Ok(())
        });
        Ok(document
            .with("map", Cell::name(view.name()))
            .with("key_text", Cell::Text(row.text.into()))
            .with("key", Cell::Record(row.key))
            .with("value", Cell::Record(row.value)))
    }
}
