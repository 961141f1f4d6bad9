//! What policy makes of this node's endpoints, counted when somebody asks.

use std::collections::BTreeSet;

use super::{Policing, Rows};
use crate::{compile::policy::Rules, serve::metrics::PolicyCounts};

impl<R: Rows> Policing<R> {
    /// For metrics.
    pub(in crate::app) fn counts(&self) -> PolicyCounts {
        let mut counts = PolicyCounts {
            policies: self.cluster.policies.len(),
            refused_in_part: self.cluster.policies.values().filter(|policy| !policy.refused.is_empty()).count(),
            generation: self.generation,
            waiting: self.retry.is_some(),
            rows: self.rows,
            crowded_out: self.crowded_out,
            ..PolicyCounts::default()
        };
        let over = self.over_budget.iter().map(|over| over.slot);
        let refused: BTreeSet<u32> = self.refused.iter().copied().chain(over).collect();
        counts.refused = refused.len();
        for (slot, local) in self.locals.iter().filter(|(slot, _)| !refused.contains(*slot)) {
            let isolated = self.policies.as_ref().is_some_and(|policies| policies.rules(*slot) != Rules::default());
            match &local.pod {
                None => counts.unmanaged += 1,
                Some(_) if self.policies.is_none() => counts.provisional += 1,
                Some(_) if !isolated => counts.open += 1,
                Some(_) if local.judged(&self.cluster).is_some() => counts.isolated += 1,
                Some(_) => counts.provisional += 1,
            }
        }
        counts
    }
}
