//! Counts the checks and prints their lines.

use std::fmt::Debug;

use anyhow::Result;

use crate::line::Line;

/// How many lines of a verifier's log are printed: the end says what was refused, and the console is a serial line.
const LOG_LINES: usize = 60;

/// The report of this guest so far.
#[derive(Debug, Default)]
pub(crate) struct Reporter {
    passed: usize,
    failed: usize,
}

impl Reporter {
    /// Reports a check whose success is told by a text; `Some` if it held.
    pub(crate) fn check(&mut self, name: &str, outcome: Result<String>) -> Option<()> {
        let (ok, detail) = match outcome {
            Ok(detail) => (true, detail),
            Err(err) => (false, format!("{err:#}")),
        };
        *(if ok { &mut self.passed } else { &mut self.failed }) += 1;
        print(&Line::Check { name: name.into(), ok, detail });
        ok.then_some(())
    }

    /// Reports a check that yields something for the next ones.
    pub(crate) fn value<T: Debug>(&mut self, name: &str, outcome: Result<T>) -> Option<T> {
        match outcome {
            Ok(value) => {
                self.check(name, Ok(format!("{value:?}")));
                Some(value)
            }
            Err(err) => {
                self.check(name, Err(err));
                None
            }
        }
    }

    /// Prints the end of a verifier's log, before the check to which it belongs.
    pub(crate) fn log(&self, name: &str, log: &str) {
        let lines: Vec<&str> = log.lines().collect();
        for text in lines.iter().skip(lines.len().saturating_sub(LOG_LINES)) {
            print(&Line::Log { name: name.into(), text: (*text).to_owned() });
        }
    }

    /// Prints the last line.
    pub(crate) fn done(&self) {
        print(&Line::Done { passed: self.passed, failed: self.failed });
    }
}

#[expect(clippy::print_stdout, reason = "the console is how a guest reports")]
fn print(line: &Line) {
    println!("{line}");
}
