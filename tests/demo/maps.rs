//! The maps of a node by the command line tool, as an operator would look at them.

use osmia_lab::{Ended, Lab, Node};

use crate::guests::{Guest, Guests, HOME, need};
use crate::report::Outcome;

/// Lines of each command that are shown.
const SHOWN: usize = 12;

/// Runs the commands on [`HOME`]; gives the outcome of the row and what to show.
pub(crate) fn show(lab: &Lab, guests: &Guests) -> (Outcome, String) {
    let node = &lab.nodes[HOME];
    let [client, remote, unlisted] = [&guests.client, &guests.remote, &guests.unlisted].map(address);
    let near = lab.nodes[crate::guests::NEAR].v4().to_string();
    // What each must name, and the twin: whose row is withheld is not shown.
    let commands: [(&[&str], Vec<&str>, Option<&str>); 7] = [
        (&["status"], vec![&node.name], None),
        (&["map", "list"], vec!["flow4", "endpoint_addr"], None),
        (&["map", "dump", "nodes"], vec![&near], None),
        (&["map", "dump", "endpoint_addr"], client.as_deref().into_iter().collect(), unlisted.as_deref().ok()),
        (&["endpoint", "list"], client.as_deref().into_iter().collect(), None),
        (&["flow", "list"], remote.as_deref().into_iter().collect(), None),
        (&["drop"], vec![], None),
    ];
    let (mut text, mut wrong) = (String::new(), Vec::new());
    for (arguments, must_name, withheld) in commands {
        let line = arguments.join(" ");
        let ended = match node.osmia(arguments) {
            Ok(ended) => ended,
            Err(err) => {
                wrong.push(format!("osmia {line}: {err:#}"));
                continue;
            }
        };
        text += &answer(node, arguments, &ended);
        if !ended.status.success() {
            wrong.push(format!("osmia {line}: {}: {}", ended.status, ended.text()));
        } else if let Some(name) = must_name.iter().find(|name| !ended.stdout.contains(*name)) {
            wrong.push(format!("osmia {line} does not name {name}"));
        }
        if let Some(name) = withheld.filter(|name| ended.stdout.split_whitespace().any(|word| word == *name)) {
            wrong.push(format!("osmia {line} names {name}, whose row is withheld"));
        }
    }
    let there = client.and(remote).and(unlisted);
    (if wrong.is_empty() { there.map(|_| String::new()) } else { Err(wrong.join("; ")) }, text)
}

/// A line and its answer, as people read them.
pub(crate) fn answer(node: &Node, arguments: &[&str], ended: &Ended) -> String {
    format!("\n{} $ osmia {}\n{}", node.name, arguments.join(" "), first_lines(&ended.stdout))
}

fn address(guest: &Guest) -> Result<String, String> {
    need(guest)?.address(false).map(|address| address.to_string()).map_err(|err| format!("{err:#}"))
}

fn first_lines(text: &str) -> String {
    let mut lines = text.lines();
    let mut out: String = lines.by_ref().take(SHOWN).map(|line| format!("  {line}\n")).collect();
    let rest = lines.count();
    if rest > 0 {
        out += &format!("  … {rest} more lines\n");
    }
    out
}
