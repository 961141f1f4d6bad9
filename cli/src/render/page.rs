//! Where text goes, with or without colour.

use std::{
    fmt::Display,
    io::{self, Write},
};

use clap::builder::styling::{AnsiColor, Style};
use osmia_maps::decode::Record;

use super::table;

const BAD: Style = AnsiColor::Red.on_default().bold();
const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
const HEADING: Style = Style::new().bold();

/// Text on its way out.
pub(crate) struct Page<'a> {
    out: &'a mut dyn Write,
    colour: bool,
}

impl<'a> Page<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, colour: bool) -> Self {
        Self { out, colour }
    }

    pub(crate) fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Something that is wrong: red.
    pub(crate) fn bad(&mut self, text: impl Display) -> io::Result<()> {
        self.styled(BAD, text)
    }

    /// Something that may be wrong: yellow.
    pub(crate) fn doubtful(&mut self, text: impl Display) -> io::Result<()> {
        self.styled(DOUBTFUL, text)
    }

    pub(crate) fn heading(&mut self, text: impl Display) -> io::Result<()> {
        self.styled(HEADING, text)
    }

    /// Rows of one shape as columns; see [`table`].
    pub(crate) fn table<I: Iterator<Item = Record>>(&mut self, rows: impl Fn() -> I) -> io::Result<()> {
        table::write(self, rows(), rows())
    }

    /// The same where rows are dear: `measured` are they, but for the text of their last column.
    pub(crate) fn measured_table(
        &mut self,
        measured: impl Iterator<Item = Record>,
        rows: impl Iterator<Item = Record>,
    ) -> io::Result<()> {
        table::write(self, measured, rows)
    }

    fn styled(&mut self, style: Style, text: impl Display) -> io::Result<()> {
        match self.colour {
            true => writeln!(self.out, "{style}{text}{style:#}"),
            false => writeln!(self.out, "{text}"),
        }
    }
}

/// What `write` puts on a page, without colour.
#[cfg(test)]
pub(crate) fn text(write: impl FnOnce(&mut Page<'_>) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut Page::new(&mut out, false)).unwrap();
    String::from_utf8(out).unwrap()
}
