//! Policies one after the other: each is written, judged by the receivers, and removed.

use std::thread;

use anyhow::Result;
use osmia_lab::manifest::CLUSTER_CIDRS;
use osmia_lab::{Lab, Pod, Proto, Server};

use super::cast::{Cast, Clients, SHOP, WEB_PORT};
use super::trial::{Trial, What};
use crate::report::Report;
use crate::rows::{self, CELLS, Cell, Story};

/// A port without a name.
const PORT: u16 = 8080;
/// First and last of a range.
const RANGE: [u16; 2] = [9000, 9005];

/// What a policy lets through, and what it must keep out.
#[derive(Default)]
struct Trials<'a> {
    arrive: Vec<Trial<'a>>,
    stay_away: Vec<Trial<'a>>,
}

/// Servers in the database's pod.
struct Servers {
    by_number: Server,
    by_name: Server,
    name_by_udp: Server,
    in_range: [Server; 2],
    beside_range: [Server; 2],
    range_by_tcp: Server,
}

impl Servers {
    fn start(db: &Pod) -> Result<Self> {
        let [first, last] = RANGE;
        let at = |proto, port| Server::start(&db.space, proto, port);
        Ok(Self {
            by_number: at(Proto::Tcp, PORT)?,
            by_name: at(Proto::Tcp, WEB_PORT)?,
            name_by_udp: at(Proto::Udp, WEB_PORT)?,
            in_range: [at(Proto::Udp, first)?, at(Proto::Udp, last)?],
            beside_range: [at(Proto::Udp, first - 1)?, at(Proto::Udp, last + 1)?],
            range_by_tcp: at(Proto::Tcp, first)?,
        })
    }
}

/// Fills the rows of all stories but those of living connections.
pub(super) fn rows(lab: &Lab, cast: &Cast, report: &mut Report) {
    let servers = Servers::start(&cast.db).map_err(|err| format!("{err:#}"));
    let open = judge_all(|cell| Ok(without_policy(cast.clients(cell.far), &cast.db)));
    for story in Story::WRITTEN {
        let outcomes = tell(lab, cast, &servers, story);
        for ((cell, outcome), (_, open)) in outcomes.into_iter().zip(&open) {
            // What a default deny keeps out has to arrive without it.
            let open = if matches!(story, Story::DenyIn | Story::DenyOut) { open.clone() } else { Ok(()) };
            let outcome = open.map_err(|why| format!("without any policy: {why}")).and(outcome);
            report.put(rows::policy(lab.options().encap, story, cell), outcome.map(|()| String::new()));
        }
    }
}

type Outcomes = Vec<(Cell, Result<(), String>)>;

fn tell(lab: &Lab, cast: &Cast, servers: &Result<Servers, String>, story: Story) -> Outcomes {
    let all = |why: String| -> Outcomes { CELLS.into_iter().map(|cell| (cell, Err(why.clone()))).collect() };
    let policies = match spec(cast, story) {
        Ok(allow) => [("deny", Some(deny(story).to_owned())), ("allow", allow)],
        Err(err) => return all(format!("{err:#}")),
    };
    let policies: Vec<(&str, String)> = policies.into_iter().filter_map(|(name, spec)| Some((name, spec?))).collect();
    for (name, spec) in &policies {
        if let Err(err) = lab.enforce(SHOP, name, spec) {
            return all(format!("{err:#}"));
        }
    }
    let outcomes = judge_all(|cell| trials(cast.clients(cell.far), &cast.db, servers, story));
    for (name, _) in policies.iter().rev() {
        if let Err(err) = lab.lift(SHOP, name) {
            return all(format!("{err:#}"));
        }
    }
    outcomes
}

/// Judges all cells at the same time.
fn judge_all<'a>(trials: impl Fn(Cell) -> Result<Trials<'a>, String> + Sync) -> Outcomes {
    thread::scope(|scope| {
        let trials = &trials;
        let cells = CELLS.map(|cell| (cell, scope.spawn(move || judge(&trials(cell)?, cell.v6))));
        let joined = |(cell, thread): (Cell, thread::ScopedJoinHandle<'_, Result<(), String>>)| {
            (cell, thread.join().unwrap_or_else(|_| Err("judging it panicked".to_owned())))
        };
        cells.into_iter().map(joined).collect()
    })
}

/// All at the same time; the first that is not as expected.
fn judge(trials: &Trials<'_>, v6: bool) -> Result<(), String> {
    let expected = trials.arrive.iter().map(|trial| (trial, true));
    let expected = expected.chain(trials.stay_away.iter().map(|trial| (trial, false)));
    thread::scope(|scope| {
        let running: Vec<_> = expected.map(|(trial, arrives)| scope.spawn(move || trial.judge(v6, arrives))).collect();
        let joined = running.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("a probe panicked".to_owned())));
        // All have to end before the policy goes.
        joined.collect::<Vec<_>>().into_iter().collect()
    })
}

