//! Runs the probes of all relations, many at a time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use osmia_lab::{Lab, Probe, Proto};

use crate::guests::{Guests, HOME, need};
use crate::report::Report;
use crate::rows::{self, Relation};
use crate::stories::{self, Leg};

/// How long what must arrive may take on a busy machine.
pub(crate) const ARRIVES: Duration = Duration::from_secs(3);
/// How long is waited for what must not arrive.
pub(crate) const STAYS_AWAY: Duration = Duration::from_millis(700);
/// Probes at a time.
const AT_ONCE: usize = 16;

type Case = (Relation, Proto, bool);

/// What the legs of each row came to.
#[derive(Debug)]
pub(crate) struct Arrivals(BTreeMap<String, Result<(), String>>);

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for relation in Relation::ALL {
        for proto in Proto::ALL {
            cases.extend([(relation, proto, false), (relation, proto, true)]);
        }
    }
    cases
}

/// What must arrive.
pub(crate) fn arrive(lab: &Lab, guests: &Guests) -> Arrivals {
    let judge = |(relation, proto, v6): Case| {
        let legs = stories::legs(lab, guests, relation, v6)?;
        for (number, leg) in legs.iter().enumerate() {
            let way = || format!("{} to {}: ", leg.from.name(), leg.to.name());
            let arrival = probe(leg, proto, ARRIVES).run().map_err(|err| format!("{}{err:#}", way()))?;
            arrival.complete(leg.peer).map_err(|why| if number > 0 { way() + &why } else { why })?;
        }
        Ok(())
    };
    Arrivals(all(lab, judge))
}

/// The twins, after their rows were withheld; fills the packet rows of the report.
pub(crate) fn stay_away(lab: &Lab, guests: &Guests, arrivals: Arrivals, report: &mut Report) {
    let withheld =
        need(&guests.unlisted).and_then(|pod| lab.nodes[HOME].withhold(pod).map_err(|err| format!("{err:#}")));
    let judge = |(relation, proto, v6): Case| {
        let leg = stories::twin(lab, guests, relation, v6).map_err(|why| format!("there is no twin: {why}"))?;
        let local = matches!(
            relation,
            Relation::PodPodLocal | Relation::PodOwnNode | Relation::OwnNodePod | Relation::PodOutside
        );
        if local && let Err(why) = &withheld {
            return Err(format!("there is no twin: {why}"));
        }
        let arrival = probe(&leg, proto, STAYS_AWAY).run().map_err(|err| format!("its twin: {err:#}"))?;
        if arrival.nothing_from(leg.peer) {
            Ok(())
        } else {
            Err(format!(
                "its twin arrived too, without the agent's row: {} of {} from {}",
                arrival.count, arrival.sent, leg.peer
            ))
        }
    };
    let twins = all(lab, judge);
    for (id, arrived) in arrivals.0 {
        let twin = twins.get(&id).cloned().unwrap_or_else(|| Err("there is no twin".into()));
        report.put(id, arrived.and(twin).map(|()| String::new()));
    }
}

fn probe<'a>(leg: &Leg<'a>, proto: Proto, patience: Duration) -> Probe<'a> {
    Probe { proto, from: leg.from, to: leg.to, destination: leg.destination, patience }
}

/// Judges every case, several at a time.
fn all(lab: &Lab, judge: impl Fn(Case) -> Result<(), String> + Sync) -> BTreeMap<String, Result<(), String>> {
    let encap = lab.options().encap;
    let (cases, next, done) = (cases(), AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (relation, proto, v6) = *case;
            let outcome = judge(*case);
            if let Ok(mut done) = done.lock() {
                done.insert(rows::packet(encap, relation, proto, v6), outcome);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
