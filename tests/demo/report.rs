//! What came of each row.

use std::collections::BTreeMap;

use crate::claims::Claims;

/// A note to show, or why it failed.
pub(crate) type Outcome = Result<String, String>;

/// Outcomes by row.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: BTreeMap<String, Outcome>,
}

/// How many rows decided what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Not claimed, and failing.
    pub(crate) open: usize,
    /// Not claimed, and passing.
    pub(crate) unclaimed: usize,
}

impl Report {
    pub(crate) fn put(&mut self, id: String, outcome: Outcome) {
        self.rows.insert(id, outcome);
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Outcome> {
        self.rows.get(id)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        self.rows.iter().map(|(id, outcome)| (id.as_str(), outcome))
    }

    pub(crate) fn sum(&self, claims: Option<&Claims>) -> Sum {
        let mut sum = Sum::default();
        for (id, outcome) in self.rows() {
            let counter = match (claims.is_none_or(|c| c.has(id)), outcome) {
                (true, Ok(_)) => &mut sum.passed,
                (true, Err(_)) => &mut sum.failed,
                (false, Ok(_)) => &mut sum.unclaimed,
                (false, Err(_)) => &mut sum.open,
            };
            *counter += 1;
        }
        sum
    }

    /// A line a row, for programs.
    pub(crate) fn lines(&self) -> String {
        let line = |(id, outcome): (&str, &Outcome)| match outcome {
            Ok(note) => format!("{id} pass {note}").trim_end().to_owned() + "\n",
            Err(why) => format!("{id} fail {}\n", why.replace('\n', " ")),
        };
        self.rows().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_claims_every_row_counts() {
        let mut report = Report::default();
        report.put("a".into(), Ok(String::new()));
        report.put("b".into(), Err("why".into()));
        assert_eq!(report.sum(None), Sum { passed: 1, failed: 1, ..Sum::default() });
        assert_eq!(report.lines(), "a pass\nb fail why\n");
    }
}
