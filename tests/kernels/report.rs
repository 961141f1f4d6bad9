//! What a guest printed, read and judged.
//!
//! Invariant: a report is accepted only with its last line, and only if that line counts what was read. A guest that hung, died or
//! lost lines is a failure whatever it had printed before.

use std::fmt::Write as _;

use anyhow::{Result, bail, ensure};

use crate::line::Line;

/// A complete report.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    lines: Vec<Line>,
}

impl Report {
    /// Reads a console. Lines of the kernel's own are passed over.
    pub(crate) fn read(console: &str) -> Result<Self> {
        let mut lines = Vec::new();
        let mut done = None;
        for line in console.lines().filter_map(|line| line.parse().ok()) {
            ensure!(done.is_none(), "the guest went on after its last line: {line}");
            match line {
                Line::Done { passed, failed } => done = Some((passed, failed)),
                line => lines.push(line),
            }
        }
        let Some(counted) = done else { bail!("the guest ended without its last line (DONE)") };
        let report = Self { lines };
        let read = (report.checks(|ok| ok).count(), report.checks(|ok| !ok).count());
        ensure!(counted == read, "the guest counted (passed, failed) = {counted:?}, {read:?} were read");
        ensure!(counted != (0, 0), "the guest checked nothing");
        Ok(report)
    }

    fn checks(&self, wanted: impl Fn(bool) -> bool) -> impl Iterator<Item = (&str, &str)> {
        self.lines.iter().filter_map(move |line| match line {
            Line::Check { name, ok, detail } if wanted(*ok) => Some((name.as_str(), detail.as_str())),
            _ => None,
        })
    }

    /// Checks that held, whose name begins with `prefix`: name and detail.
    pub(crate) fn passed<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.checks(|ok| ok).filter(move |(name, _)| name.starts_with(prefix))
    }

    /// Checks that did not hold, whose name begins with `prefix`: name and detail.
    pub(crate) fn failed<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.checks(|ok| !ok).filter(move |(name, _)| name.starts_with(prefix))
    }

    /// The verifier's log of a check that failed.
    pub(crate) fn log(&self, check: &str) -> String {
        let mut log = String::new();
        for line in &self.lines {
            if let Line::Log { name, text } = line
                && name == check
            {
                let _infallible = writeln!(log, "    {text}");
            }
        }
        log
    }

    /// Every failed check whose name does not begin with `except`, with its verifier log; empty if all held.
    pub(crate) fn complaints(&self, except: &str) -> String {
        let mut text = String::new();
        for (name, detail) in self.failed("").filter(|(name, _)| !name.starts_with(except)) {
            let _infallible = writeln!(text, "{name}: {detail}\n{}", self.log(name));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    const GOOD: &str =
        "[    1.2] booting\r\nCHECK boot/release ok 5.10.0\r\nCHECK a/load/p ok \r\nDONE 2 passed 0 failed\r\n";

    #[test]
    fn a_whole_report_is_accepted() {
        let report = Report::read(GOOD).expect("whole");
        assert_eq!(report.passed("boot/release").collect::<Vec<_>>(), [("boot/release", "5.10.0")]);
        assert_eq!(report.complaints("x/"), "");
    }

    #[test]
    fn a_guest_without_its_last_line_has_failed() {
        let cut = GOOD.replace("DONE 2 passed 0 failed\r\n", "");
        assert!(Report::read(&cut).expect_err("cut").to_string().contains("DONE"));
        let half = GOOD.replace("DONE 2 passed 0 failed\r\n", "DONE 2 pas");
        assert!(Report::read(&half).is_err());
    }

    #[test]
    fn a_lost_check_is_noticed() {
        let lost = GOOD.replace("CHECK a/load/p ok \r\n", "");
        assert!(Report::read(&lost).is_err());
        assert!(Report::read("DONE 0 passed 0 failed\n").is_err(), "nothing checked");
    }

    #[test]
    fn a_refused_program_is_shown_with_the_verifiers_log() {
        let console = "LOG a/load/p R0 !read_ok\nLOG a/load/p processed 1 insns\nCHECK a/load/p FAIL the verifier refused\n\
                       CHECK a/load/q ok \nDONE 1 passed 1 failed\n";
        let report = Report::read(console).expect("whole");
        let complaints = report.complaints("other/");
        assert!(
            complaints.contains("a/load/p: the verifier refused") && complaints.contains("R0 !read_ok"),
            "{complaints}"
        );
        assert_eq!(report.complaints("a/"), "");
    }
}
