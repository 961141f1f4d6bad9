//! The metrics, by their numbers in docs/benchmarks.md.

mod attach;
mod cli;
mod large;
mod limits;
mod node;
mod plugins;
mod programming;
mod test_run;
mod traffic;

use anyhow::Result;
use clap::ValueEnum;

use crate::places::Places;
use crate::report::Row;
use crate::stats::Plan;

/// What all metrics share.
pub(crate) struct Bench {
    pub(crate) plan: Plan,
    pub(crate) places: Places,
}

/// A metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Metric {
    /// Same node, small packets
    #[value(name = "1")]
    Small,
    /// Same node, questions and answers
    #[value(name = "2")]
    Rr,
    /// Same node, connections
    #[value(name = "3")]
    Crr,
    /// Thousands of policies and ranges against one
    #[value(name = "4")]
    Rules,
    /// Across nodes, as they are
    #[value(name = "5")]
    Native,
    /// Across nodes, VXLAN
    #[value(name = "6")]
    Overlay,
    /// CPU a gigabit
    #[value(name = "7")]
    Bulk,
    /// ADD and DEL
    #[value(name = "8")]
    Attach,
    /// From an event at the API server to the maps
    #[value(name = "9")]
    Programming,
    /// The agent on a node of a large cluster
    #[value(name = "10")]
    Large,
    /// An established flow by test-run
    #[value(name = "11")]
    TestRun,
    /// As many rules as a node takes
    Limits,
    /// The agent with nothing to do
    Agent,
    /// The plugin's start
    Plugin,
    /// `osmia` on a node with many pods
    Cli,
    /// The references among themselves
    #[value(skip)]
    References,
}

impl Metric {
    /// All that a run without choice measures.
    pub(crate) const ALL: [Self; 15] = [
        Self::Small,
        Self::Rr,
        Self::Crr,
        Self::Rules,
        Self::Native,
        Self::Overlay,
        Self::Bulk,
        Self::Attach,
        Self::Large,
        Self::Programming,
        Self::TestRun,
        Self::Limits,
        Self::Agent,
        Self::Plugin,
        Self::Cli,
    ];

    /// As in the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Small => "1",
            Self::Rr => "2",
            Self::Crr => "3",
            Self::Rules => "4",
            Self::Native => "5",
            Self::Overlay => "6",
            Self::Bulk => "7",
            Self::Attach => "8",
            Self::Programming => "9",
            Self::Large => "10",
            Self::TestRun => "11",
            Self::Limits => "limits",
            Self::Agent => "agent",
            Self::Plugin => "plugin",
            Self::Cli => "cli",
            Self::References => "-",
        }
    }

    /// Measures it.
    pub(crate) fn measure(self, bench: &mut Bench) -> Result<Vec<Row>> {
        match self {
            Self::Small => traffic::small(bench),
            Self::Rr => traffic::rr(bench),
            Self::Crr => traffic::crr(bench),
            Self::Rules => Ok([traffic::rules(bench)?, test_run::rules(bench)?].concat()),
            Self::Native => traffic::native(bench),
            Self::Overlay => traffic::overlay(bench),
            Self::Bulk => traffic::bulk(bench),
            Self::Attach => attach::measure(bench),
            Self::Programming => programming::measure(bench),
            Self::Large => large::measure(bench),
            Self::TestRun => test_run::measure(bench),
            Self::Limits => limits::measure(bench),
            Self::Agent => node::idle(bench),
            Self::Plugin => node::version(bench),
            Self::Cli => cli::endpoints(bench),
            Self::References => traffic::references(bench),
        }
    }
}
