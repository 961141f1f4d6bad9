//! NetworkPolicy, row by row: what each policy lets through arrives, and beside it its twin, which the same policy keeps out, stays away.
//!
//! The server stands on [`cast::HERE`]; near is a client on its node, far one on another, across subnets where the way allows it.

mod cast;
mod living;
mod stories;
mod told;
mod trial;

use osmia_lab::Lab;

pub(crate) use self::cast::Cast;
use crate::report::Report;
use crate::rows;

/// Fills the rows of policy. Gives who took part, with the policies that `osmia` was asked about in force, and what `osmia` said of them.
pub(crate) fn rows(lab: &Lab, report: &mut Report) -> (Option<Cast>, String) {
    let encap = lab.options().encap;
    let cast = match Cast::invite(lab) {
        Ok(cast) => cast,
        Err(err) => {
            for id in rows::policies(encap) {
                report.put(id, Err(format!("the pods for policy: {err:#}")));
            }
            return (None, String::new());
        }
    };
    stories::rows(lab, &cast, report);
    // Before connections that are cut: their ends go on trying, and what is dropped of that would be all that is shown.
    let shown = told::rows(lab, &cast, report);
    living::rows(lab, &cast, report);
    (Some(cast), shown)
}
