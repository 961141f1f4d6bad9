//! As many rules as a node takes: each of its endpoints under a rule set of its own with thousands of single addresses, each with a port.
//!
//! Nothing is measured beside it: what it takes is bounded, in rows, in time and in memory, and so is the time that `osmia` takes there.

use std::fs;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use osmia_lab::{Node, POD_NAMESPACE};
use osmia_maps::layout::Endpoint;
use osmia_maps::layout::endpoint::E_PRESENT;
use osmia_maps::layout::maps;
use osmia_maps::{Access, Pins, catalogue, tables};
use serde_json::Value;

use super::{Bench, node, plugins};
use crate::cpu;
use crate::product::PolicyRows;
use crate::report::Row;
use crate::stats::Spread;

/// Pods of the node, and policies.
const ENDPOINTS: usize = 250;
/// Rules of each policy.
const RULES: usize = 2000;
/// It must not hang.
const PATIENCE: Duration = Duration::from_secs(300);
/// Most that an answer takes, seconds.
const ANSWER: f64 = 1.0;

/// Rows, time and memory where all rule sets name the same addresses, and where no two do.
pub(super) fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut rows = of(bench, "the same addresses", false)?;
    rows.extend(of(bench, "other addresses in each", true)?);
    Ok(rows)
}

fn of(bench: &Bench, name: &str, distinct: bool) -> Result<Vec<Row>> {
    let lab = plugins::node()?;
    lab.start_agents()?;
    let pods = (0..ENDPOINTS).map(|n| lab.add_pod(0, &format!("p{n}"))).collect::<Result<Vec<_>>>()?;
    let host = lab.node(0)?;
    let pid = host.agent().as_ref().context("the agent does not run")?.pid();
    let policies: Vec<_> = (0..ENDPOINTS).map(|n| (format!("policy-p{n}.yaml"), policy(n, distinct))).collect();

    let (start, before) = (Instant::now(), cpu::of_process(pid)?);
    for (file, text) in &policies {
        lab.write(file, text)?;
    }
    // Shut they are while their rows are written.
    while !(all_isolated(host)? && is_in_force(host)?) {
        ensure!(start.elapsed() < PATIENCE, "{name}: not all policies are in force after {PATIENCE:?}");
        thread::sleep(Duration::from_millis(100));
    }
    let (took, used) = (start.elapsed(), Duration::from_nanos(cpu::of_process(pid)? - before));

    let PolicyRows { verdicts, ranges } = PolicyRows::count(host)?;
    let rules = pods.len() * RULES;
    // A rule takes two. Rules that there is no room for have no rows, and cost none of what is bounded here.
    ensure!(verdicts >= 2 * rules, "{name}: {verdicts} rows for {rules} rules: some are not in force");
    let (resident, peak) = (node::memory(pid, "VmRSS:")? / 1e6, node::memory(pid, "VmHWM:")? / 1e6);
    let row = |what: &str, unit: &str, value: f64, most: f64| {
        Ok::<_, anyhow::Error>(Row::new("limits", format!("{name}: {what}"), unit, Spread::of([value])?, most))
    };
    let mut found = vec![
        row("verdict rows", "a rule", verdicts as f64 / rules as f64, 2.01)?
            .with(format!("{verdicts} of {} rows, {ranges} ranges", maps::MAX_VERDICTS)),
        row("in force, the agent's CPU", "s", used.as_secs_f64(), 20.0)?.with(format!("{:.1} s", took.as_secs_f64())),
        row("the agent's memory at its peak", "MB", peak, 1000.0)?.with(format!("{resident:.0} MB afterwards")),
    ];
    found.extend(answers(host, bench.plan.bursts, name, distinct)?);
    Ok(found)
}

/// What `osmia` takes from start to end, the agent dead.
fn answers(node: &Node, bursts: usize, name: &str, distinct: bool) -> Result<Vec<Row>> {
    node.kill_agent()?;
    let (pod, rule) = (ENDPOINTS / 2, RULES / 2);
    let receiver = format!("{POD_NAMESPACE}/p{pod}");
    let catalogue = fs::metadata(catalogue::path(&node.paths.run)).context("the catalogue")?.len();
    let sender = address(pod, rule, distinct).to_string();
    // Its rule's port is the one behind it: no rule allows this, all are looked at for the nearest.
    let denied = format!("{rule}/tcp");
    let commands: [(&str, &[&str], i32); 6] = [
        ("osmia explain, denied", &["explain", &sender, &receiver, &denied], 5),
        ("osmia policy list", &["policy", "list"], 0),
        ("osmia policy show", &["policy", "show", &receiver], 0),
        ("osmia policy sets", &["policy", "sets"], 0),
        ("osmia policy classes", &["policy", "classes"], 0),
        ("osmia policy classes, JSON", &["policy", "classes", "--json"], 0),
    ];
    let of = |(what, arguments, code): (&str, &[&str], i32)| {
        let mut times = Vec::new();
        for _ in 0..bursts {
            let start = Instant::now();
            let ended = node.osmia(arguments)?;
            times.push(start.elapsed().as_secs_f64());
            ensure!(ended.status.code() == Some(code), "{name}: {what}: {}: {}", ended.status, ended.stderr);
        }
        let row = Row::new("limits", format!("{name}: {what}"), "s", Spread::of(times)?, ANSWER);
        Ok(row.with(format!("a catalogue of {:.0} MB", catalogue as f64 / 1e6)))
    };
    commands.into_iter().map(of).collect()
}

fn all_isolated(node: &Node) -> Result<bool> {
    let rows = node.space.run(|| tables::ENDPOINTS.open(&Pins::new(&node.paths.bpffs), Access::ReadOnly)?.rows())??;
    // Both directions are open before, and both are shut where one is for a moment.
    let isolated = |row: &Endpoint| row.flags & E_PRESENT != 0 && row.ingress_rules != row.egress_rules;
    let isolated = rows.iter().filter(|(_, row)| isolated(row)).count();
    Ok(isolated >= ENDPOINTS)
}

/// Whether the agent says so of the last policy, and that nothing is on its way.
fn is_in_force(node: &Node) -> Result<bool> {
    let last = format!("{POD_NAMESPACE}/p{}", ENDPOINTS - 1);
    let shown: Value = serde_json::from_str(&node.osmia(&["policy", "show", &last, "--json"])?.stdout)?;
    Ok(shown["in_force"] == true)
}

/// The policy of pod number `pod`.
fn policy(pod: usize, distinct: bool) -> String {
    let mut text = format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{namespace: {POD_NAMESPACE}, name: p{pod}, uid: p{pod}}}\nspec:\n  podSelector: {{matchLabels: {{app: p{pod}}}}}\n  ingress:\n"
    );
    for rule in 0..RULES {
        let address = address(pod, rule, distinct);
        text += &format!("  - {{from: [{{ipBlock: {{cidr: {address}/32}}}}], ports: [{{port: {}}}]}}\n", rule + 1);
    }
    text
}

/// Whom a rule of it allows.
fn address(pod: usize, rule: usize, distinct: bool) -> Ipv4Addr {
    let first = if distinct { pod * RULES } else { 0 };
    let [_, b, c, d] = ((first + rule) as u32).to_be_bytes();
    Ipv4Addr::new(20, b, c, d)
}