/// A probe of each protocol.
fn any<'a>(from: &'a Pod, to: &'a Pod) -> impl Iterator<Item = Trial<'a>> {
    Proto::ALL.into_iter().map(move |proto| Trial { from, to, what: What::Any(proto) })
}

fn without_policy<'a>(clients: &'a Clients, db: &'a Pod) -> Trials<'a> {
    let Clients { web, ops, .. } = clients;
    Trials { arrive: any(web, db).chain(any(ops, db)).chain(any(db, ops)).collect(), ..Trials::default() }
}

/// The default deny that a story starts from. All pods of the namespace but for the reply, where only the server may send nothing.
fn deny(story: Story) -> &'static str {
    match story {
        Story::DenyOut => "{podSelector: {}, policyTypes: [Egress]}",
        Story::Reply => "{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}",
        _ => "{podSelector: {}, policyTypes: [Ingress]}",
    }
}

/// What it then allows to enter the server.
fn spec(cast: &Cast, story: Story) -> Result<Option<String>> {
    let [first, last] = RANGE;
    let rule = match story {
        Story::DenyIn | Story::DenyOut | Story::Reply | Story::Connection | Story::Stream => return Ok(None),
        Story::Label => "{from: [{podSelector: {matchLabels: {app: web}}}]}".to_owned(),
        Story::Namespace => "{from: [{namespaceSelector: {matchLabels: {team: ops}}}]}".to_owned(),
        Story::Range => {
            let (near, far) = (&cast.near.other, &cast.far.other);
            let block = |cidr: &str, v6: bool, bits: u8| -> Result<String> {
                let (near, far) = (near.address(v6)?, far.address(v6)?);
                Ok(format!("{{ipBlock: {{cidr: \"{cidr}\", except: [\"{near}/{bits}\", \"{far}/{bits}\"]}}}}"))
            };
            let [v4, v6] = CLUSTER_CIDRS;
            format!("{{from: [{}, {}]}}", block(v4, false, 32)?, block(v6, true, 128)?)
        }
        Story::NamedPort => "{ports: [{port: web}]}".to_owned(),
        Story::PortRange => format!("{{ports: [{{protocol: UDP, port: {first}, endPort: {last}}}]}}"),
    };
    Ok(Some(format!("{{podSelector: {{matchLabels: {{app: db}}}}, ingress: [{rule}]}}")))
}

fn trials<'a>(
    clients: &'a Clients,
    db: &'a Pod,
    servers: &'a Result<Servers, String>,
    story: Story,
) -> Result<Trials<'a>, String> {
    let Clients { web, other, ops } = clients;
    let of = |arrive: &[(&'a Pod, &'a Pod)], stay_away: &[(&'a Pod, &'a Pod)]| Trials {
        arrive: arrive.iter().flat_map(|&(from, to)| any(from, to)).collect(),
        stay_away: stay_away.iter().flat_map(|&(from, to)| any(from, to)).collect(),
    };
    let to = |servers: Vec<&'a Server>| -> Vec<Trial<'a>> {
        servers.into_iter().map(|server| Trial { from: web, to: db, what: What::To(server) }).collect()
    };
    let servers = || servers.as_ref().map_err(Clone::clone);
    Ok(match story {
        // It holds for one direction and for the pods of its namespace.
        Story::DenyIn => of(&[(db, ops)], &[(web, db), (ops, db)]),
        Story::DenyOut => of(&[(ops, db)], &[(web, db), (db, ops)]),
        Story::Label => of(&[(web, db)], &[(other, db), (ops, db)]),
        Story::Namespace => of(&[(ops, db)], &[(web, db)]),
        Story::Range => of(&[(web, db), (ops, db)], &[(other, db)]),
        Story::Reply => of(&[(web, db)], &[(db, web)]),
        Story::NamedPort => {
            let Servers { by_name, by_number, name_by_udp, .. } = servers()?;
            Trials { arrive: to(vec![by_name]), stay_away: to(vec![by_number, name_by_udp]) }
        }
        Story::PortRange => {
            let Servers { in_range, beside_range, range_by_tcp, .. } = servers()?;
            let beside = beside_range.iter().chain([range_by_tcp]);
            Trials { arrive: to(in_range.iter().collect()), stay_away: to(beside.collect()) }
        }
        Story::Connection | Story::Stream => Trials::default(),
    })
}
