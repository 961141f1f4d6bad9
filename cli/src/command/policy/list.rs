//! `osmia policy list`.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use osmia_maps::{
    Pins,
    catalogue::{Direction, InForce, PolicyName, Reason},
    decode::{Cell, Record},
    layout::{Endpoint, Meta},
};

use super::{in_force, say_stale};
use crate::{
    arguments::Common,
    command::names::{Names, direction_name, rule_sets, texts},
    failure::Failure,
    render::{Document, List},
};

/// Pods that a line of the table names.
const SHOWN: usize = 3;

/// A policy, as far as this node knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Known {
    /// The generation that brought it.
    pub(super) at: Option<InForce>,
    /// The directions that it isolates, by endpoint.
    pub(super) endpoints: BTreeMap<u32, Vec<Direction>>,
    /// Those of them that none of its rules is in force for, since they are over the budget.
    pub(super) over_budget: BTreeSet<u32>,
    /// What the API would refuse of it.
    pub(super) refused: Vec<String>,
}

impl Known {
    pub(super) fn directions(&self) -> Cell {
        let has = |direction| self.endpoints.values().any(|of| of.contains(&direction));
        let both = [Direction::Ingress, Direction::Egress].into_iter().filter(|direction| has(*direction));
        Cell::Flags(both.map(|direction| direction_name(direction).into()).collect())
    }
}

/// Every policy that the catalogue names, with the endpoints whose rows point to a rule set of it.
pub(super) fn known(names: &Names, endpoints: &[(u32, Endpoint)]) -> BTreeMap<PolicyName, Known> {
    let of_file = names.told().policies.iter().map(|(policy, at)| {
        let refused = names.told().refused.get(policy).cloned().unwrap_or_default();
        (policy.clone(), Known { at: Some(*at), refused, ..Known::default() })
    });
    let mut known: BTreeMap<PolicyName, Known> = of_file.collect();
    for (slot, endpoint) in endpoints {
        for (direction, number) in rule_sets(endpoint) {
            let Some(set) = names.set(number) else { continue };
            let is_over = matches!(names.reason(set.isolation), Some(Reason::OverBudget { .. }));
            for policy in &set.policies {
                let of = known.entry(policy.clone()).or_default();
                of.endpoints.entry(*slot).or_default().push(direction);
                if is_over {
                    of.over_budget.insert(*slot);
                }
            }
        }
    }
    known
}

pub(super) fn run(pins: &Pins, common: &Common, meta: &Meta) -> Result<Document, Failure> {
    let (endpoints, names) = super::endpoints_and_names(pins, common, meta)?;
    let known: Rc<[(PolicyName, Known)]> = known(&names, &endpoints).into_iter().collect();
    let names = Rc::new(names);
    let (of, shown) = (Rc::clone(&names), Rc::clone(&known));
    let list = List::new("policies", known.len(), move |index| known.get(index).map(|row| member(&of, row)));
    let stale = texts(names.stale().iter().cloned());
    let document = Document::new(move |_, page| {
        say_stale(page, names.stale())?;
        if shown.is_empty() {
            return page.line("no NetworkPolicies");
        }
        page.table(|| shown.iter().map(|row| line(&names, row)))
    });
    Ok(document.with("stale", stale).list(list))
}

fn member(names: &Names, (policy, known): &(PolicyName, Known)) -> Record {
    Record::new()
        .with("namespace", Cell::Text(policy.namespace.clone().into()))
        .with("name", Cell::Text(policy.name.clone().into()))
        .with("uid", Cell::Text(policy.uid.clone().into()))
        .with("isolates", known.directions())
        .and(in_force::record(known.at.as_ref()))
        .with("endpoints", Cell::List(endpoints(names, known).map(Cell::Record).collect()))
        .with("refused", texts(known.refused.iter().cloned()))
}

/// The members of an endpoint that a policy isolates.
pub(super) fn endpoints(names: &Names, known: &Known) -> impl Iterator<Item = Record> {
    known.endpoints.iter().map(|(slot, directions)| {
        let isolated = directions.iter().map(|direction| direction_name(*direction).into()).collect();
        Record::new()
            .with("slot", Cell::Number((*slot).into()))
            .with("pod", names.pod_cell(*slot))
            .with("isolated", Cell::Flags(isolated))
            .with("over_budget", Cell::Bool(known.over_budget.contains(slot)))
    })
}

fn line(names: &Names, (policy, known): &(PolicyName, Known)) -> Record {
    let pods = known.endpoints.keys().take(SHOWN).map(|slot| names.pod_text(*slot)).collect::<Vec<_>>().join(" ");
    let more = known.endpoints.len().saturating_sub(SHOWN);
    let pods = match (known.endpoints.is_empty(), more) {
        (true, _) => Cell::name("none here"),
        (false, 0) => Cell::Text(pods.into()),
        (false, more) => Cell::Text(format!("{pods} and {more} more").into()),
    };
    Record::new()
        .with("policy", Cell::Text(policy.to_string().into()))
        .with("isolates", known.directions())
        .and(in_force::columns(known.at.as_ref()))
        .with("pods", pods)
        .with("refused_parts", Cell::nonzero(known.refused.len() as u64))
        .with("over_budget", Cell::nonzero(known.over_budget.len() as u64))
}
