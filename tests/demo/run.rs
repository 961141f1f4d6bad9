//! One way between nodes, from an empty machine to its rows.

use osmia_lab::{Capture, Encap, Lab};

use crate::guests::{self, Guests};
use crate::report::Report;
use crate::{kill, maps, packets, rows, wire};

/// Fills every row of the way. What could be built stays up as long as the lab that is given back; `shown` becomes what the command
/// line tool says of it.
pub(crate) fn encap(encap: Encap, report: &mut Report, shown: &mut String) -> Option<Lab> {
    let lab = match Lab::build(guests::options(encap)) {
        Ok(lab) => lab,
        Err(err) => {
            fail_all(encap, report, &format!("the lab could not be built: {err:#}"));
            return None;
        }
    };
    if let Err(err) = lab.start_agents() {
        fail_all(encap, report, &format!("{err:#}"));
        return Some(lab);
    }
    let guests = Guests::invite(&lab);
    let capture = Capture::start(&lab.lan.bridges).map_err(|err| format!("{err:#}"));
    let arrivals = packets::arrive(&lab, &guests);
    let frames = capture.and_then(|capture| capture.finish().map_err(|err| format!("{err:#}")));
    wire::judge(&lab, &guests, &frames, report);
    packets::stay_away(&lab, &guests, arrivals, report);
    let (outcome, text) = maps::show(&lab, &guests);
    report.put(rows::maps(encap), outcome);
    *shown = text;
    report.put(rows::kill(encap), kill::row(&lab, &guests));
    Some(lab)
}

fn fail_all(encap: Encap, report: &mut Report, why: &str) {
    for id in rows::ids(encap) {
        report.put(id, Err(why.to_owned()));
    }
}
