//! The maps of a node by the command line tool, as an operator would look at them.

use osmia_lab::Lab;

use crate::guests::{Guests, HOME, need};
use crate::report::Outcome;

/// Lines of each command that are shown.
const SHOWN: usize = 12;

/// Runs the commands on [`HOME`]; gives the outcome of the row and what to show.
pub(crate) fn show(lab: &Lab, guests: &Guests) -> (Outcome, String) {
    let node = &lab.nodes[HOME];
    let client = || need(&guests.client).and_then(|pod| pod.address(false).map_err(|err| format!("{err:#}")));
    let remote = || need(&guests.remote).and_then(|pod| pod.address(false).map_err(|err| format!("{err:#}")));
    let unlisted = || need(&guests.unlisted).and_then(|pod| pod.address(false).map_err(|err| format!("{err:#}")));
    let commands: [(&[&str], Vec<String>); 7] = [
        (&["status"], vec![node.name.clone()]),
        (&["map", "list"], vec!["flow4".into(), "endpoint_addr".into()]),
        (&["map", "dump", "nodes"], vec![lab.nodes[crate::guests::NEAR].v4().to_string()]),
        (&["map", "dump", "endpoint_addr"], client().map(|a| a.to_string()).into_iter().collect()),
        (&["endpoint", "list"], client().map(|a| a.to_string()).into_iter().collect()),
        (&["flow", "list"], remote().map(|a| a.to_string()).into_iter().collect()),
        (&["drop"], vec![]),
    ];
    let (mut text, mut wrong) = (String::new(), Vec::new());
    for (arguments, must_name) in commands {
        let line = arguments.join(" ");
        let ended = match node.osmia(arguments) {
            Ok(ended) => ended,
            Err(err) => {
                wrong.push(format!("osmia {line}: {err:#}"));
                continue;
            }
        };
        text += &format!("\n{} $ osmia {line}\n{}", node.name, first_lines(&ended.stdout));
        if !ended.status.success() {
            wrong.push(format!("osmia {line}: {}: {}", ended.status, ended.text()));
        } else if let Some(name) = must_name.iter().find(|name| !ended.stdout.contains(*name)) {
            wrong.push(format!("osmia {line} does not name {name}"));
        }
        // The twin: whose row is withheld is not shown either.
        if arguments == ["map", "dump", "endpoint_addr"]
            && let Ok(name) = unlisted()
            && ended.stdout.split_whitespace().any(|word| word == name.to_string())
        {
            wrong.push(format!("osmia {line} names {name}, whose row is withheld"));
        }
    }
    let there = client().and(remote()).and(unlisted());
    let outcome = if wrong.is_empty() { there.map(|_| String::new()) } else { Err(wrong.join("; ")) };
    (outcome, text)
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
