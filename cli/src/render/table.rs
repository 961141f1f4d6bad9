//! Rows as columns.
//!
//! Invariant: every row has the names of the first one, in its order. A column that is empty in all rows is not shown. The rows are made
//! twice, once for the widths and once to be written, so that they need not all be kept.

use std::{fmt::Write as _, io};

use osmia_maps::decode::Record;

use super::Page;

const GAP: &str = "  ";

struct Column {
    title: String,
    width: usize,
    right: bool,
    shown: bool,
}

pub(super) fn write<I: Iterator<Item = Record>>(page: &mut Page<'_>, rows: impl Fn() -> I) -> io::Result<()> {
    let mut columns: Vec<Column> = Vec::new();
    let mut text = String::new();
    for row in rows() {
        if columns.is_empty() {
            let title = |name: &str| name.to_uppercase().replace('_', " ");
            let column = |name| Column { title: title(name), width: 0, right: true, shown: false };
            columns = row.iter().map(|(name, _)| column(name)).collect();
        }
        for (column, (_, cell)) in columns.iter_mut().zip(row.iter()) {
            text.clear();
            // Writing to a string cannot fail.
            let _ = write!(text, "{cell}");
            column.width = column.width.max(text.chars().count());
            column.shown |= !cell.is_absent();
            column.right &= cell.is_numeric() || cell.is_absent();
        }
    }
    for column in &mut columns {
        column.width = column.width.max(column.title.chars().count());
    }

    let mut line = Line::default();
    for column in columns.iter().filter(|column| column.shown) {
        line.put(&column.title, column);
    }
    if !columns.is_empty() {
        page.heading(line.end())?;
    }
    for row in rows() {
        for (column, (_, cell)) in columns.iter().zip(row.iter()).filter(|(column, _)| column.shown) {
            text.clear();
            let _ = write!(text, "{cell}");
            line.put(&text, column);
        }
        page.line(line.end())?;
    }
    Ok(())
}

#[derive(Default)]
struct Line {
    now: String,
    last: String,
}

impl Line {
    fn put(&mut self, text: &str, column: &Column) {
        let width = column.width;
        // Writing to a string cannot fail.
        let _ = match column.right {
            true => write!(self.now, "{text:>width$}{GAP}"),
            false => write!(self.now, "{text:<width$}{GAP}"),
        };
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
    use osmia_maps::decode::Cell;

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
    fn no_line_ends_in_spaces() {
        let rows = [row("a", Cell::Number(1), Cell::name("x")), row("b", Cell::Number(2), Cell::Absent)];
        assert_eq!(table(&rows), "NAME  NEW PACKETS  NOTE\na               1  x\nb               2  -\n");
        assert_eq!(table(&[]), "");
    }
}
