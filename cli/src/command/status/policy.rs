//! What the catalogue and the rows say of policy on this node.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use osmia_maps::{
    Pins,
    catalogue::{self, Behind as Told, CrowdedOut, InForce},
    decode::{Cell, Record},
    layout::{Endpoint, Meta},
};

use crate::{
    arguments::Common,
    command::{
        names::{self, Names},
        policy::in_force,
    },
    failure::Failure,
};

/// Something that was told is not in force.
#[derive(Debug)]
pub(super) struct Behind {
    /// For how long.
    pub(super) age: Duration,
    /// What refused it.
    pub(super) why: String,
}

/// Policy, as far as this node knows it.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) run: PathBuf,
    /// Whether the catalogue can grow.
    pub(super) has_room: bool,
    /// What makes names doubtful; empty where there are no rows to name.
    pub(super) stale: Vec<String>,
    /// The last generation that was begun.
    pub(super) generation: u64,
    pub(super) in_force: Option<InForce>,
    /// How long ago the catalogue was written last.
    pub(super) written: Duration,
    pub(super) behind: Option<Behind>,
    /// NetworkPolicies that are in force.
    pub(super) policies: usize,
    /// Those with parts that the API would refuse, and how many.
    pub(super) refused: Vec<(String, usize)>,
    /// Addresses that rules speak of and that have no room.
    pub(super) crowded_out: Option<CrowdedOut>,
    /// What the source cannot ask for or read.
    pub(super) source: Vec<String>,
    /// Endpoints by what policy makes of them.
    pub(super) pods: BTreeMap<&'static str, Vec<String>>,
}

impl Policy {
    /// `endpoints` were read before: a name is in the file before its row is in a map.
    pub(super) fn read(
        pins: &Pins,
        common: &Common,
        run: &Path,
        meta: &Meta,
        endpoints: &[(u32, Endpoint)],
    ) -> Result<Self, Failure> {
        let names = Names::of_endpoints(pins, common, meta, endpoints)?;
        let since = |then| SystemTime::now().duration_since(then).unwrap_or(Duration::ZERO);
        // A file that is gone by now counts as written now: the next look says that it is missing.
        let written = fs::metadata(catalogue::path(run)).and_then(|file| file.modified()).map_or(Duration::ZERO, since);
        let has_room = match run.exists() {
            true => catalogue::has_room(run).with_context(|| format!("looking at {}", run.display()))?,
            false => true,
        };
        let mut pods: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for (slot, endpoint) in endpoints.iter().filter(|_| names.is_read()) {
            let usual = if names::rule_sets(endpoint).next().is_some() { "isolated" } else { "open" };
            let state = names::state(&names, *slot, endpoint).unwrap_or(usual);
            pods.entry(state).or_default().push(names.pod_text(*slot));
        }
        let has_rows = meta.catalogue != 0;
        let stale = names.stale().iter().filter(|_| has_rows).cloned().collect();
        let catalogue = names.told();
        let behind = catalogue.behind.as_ref();
        let behind = behind.map(|Told { at_ms, why }| Behind { age: in_force::age_of(*at_ms), why: why.clone() });
        Ok(Self {
            run: run.to_owned(),
            has_room,
            stale,
            generation: catalogue.generation,
            in_force: catalogue.in_force,
            written,
            behind,
            policies: catalogue.policies.len(),
            refused: catalogue.refused.iter().map(|(policy, parts)| (policy.to_string(), parts.len())).collect(),
            crowded_out: catalogue.crowded_out,
            source: catalogue.source.clone(),
            pods,
        })
    }

    /// Whether a generation was begun and is not in force.
    pub(super) fn is_begun(&self) -> bool {
        self.generation > self.in_force.map_or(0, |at| at.generation)
    }

    fn count(&self, state: &str) -> u64 {
        self.pods.get(state).map_or(0, Vec::len) as u64
    }

    /// The member `policy`.
    pub(super) fn record(&self) -> Record {
        let record = Record::new()
            .with("generation", Cell::Number(self.generation))
            .with("in_force", Cell::Record(in_force::record(self.in_force.as_ref())))
            .with("behind", self.behind.as_ref().map_or(Cell::Absent, |behind| Cell::Age(Some(behind.age))))
            .with("why", self.behind.as_ref().map_or(Cell::Absent, |behind| Cell::Text(behind.why.clone().into())))
            .with("policies", Cell::Number(self.policies as u64))
            .with("refused_in_part", Cell::Number(self.refused.len() as u64))
            .with("crowded_out", Cell::Number(self.crowded_out.map_or(0, |out| out.addresses) as u64));
        names::STATES.iter().fold(record, |record, state| record.with(state, Cell::Number(self.count(state))))
    }
}
