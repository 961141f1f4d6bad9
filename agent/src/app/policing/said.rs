//! What the catalogue says is wrong, for whoever asks with the agent stopped.

use anyhow::{Context, Result};
use osmia_maps::catalogue::{CrowdedOut, Line};

use super::{Policing, Rows, lines};
use crate::{compile::policy::Policies, model::Kind};

/// So many problems of the source are named.
const NAMED: usize = 20;

impl<R: Rows> Policing<R> {
    /// Something of what was told is not in force, since `why`.
    pub(super) fn fall_behind(&mut self, why: &str) {
        let at_ms = *self.behind.get_or_insert_with(|| lines::milliseconds(self.clock.wall()));
        if let Err(error) = self.catalogue.append(&[Line::Behind { at_ms, why: why.to_owned() }]) {
            tracing::warn!(%error, "the catalogue does not say that policy is behind");
        }
    }

    /// Policy has not begun, since of some kinds not all is told.
    pub(super) fn wait_for(&mut self, untold: &[Kind]) {
        let why = "policy waits for the source to tell all of these: rules stay as they were, new pods are isolated";
        tracing::error!(?untold, "{why}");
        self.fall_behind(&format!("{why}: {untold:?}"));
    }

    /// Whose the endpoints are that were there at the start.
    pub(super) fn name_all(&mut self) {
        let named = self.catalogue.read().and_then(|there| {
            let lines = lines::endpoints(&self.locals, &there);
            self.catalogue.append(&lines)
        });
        if let Err(error) = named {
            tracing::warn!(%error, "the catalogue does not say whose endpoints are until policy begins");
        }
    }

    /// Which addresses that rules speak of have no room.
    pub(super) fn name_crowded_out(&mut self) {
        let lowest = self.policies.as_ref().and_then(Policies::lowest_crowded_out);
        let now = lowest.map(|lowest| CrowdedOut { addresses: self.crowded_out, lowest });
        if now == self.crowded_out_said {
            return;
        }
        match self.catalogue.append(&[Line::CrowdedOut { now }]) {
            Ok(()) => {
                self.crowded_out_said = now;
                self.crowded_out_unsaid = false;
            }
            Err(error) => {
                // Tried again with each change.
                if !std::mem::replace(&mut self.crowded_out_unsaid, true) {
                    tracing::warn!(%error, "the catalogue does not say which addresses have no room; tried again");
                }
            }
        }
    }

    /// All that was told is in force.
    pub(super) fn catch_up(&mut self) -> Result<()> {
        if self.behind.is_some() {
            self.catalogue.append(&[Line::CaughtUp]).context("the catalogue cannot be written")?;
            self.behind = None;
        }
        Ok(())
    }

    /// What the source cannot ask for or read now.
    pub(in crate::app) fn source(&mut self, mut problems: Vec<String>) {
        let more = problems.len().saturating_sub(NAMED);
        problems.truncate(NAMED);
        if more > 0 {
            problems.push(format!("{more} more, which the log names"));
        }
        if self.source.as_ref() == Some(&problems) {
            return;
        }
        match self.catalogue.append(&[Line::Source { problems: problems.clone() }]) {
            Ok(()) => {
                self.source = Some(problems);
                self.source_unsaid = false;
            }
            Err(error) => {
                // Tried again with each event.
                if !std::mem::replace(&mut self.source_unsaid, true) {
                    tracing::warn!(%error, "the catalogue does not say what the source cannot tell; tried again");
                }
            }
        }
    }
}
