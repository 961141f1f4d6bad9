//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser};
use osmia_maps::{Pins, pins::DEFAULT_ROOT};

use crate::command::Command;

const EXAMPLES: &str = "\
Examples:
  osmia status                                        what is loaded, how full it is, what is wrong
  osmia endpoint list                                 the pods of this node
  osmia flow list --pod 10.1.0.5 --state established  a pod's living connections
  osmia flow list --port 53 --proto udp --watch       DNS, looked at every two seconds
  osmia drop                                          what was dropped, why, and whose packets they were
  osmia policy show shop/db                           is this NetworkPolicy in force here, and what it does
  osmia explain 10.1.0.5 10.1.0.6 80/tcp              may this packet pass, and which rule says so
  osmia map get routes 10.1.2.3                       whose is this address
  osmia map get flow4 tcp 10.0.0.1:80 10.0.0.2:1234   one entry
  osmia status --bpffs /proc/4711/root/sys/fs/bpf/osmia --run /proc/4711/root/run/osmia
                                                      the node that process 4711 runs in

Exit codes:
  0  done    1  failed    2  wrong usage
  3  nothing of this build's layout is pinned    4  no such row, policy or pod
  explain:  5  denied    6  neither end is judged on this node, or only behind a service
  status:   7  something is wrong

The agent is not asked: everything comes from the pinned maps, which are opened read-only, and names from the catalogue in its run
folder. Times are ages.
With --json every command prints one object with the member \"layout\"; docs/cli.md lists the members.";

/// Shows what Osmia's dataplane knows: endpoints, flows, routes, policies, drops.
#[derive(Parser, Debug)]
#[command(name = "osmia", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Args, Debug)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// Folder of the pins, as the agent's --bpffs; another node's by its path
    #[arg(long, global = true, value_name = "DIR", default_value = DEFAULT_ROOT)]
    pub(crate) bpffs: PathBuf,
    /// Run folder of the agent: names of policies and pods, heartbeat; /run/osmia where --bpffs is not given
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) run: Option<PathBuf>,
    /// JSON instead of tables
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Again and again, every 2 seconds or as often as said; with --json a document a line
    #[arg(
        long, global = true, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = seconds
    )]
    pub(crate) watch: Option<Duration>,
}

impl Common {
    /// The pins of this build's layout.
    pub(crate) fn pins(&self) -> Pins {
        Pins::new(&self.bpffs)
    }

    /// The run folder of the agent that the pins are of. Of pins elsewhere only the user knows it.
    pub(crate) fn run_folder(&self) -> Option<PathBuf> {
        let usual = self.bpffs.as_os_str() == DEFAULT_ROOT;
        self.run.clone().or_else(|| usual.then(|| "/run/osmia".into()))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration >= Duration::from_millis(50) => Ok(duration),
        _ => Err("less than 0.05 or no time at all".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn watch(arguments: &[&str]) -> Option<Duration> {
        Arguments::try_parse_from(arguments).unwrap().common.watch
    }

    #[test]
    fn the_command_line_holds_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn watch_takes_a_time_or_none() {
        assert_eq!(watch(&["osmia", "status"]), None);
        assert_eq!(watch(&["osmia", "status", "--watch"]), Some(Duration::from_secs(2)));
        assert_eq!(watch(&["osmia", "status", "--watch", "0.5"]), Some(Duration::from_millis(500)));
        for bad in ["0", "-1", "nan", "inf", "soon"] {
            assert!(Arguments::try_parse_from(["osmia", "status", &format!("--watch={bad}")]).is_err(), "{bad}");
        }
    }

    /// `osmia`, its leaf commands and their own options.
    fn leaves(command: &clap::Command, path: &str, leaf: &mut impl FnMut(&str, &clap::Command)) {
        let path = format!("{path}{}", command.get_name());
        if command.get_subcommands().next().is_none() {
            leaf(&path, command);
        }
        for below in command.get_subcommands() {
            leaves(below, &format!("{path} "), leaf);
        }
    }

    #[test]
    fn the_page_names_every_command_and_option() {
        let page = include_str!("../../docs/cli.md");
        let mut seen = 0;
        leaves(&Arguments::command(), "", &mut |path, command| {
            seen += 1;
            // The filters of the flows are in its own help.
            let long = command.get_arguments().filter_map(clap::Arg::get_long).filter(|_| path != "osmia flow list");
            let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{path}")));
            let row = row.unwrap_or_else(|| panic!("{path} has no row in docs/cli.md"));
            for option in long {
                assert!(row.contains(&format!("--{option}")), "--{option} is not in the row of {path}");
            }
            let members = page.lines().any(|line| line.starts_with(&format!("| `{}` |", &path["osmia ".len()..])));
            assert!(members, "{path} has no row of JSON members in docs/cli.md");
        });
        assert!(seen >= 12, "{seen}");
        let common = Arguments::command();
        for option in common.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(page.contains(&format!("--{option}")), "--{option} is not in docs/cli.md");
        }
    }

    #[test]
    fn the_words_of_a_key_need_no_quotes() {
        for key in [&["tcp 10.0.0.1:80 10.0.0.2:1"][..], &["tcp", "10.0.0.1:80", "10.0.0.2:1"]] {
            let line = [&["osmia", "map", "get", "flow4"][..], key, &["--json"]].concat();
            let parsed = Arguments::try_parse_from(line).unwrap();
            assert!(parsed.common.json);
            assert!(format!("{:?}", parsed.command).contains("10.0.0.2:1"));
        }
    }
}
