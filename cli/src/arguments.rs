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
  osmia map get routes 10.1.2.3                       whose is this address
  osmia map get flow4 tcp 10.0.0.1:80 10.0.0.2:1234   one entry
  osmia status --bpffs /proc/4711/root/sys/fs/bpf/osmia
                                                      the node that process 4711 runs in

Exit codes:
  0  done    1  failed    2  wrong usage
  3  nothing of this build's layout is pinned    4  no such row

The agent is not asked: everything comes from the pinned maps, which are opened read-only. Times are ages.
With --json every command prints one object with the member \"layout\"; docs/cli.md lists the members.";

/// Shows what Osmia's dataplane knows: endpoints, flows, routes, drops.
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

    /// Whether the pins are those of the usual place.
    pub(crate) fn is_default_root(&self) -> bool {
        self.bpffs.as_os_str() == DEFAULT_ROOT
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
