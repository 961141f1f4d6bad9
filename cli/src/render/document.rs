//! What a command found: members for JSON, and how a person is shown them.
//!
//! Invariant: JSON is complete and its members do not depend on what was found; the text may leave out what is not there.

use std::io;

use osmia_maps::{
    decode::{Cell, Record},
    layout::LAYOUT,
};
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::Page;

/// Makes row `index` of a list.
type MakeRow = Box<dyn Fn(usize) -> Option<Record>>;

/// Rows that are decoded when they are shown: a full flow table decoded at once would be hundreds of megabytes.
pub(crate) struct List {
    /// Name of the member.
    pub(crate) name: &'static str,
    len: usize,
    row: MakeRow,
}

impl List {
    pub(crate) fn new(name: &'static str, len: usize, row: impl Fn(usize) -> Option<Record> + 'static) -> Self {
        Self { name, len, row: Box::new(row) }
    }

    pub(crate) fn of(name: &'static str, rows: Vec<Record>) -> Self {
        Self::new(name, rows.len(), move |index| rows.get(index).cloned())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Record> {
        (0..self.len).filter_map(|index| (self.row)(index))
    }
}

impl Serialize for List {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.rows())
    }
}

/// Writes a document for a person.
type WriteText = Box<dyn Fn(&Document, &mut Page<'_>) -> io::Result<()>>;

/// What a command found.
pub(crate) struct Document {
    /// Single members.
    pub(crate) head: Record,
    /// Members that are lists.
    pub(crate) lists: Vec<List>,
    /// What the process ends with.
    pub(crate) exit_code: u8,
    /// How a person is shown it.
    text: WriteText,
}

impl Document {
    /// Starts with the layout, which is a member of every document.
    pub(crate) fn new(text: impl Fn(&Self, &mut Page<'_>) -> io::Result<()> + 'static) -> Self {
        let head = Record::new().with("layout", Cell::Number(LAYOUT.into()));
        Self { head, lists: Vec::new(), exit_code: 0, text: Box::new(text) }
    }

    pub(crate) fn with(mut self, name: &'static str, cell: Cell) -> Self {
        self.head = self.head.with(name, cell);
        self
    }

    pub(crate) fn ending(mut self, exit_code: u8) -> Self {
        self.exit_code = exit_code;
        self
    }

    pub(crate) fn list(mut self, list: List) -> Self {
        self.lists.push(list);
        self
    }

    pub(crate) fn write_text(&self, page: &mut Page<'_>) -> io::Result<()> {
        (self.text)(self, page)
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        for (name, cell) in self.head.iter() {
            map.serialize_entry(name, cell)?;
        }
        for list in &self.lists {
            map.serialize_entry(list.name, list)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_an_empty_list_is_a_list() {
        let row = Record::new().with("z", Cell::Number(1)).with("a", Cell::Absent);
        let document = Document::new(|_, _| Ok(()))
            .with("total", Cell::Number(2))
            .list(List::of("flows", vec![row.clone(), row]))
            .list(List::of("none", Vec::new()));
        assert_eq!(
            serde_json::to_string(&document).unwrap(),
            format!(r#"{{"layout":{LAYOUT},"total":2,"flows":[{{"z":1,"a":null}},{{"z":1,"a":null}}],"none":[]}}"#)
        );
    }
}
