//! One way between nodes, from an empty machine to its rows.

use std::time::Instant;

use anyhow::Result;
use osmia_lab::{Capture, Encap, Lab};

use crate::guests::{self, Guests};
use crate::policy::{self, Cast};
use crate::report::Report;
use crate::{kill, maps, packets, rows, wire};

/// What is up after a run.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) guests: Option<Guests>,
    pub(crate) cast: Option<Cast>,
    pub(crate) lab: Lab,
}

/// Fills every row of the way and tells how far it is. What could be built stays up as long as what is given back; `shown` becomes what
/// the command line tool says of it.
pub(crate) fn encap(
    encap: Encap,
    report: &mut Report,
    shown: &mut String,
    mut tell: impl FnMut(&str) -> Result<()>,
) -> Result<Option<Stage>> {
    let start = Instant::now();
    let mut tell = |what: &str| tell(&format!("{:6} {:4.1} s  {what}\n", encap.name(), start.elapsed().as_secs_f64()));
    let lab = match Lab::build(guests::options(encap)) {
        Ok(lab) => lab,
        Err(err) => {
            fail_all(encap, report, &format!("the lab could not be built: {err:#}"));
            return Ok(None);
        }
    };
    tell("nodes, LAN, router and outside host are up; starting agents")?;
    if let Err(err) = lab.start_agents() {
        fail_all(encap, report, &format!("{err:#}"));
        return Ok(Some(Stage { guests: None, cast: None, lab }));
    }
    tell("agents serve; adding pods")?;
    let guests = Guests::invite(&lab);
    tell("pods are there; probing, with a capture on the LAN")?;
    let capture = Capture::start(&lab.lan.bridges).map_err(|err| format!("{err:#}"));
    let arrivals = packets::arrive(&lab, &guests);
    let finish = |capture: Result<Capture, String>| capture?.finish().map_err(|err| format!("{err:#}"));
    let frames = finish(capture);
    tell("probing again with the agent's rows withheld")?;
    let capture = Capture::start(&lab.lan.bridges).map_err(|err| format!("{err:#}"));
    packets::stay_away(&lab, &guests, arrivals, report);
    wire::judge(&lab, &guests, &frames, &finish(capture), report);
    let (outcome, text) = maps::show(&lab, &guests);
    report.put(rows::maps(encap), outcome);
    *shown = text;
    tell("NetworkPolicies come and go")?;
    let (cast, text) = policy::rows(&lab, report);
    *shown += &text;
    tell("killing and starting agents under load")?;
    report.put(rows::kill(encap), kill::row(&lab, &guests));
    tell("done")?;
    Ok(Some(Stage { guests: Some(guests), cast, lab }))
}

fn fail_all(encap: Encap, report: &mut Report, why: &str) {
    for id in rows::ids(encap) {
        report.put(id, Err(why.to_owned()));
    }
}
