//! The lines in which a guest reports, one definition for the writer (process 1) and the reader (the test).
//!
//! A name holds no white space; a detail is the rest of the line and never spans two. Anything else on the console is the kernel's.

use std::fmt;
use std::str::FromStr;

/// One line of the guest's report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// `CHECK name ok|FAIL detail`
    Check {
        /// What was checked, `object/step/program/hook` as far as it applies.
        name: String,
        /// Whether it held.
        ok: bool,
        /// What was seen.
        detail: String,
    },
    /// `LOG name text`: one line of the verifier's log for a check that failed; stands before its `CHECK`.
    Log {
        /// The name of the check.
        name: String,
        /// The line.
        text: String,
    },
    /// `DONE n passed m failed`: the last line; without it the guest died or hung.
    Done {
        /// Checks that held.
        passed: usize,
        /// Checks that did not.
        failed: usize,
    },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check { name, ok, detail } => {
                write!(f, "CHECK {name} {} {}", if *ok { "ok" } else { "FAIL" }, detail.replace(['\n', '\r'], " "))
            }
            Self::Log { name, text } => write!(f, "LOG {name} {}", text.replace(['\n', '\r'], " ")),
            Self::Done { passed, failed } => write!(f, "DONE {passed} passed {failed} failed"),
        }
    }
}

/// A line that is not the report's: the kernel's own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotOurs;

impl FromStr for Line {
    type Err = NotOurs;

    fn from_str(line: &str) -> Result<Self, NotOurs> {
        let mut words = line.trim_end().splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("CHECK"), Some(name), Some(verdict @ ("ok" | "FAIL")), detail) => {
                Ok(Self::Check { name: name.into(), ok: verdict == "ok", detail: detail.unwrap_or_default().into() })
            }
            (Some("LOG"), Some(name), first, rest) => {
                let text = [first, rest].into_iter().flatten().collect::<Vec<_>>().join(" ");
                Ok(Self::Log { name: name.into(), text })
            }
            (Some("DONE"), Some(passed), Some("passed"), Some(rest)) => {
                let failed = rest.strip_suffix(" failed").ok_or(NotOurs)?;
                let number = |text: &str| text.parse().map_err(|_| NotOurs);
                Ok(Self::Done { passed: number(passed)?, failed: number(failed)? })
            }
            _ => Err(NotOurs),
        }
    }
}
