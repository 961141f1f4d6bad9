//! Endpoints come and go: what ADD, DEL and a start do to policy.
//!
//! Invariant: an endpoint's row is written with its rule sets in it, after its line in the catalogue. While it is not known that the maps hold
//! all of policy it is shut, but where no policy selects it.

use anyhow::{Context, Result};
use osmia_maps::{catalogue::Line, layout::Endpoint};

use super::{Policing, Rows, lines};
use crate::{
    compile::policy::{CLOSED, Change, Local, Rules, Touched},
    model::Cluster,
    program::is_same,
};

/// Of an endpoint of which it is not sure what it may do.
pub(super) const SHUT: Rules = Rules { egress: CLOSED, ingress: CLOSED };

impl<R: Rows> Policing<R> {
    /// Whether an ADD of this pod shall wait for its object, or for what else it is judged by: what is not told may isolate it.
    pub(in crate::app) fn awaits(&self, local: &Local) -> bool {
        let Some(pod) = &local.pod else { return false };
        let Cluster { namespaces, policies, .. } = &self.cluster;
        let may_be_isolated =
            self.cluster.is_old() || !namespaces.contains_key(pod.namespace()) || !policies.is_empty();
        !self.cluster.untold().is_empty() || (local.judged(&self.cluster).is_none() && may_be_isolated)
    }

    /// Puts an endpoint in force, isolated from its first packet on where it has to be.
    ///
    /// # Errors
    /// Its row, its programs or its line in the catalogue cannot be written.
    pub(in crate::app) fn put(&mut self, dataplane: &mut R, slot: u32, endpoint: Endpoint, local: Local) -> Result<()> {
        let rules = match &self.policies {
            // Whoever compiles first finds it among the others. Those of before the begin are named by that.
            None => {
                if self.begun {
                    self.name(slot, &local)?;
                }
                self.locals.insert(slot, local);
                as_pinned(dataplane, slot, &endpoint)?
            }
            Some(_) => self.admit(dataplane, slot, local)?,
        };
        if rules == SHUT && self.cluster.untold().is_empty() {
            self.refused.insert(slot);
        }
        let endpoint = Endpoint { egress_rules: rules.egress, ingress_rules: rules.ingress, ..endpoint };
        dataplane.put_endpoint(slot, endpoint)
    }

    /// Takes an endpoint out. No packet of it passes when this returns.
    ///
    /// # Errors
    /// Its row cannot be removed.
    pub(in crate::app) fn remove(&mut self, dataplane: &mut R, slot: u32) -> Result<()> {
        dataplane.remove_endpoint(slot)?;
        self.refused.remove(&slot);
        if self.locals.remove(&slot).is_some() {
            if let Err(error) = self.catalogue.append(&[Line::NoEndpoint { slot }]) {
                self.settle(Err(error).context("the catalogue cannot be written"));
            }
            self.follow(dataplane, vec![Touched::Endpoint(slot, None)]);
        }
        Ok(())
    }

    /// Takes an endpoint in whose row is not there yet; the rules it has to be written with.
    fn admit(&mut self, dataplane: &mut R, slot: u32, local: Local) -> Result<Rules> {
        self.name(slot, &local)?;
        self.locals.insert(slot, local.clone());
        self.follow(dataplane, vec![Touched::Endpoint(slot, Some(local.clone()))]);
        if let Some(policies) = self.policies.as_ref().filter(|_| self.retry.is_none()) {
            return Ok(policies.rules(slot));
        }
        // What the maps hold is not known then. Who needs no rules is let go all the same, once his address is nobody's: to the rules of others
        // he is no pod until all is written, which takes rights from him and gives none.
        let peers = local.addresses.iter().map(|address| (*address, None)).collect();
        let nobody = Change { peers, ..Change::default() };
        let is_open = local.is_open(&self.cluster) && dataplane.write_policy(&nobody).is_ok();
        Ok(if is_open { Rules::default() } else { SHUT })
    }

    /// Whose an endpoint is, in the catalogue.
    fn name(&mut self, slot: u32, local: &Local) -> Result<()> {
        self.catalogue.append(&[lines::endpoint(slot, local)]).context("the catalogue cannot be written")
    }
}

/// The rule sets of a row that is put again before anything is known: what they were, else none may pass.
fn as_pinned<R: Rows>(dataplane: &R, slot: u32, endpoint: &Endpoint) -> Result<Rules> {
    let row = dataplane.endpoint(slot)?.filter(|row| is_same(row, endpoint));
    Ok(row.map_or(SHUT, |row| Rules { egress: row.egress_rules, ingress: row.ingress_rules }))
}
