//! Shows what a command finds, once or again and again.

use std::{
    io::{self, BufWriter, IsTerminal as _, Write},
    process::ExitCode,
    thread,
};

use super::{Document, Page};
use crate::{arguments::Common, failure::Failure};

/// Cursor home and erase below: less flicker than erasing first.
const HOME: &str = "\x1b[H";
const ERASE_BELOW: &str = "\x1b[J";

/// Runs the command and shows what it finds. A failure ends it, unless it is watched: pins come and go while an agent is replaced.
pub(crate) fn show(common: &Common, find: impl Fn() -> Result<Document, Failure>) -> ExitCode {
    let terminal = io::stdout().is_terminal();
    let form = Form {
        json: common.json,
        watched: common.watch.is_some(),
        terminal,
        colour: terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    loop {
        let found = find();
        match form.write(&mut out, &found) {
            Ok(()) => {}
            // Who reads us has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Err(error) => {
                complain(&format!("writing: {error}"));
                return ExitCode::FAILURE;
            }
        }
        if let Err(failure) = &found
            && !(form.watched && form.terminal && !form.json)
        {
            complain(&failure.message());
        }
        match (common.watch, found) {
            (Some(interval), _) => thread::sleep(interval),
            (None, Ok(document)) => return ExitCode::from(document.exit_code),
            (None, Err(failure)) => return ExitCode::from(failure.exit_code()),
        }
    }
}

fn complain(message: &str) {
    // There is nowhere to say that this failed.
    let _ = writeln!(io::stderr(), "osmia: {message}");
}

struct Form {
    json: bool,
    watched: bool,
    terminal: bool,
    colour: bool,
}

impl Form {
    fn write(&self, out: &mut dyn Write, found: &Result<Document, Failure>) -> io::Result<()> {
        match (self.json, found) {
            (true, Ok(document)) => self.json(out, document)?,
            (true, Err(failure)) => self.json(out, &failure.record())?,
            (false, found) => self.text(out, found)?,
        }
        out.flush()
    }

    fn json(&self, out: &mut dyn Write, document: &impl serde::Serialize) -> io::Result<()> {
        // Indented for a person who looks; a program gets a line.
        match self.terminal && !self.watched {
            true => serde_json::to_writer_pretty(&mut *out, document)?,
            false => serde_json::to_writer(&mut *out, document)?,
        }
        writeln!(out)
    }

    fn text(&self, out: &mut dyn Write, found: &Result<Document, Failure>) -> io::Result<()> {
        let redraw = self.watched && self.terminal;
        let mut text = Vec::new();
        let mut page = Page::new(&mut text, self.colour);
        match found {
            Ok(document) => document.write_text(&mut page)?,
            // Elsewhere it is said on stderr.
            Err(failure) if redraw => page.bad(failure.message())?,
            Err(_) => {}
        }
        if redraw {
            let erase_line = "\x1b[K\n";
            out.write_all(HOME.as_bytes())?;
            out.write_all(String::from_utf8_lossy(&text).replace('\n', erase_line).as_bytes())?;
            return out.write_all(ERASE_BELOW.as_bytes());
        }
        out.write_all(&text)?;
        if self.watched { writeln!(out) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use osmia_maps::{LayoutError, decode::Cell};

    use super::*;

    fn written(form: &Form, found: Result<Document, Failure>) -> String {
        let mut out = Vec::new();
        form.write(&mut out, &found).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn document() -> Document {
        Document::new(|_, page| page.line("two\nlines")).with("n", Cell::Number(1))
    }

    fn nothing() -> Failure {
        LayoutError::Nothing { root: "/pins".into() }.into()
    }

    #[test]
    fn watched_json_is_a_document_a_line_also_when_it_fails() {
        let form = Form { json: true, watched: true, terminal: false, colour: false };
        assert_eq!(written(&form, Ok(document())).matches('\n').count(), 1);
        let failed = written(&form, Err(nothing()));
        assert!(failed.starts_with(r#"{"error":{"kind":"nothing_pinned""#), "{failed}");
        assert_eq!(failed.matches('\n').count(), 1);
    }

    #[test]
    fn a_redraw_leaves_nothing_of_the_last_one() {
        let form = Form { json: false, watched: true, terminal: true, colour: false };
        assert_eq!(written(&form, Ok(document())), "\x1b[Htwo\x1b[K\nlines\x1b[K\n\x1b[J");
        assert!(written(&form, Err(nothing())).contains("nothing is pinned"));
    }

    #[test]
    fn text_for_a_file_has_no_escapes() {
        let form = Form { json: false, watched: false, terminal: false, colour: false };
        assert_eq!(written(&form, Ok(document())), "two\nlines\n");
        assert_eq!(written(&form, Err(nothing())), "", "it is said on stderr");
    }
}
