//! Connections that live when their policy goes, and beside each one that another policy still allows.

use std::thread;

use anyhow::{Context, Result, anyhow};
use osmia_lab::load::Writing;
use osmia_lab::{Lab, Pod};

use super::cast::{Cast, SHOP};
use crate::report::Report;
use crate::rows::{self, CELLS, Cell, Story};

/// The policy that goes.
const WEB: &str = "living-web";
/// The one that stays.
const OPS: &str = "living-ops";

/// A connection whose permission goes, and its twin.
struct Pair {
    cut: Writing,
    goes_on: Writing,
}

type Pairs = Vec<((Story, Cell), Result<Pair>)>;

/// Fills the rows of living connections.
pub(super) fn rows(lab: &Lab, cast: &Cast, report: &mut Report) {
    let encap = lab.options().encap;
    let outcomes = allow(lab).map(|()| cut(lab, open(cast)));
    for policy in [WEB, OPS] {
        // No later row depends on it.
        let _ = lab.lift(SHOP, policy);
    }
    match outcomes {
        Ok(outcomes) => {
            for ((story, cell), outcome) in outcomes {
                let outcome = outcome.map(|()| String::new()).map_err(|err| format!("{err:#}"));
                report.put(rows::policy(encap, story, cell), outcome);
            }
        }
        Err(err) => {
            for story in Story::LIVING {
                for cell in CELLS {
                    report.put(rows::policy(encap, story, cell), Err(format!("{err:#}")));
                }
            }
        }
    }
}

fn allow(lab: &Lab) -> Result<()> {
    let from = |peer: &str| format!("{{podSelector: {{matchLabels: {{app: db}}}}, ingress: [{{from: [{peer}]}}]}}");
    lab.enforce(SHOP, WEB, &from("{podSelector: {matchLabels: {app: web}}}"))?;
    lab.enforce(SHOP, OPS, &from("{namespaceSelector: {matchLabels: {team: ops}}}"))
}

/// Opens all of them at the same time; each flows.
fn open(cast: &Cast) -> Pairs {
    let pair = |story: Story, cell: Cell| -> Result<Pair> {
        let start = |client: &Pod| -> Result<Writing> {
            let (server, writes) = (&cast.db, story == Story::Stream);
            let writing = Writing::start(&client.space, &server.space, server.address(cell.v6)?, writes);
            writing.with_context(|| format!("{} to {}", client.name, server.name))
        };
        let clients = cast.clients(cell.far);
        Ok(Pair { cut: start(&clients.web)?, goes_on: start(&clients.ops)? })
    };
    let rows = Story::LIVING.into_iter().flat_map(|story| CELLS.map(|cell| (story, cell)));
    let pair = &pair;
    thread::scope(|scope| {
        let opening: Vec<_> =
            rows.map(|(story, cell)| ((story, cell), scope.spawn(move || pair(story, cell)))).collect();
        opening.into_iter().map(|(row, thread)| (row, joined(thread))).collect()
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("its thread panicked")))
}

/// Takes the policy away: of all at the same time, those it allowed stand and their twins go on.
fn cut(lab: &Lab, pairs: Pairs) -> Vec<((Story, Cell), Result<()>)> {
    let lifted = lab.lift(SHOP, WEB).map_err(|err| format!("{err:#}"));
    thread::scope(|scope| {
        let judge = |pair: Result<Pair>| -> Result<()> {
            let Pair { cut, goes_on } = pair?;
            cut.stands()?;
            goes_on.flows().context("its twin, which another policy allows")
        };
        let judging: Vec<_> = pairs.into_iter().map(|(row, pair)| (row, scope.spawn(move || judge(pair)))).collect();
        let judged = judging.into_iter().map(|(row, thread)| {
            let outcome = joined(thread);
            (row, lifted.clone().map_err(anyhow::Error::msg).and(outcome))
        });
        judged.collect()
    })
}
