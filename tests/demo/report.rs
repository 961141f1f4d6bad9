//! What came of each row.

use std::collections::BTreeMap;

/// A note to show, or why it failed.
pub(crate) type Outcome = Result<String, String>;

/// Outcomes by row.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: BTreeMap<String, Outcome>,
}

/// How many rows came to what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sum {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
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

    pub(crate) fn sum(&self) -> Sum {
        let passed = self.rows.values().filter(|outcome| outcome.is_ok()).count();
        Sum { passed, failed: self.rows.len() - passed }
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
    fn every_row_counts() {
        let mut report = Report::default();
        report.put("a".into(), Ok(String::new()));
        report.put("b".into(), Err("why".into()));
        assert_eq!(report.sum(), Sum { passed: 1, failed: 1 });
        assert_eq!(report.lines(), "a pass\nb fail why\n");
    }
}
