//! Rows as columns.
//!
//! Invariant: every row has the names of the first one, in its order. A column that is empty in all rows is not shown. The rows are made
//! twice, once for the widths and once to be written, so that they need not all be kept. For the widths a last column that stands left may
//! have any text: nothing is behind it.

use std::{
    fmt::{Display, Write as _},
    io,
    iter::repeat_n,
};

use osmia_maps::decode::{Cell, Record};

use super::Page;

const GAP: &str = "  ";

struct Column {
    title: String,
    width: usize,
    right: bool,
    shown: bool,
}

pub(super) fn write(
    page: &mut Page<'_>,
    measured: impl Iterator<Item = Record>,
    rows: impl Iterator<Item = Record>,
) -> io::Result<()> {
    let mut columns: Vec<Column> = Vec::new();
    let mut text = String::new();
    for row in measured {
        if columns.is_empty() {
            let title = |name: &str| name.to_uppercase().replace('_', " ");
            let column = |name| Column { title: title(name), width: 0, right: true, shown: false };
            columns = row.iter().map(|(name, _)| column(name)).collect();
        }
        for (column, (_, cell)) in columns.iter_mut().zip(row.iter()) {
            column.width = column.width.max(width(cell, &mut text));
            column.shown |= !cell.is_absent();
            column.right &= cell.is_numeric() || cell.is_absent();
        }
    }
    for column in &mut columns {
        column.width = column.width.max(column.title.chars().count());
    }

    let mut line = Line::default();
    for column in columns.iter().filter(|column| column.shown) {
        line.put(&column.title, column.title.chars().count(), column);
    }
    if !columns.is_empty() {
        page.heading(line.end())?;
    }
    for row in rows {
        for (column, (_, cell)) in columns.iter().zip(row.iter()).filter(|(column, _)| column.shown) {
            line.put(cell, width(cell, &mut text), column);
        }
        page.line(line.end())?;
    }
    Ok(())
}

/// Characters that a cell takes: of half a million rows the most are numbers, and texts that need not be written to be measured.
fn width(cell: &Cell, scratch: &mut String) -> usize {
    match cell {
        Cell::Number(number) => number.checked_ilog10().unwrap_or(0) as usize + 1,
        Cell::Text(text) => text.chars().count(),
        Cell::List(cells) if !cells.is_empty() => {
            cells.len() - 1 + cells.iter().map(|cell| width(cell, scratch)).sum::<usize>()
        }
        _ => {
            scratch.clear();
            // Writing to a string cannot fail.
            let _ = write!(scratch, "{cell}");
            scratch.chars().count()
        }
    }
}

#[derive(Default)]
struct Line {
    now: String,
    last: String,
}

impl Line {
    /// Something that takes `width`.
    fn put(&mut self, text: &dyn Display, width: usize, column: &Column) {
        let spaces = repeat_n(' ', column.width.saturating_sub(width));
        let (before, behind) = if column.right { (spaces, repeat_n(' ', 0)) } else { (repeat_n(' ', 0), spaces) };
        self.now.extend(before);
        // Writing to a string cannot fail.
        let _ = write!(self.now, "{text}");
        self.now.extend(behind);
        self.now.push_str(GAP);
    }

    /// The line so far; the next one starts.
    fn end(&mut self) -> &str {
        std::mem::swap(&mut self.now, &mut self.last);
        self.now.clear();
        self.last.trim_end()
    }
}

#[cfg(test)]
mod tests {
    use super::super::page;

    use super::*;

    fn row(name: &'static str, packets: Cell, note: Cell) -> Record {
        Record::new().with("name", Cell::name(name)).with("new_packets", packets).with("note", note)
    }

    fn table(rows: &[Record]) -> String {
        page::text(|page| page.table(|| rows.iter().cloned()))
    }

    #[test]
    fn numbers_stand_right_and_empty_columns_are_left_out() {
        let rows = [
            row("a", Cell::Number(5), Cell::Absent),
            row("longer", Cell::Number(1_000_000_000_000), Cell::Absent),
            row("b", Cell::Absent, Cell::Absent),
        ];
        assert_eq!(
            table(&rows),
            "\
NAME      NEW PACKETS
a                   5
longer  1000000000000
b                   -
"
        );
    }

    #[test]
    fn what_is_measured_is_what_is_written() {
        let text = |text: &'static str| Cell::name(text);
        for cell in [
            Cell::Number(0),
            Cell::Number(9),
            Cell::Number(10),
            Cell::Number(u64::MAX),
            text(""),
            text("äöü"),
            Cell::List(vec![]),
            Cell::List(vec![text("a")]),
            Cell::List(vec![Cell::List(vec![]), Cell::Absent, text("bc"), Cell::Number(100), Cell::Bool(true)]),
            Cell::Size(1536),
        ] {
            assert_eq!(width(&cell, &mut String::new()), cell.to_string().chars().count(), "{cell:?}");
        }
    }

    #[test]
    fn the_last_column_needs_no_measure() {
        let rows = |note| [row("a", Cell::Number(1), note), row("bc", Cell::Number(22), Cell::name("xyz"))].into_iter();
        let by =
            |measured| page::text(|page| page.measured_table(rows(measured), rows(Cell::name("as long as it is"))));
        assert_eq!(by(Cell::name("as long as it is")), by(Cell::name("")));
    }

    #[test]
    fn no_line_ends_in_spaces() {
        let rows = [row("a", Cell::Number(1), Cell::name("x")), row("b", Cell::Number(2), Cell::Absent)];
        assert_eq!(table(&rows), "NAME  NEW PACKETS  NOTE\na               1  x\nb               2  -\n");
        assert_eq!(table(&[]), "");
    }
}
