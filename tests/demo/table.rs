//! The table as people read it.

use std::collections::BTreeMap;
use std::fmt::Write;

use osmia_lab::{Encap, Proto};

use crate::report::{Outcome, Report, Sum};
use crate::rows::{self, CELLS, Relation, Story, Told};

const WIDTH: usize = 30;

/// The table of one way.
pub(crate) fn of(encap: Encap, report: &Report) -> String {
    let mut text = format!("\n{:WIDTH$}", format!("--encap {}", encap.name()));
    for proto in Proto::ALL {
        for family in ["v4", "v6"] {
            let _ = write!(text, "{:>9}", format!("{} {family}", proto.name().to_uppercase()));
        }
    }
    text.push('\n');
    for relation in Relation::ALL {
        let _ = write!(text, "{:WIDTH$}", relation.title());
        for proto in Proto::ALL {
            for v6 in [false, true] {
                let id = rows::packet(encap, relation, proto, v6);
                let _ = write!(text, "{:>9}", mark(report.get(&id)));
            }
        }
        text.push('\n');
    }
    let single = |id: String, title: &str| {
        let outcome = report.get(&id);
        let note = outcome.and_then(|o| o.as_ref().ok()).map(String::as_str).unwrap_or_default();
        format!("{title:WIDTH$}{:>9}   {note}", mark(outcome)).trim_end().to_owned() + "\n"
    };
    text += &single(rows::wire(encap, false), "on the wire, one subnet");
    if encap == Encap::Auto {
        text += &single(rows::wire(encap, true), "on the wire, across");
    }
    text += &single(rows::maps(encap), "maps by osmia");
    text += &policies(encap, report);
    for told in Told::ALL {
        text += &single(rows::told(encap, told), told.title());
    }
    text += &single(rows::kill(encap), "agents killed under load");
    text
}

/// The rows of policy: clients on the server's node, and on another.
fn policies(encap: Encap, report: &Report) -> String {
    let mut text = format!("{:WIDTH$}", "NetworkPolicy, client is");
    for head in ["near v4", "near v6", "far v4", "far v6"] {
        let _ = write!(text, "{head:>9}");
    }
    text.push('\n');
    for story in Story::all() {
        let _ = write!(text, "{:WIDTH$}", story.title());
        for cell in CELLS {
            let _ = write!(text, "{:>9}", mark(report.get(&rows::policy(encap, story, cell))));
        }
        text.push('\n');
    }
    text
}

fn mark(outcome: Option<&Outcome>) -> &'static str {
    if outcome.is_some_and(Result::is_ok) { "pass" } else { "FAIL" }
}

/// Why rows failed, and the last line.
pub(crate) fn end(report: &Report, sum: Sum) -> String {
    let mut text = String::new();
    // Rows that fail alike are told once.
    let mut reasons = BTreeMap::<&str, Vec<&str>>::new();
    for (id, outcome) in report.rows() {
        if let Err(why) = outcome {
            reasons.entry(why).or_default().push(id);
        }
    }
    for (why, ids) in reasons {
        let names = match ids.as_slice() {
            [first, second, third, _, ..] => format!("{first}, {second}, {third} and {} more", ids.len() - 3),
            few => few.join(", "),
        };
        let _ = writeln!(text, "failed: {names}\n    {why}");
    }
    let _ = writeln!(text, "\n{} passed, {} failed", sum.passed, sum.failed);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_in_the_counts_and_says_each_reason_once() {
        let mut report = Report::default();
        for id in rows::ids(Encap::Vxlan) {
            report.put(id, Err("no agent".into()));
        }
        let text = end(&report, report.sum());
        assert!(text.ends_with("\n0 passed, 89 failed\n"), "{text}");
        assert_eq!(text.matches("no agent").count(), 1);
        assert!(of(Encap::Vxlan, &report).contains("FAIL"));
    }
}
