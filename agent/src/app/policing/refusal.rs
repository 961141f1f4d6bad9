//! What was refused, by the maps, the catalogue or for want of numbers.
//!
//! Invariant: each refusal is said once, tried again ever more rarely, and nothing is written before that.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, anyhow};
use tokio::time::Instant;

use super::{Policing, Rows};
use crate::source::notice::Reason;

/// After the maps or the catalogue refused. Each time that they refuse again it is twice as long, since everything is compiled anew.
pub(super) const RETRY: Duration = Duration::from_secs(2);
/// No longer than this: what refused may have been put right by hand.
const RETRY_AT_MOST: Duration = Duration::from_secs(60);

impl<R: Rows> Policing<R> {
    /// When a refused change is to be tried again.
    pub(in crate::app) fn retry_at(&self) -> Option<Instant> {
        self.retry
    }

    /// Reads what is in the maps and the catalogue, and writes what differs from what ought to be.
    pub(in crate::app) fn try_again(&mut self, dataplane: &mut R) {
        if !self.may_begin() {
            self.retry = None;
            return;
        }
        let result = self.resume(dataplane).and_then(|()| self.catch_up());
        self.retry = None;
        if result.is_ok() {
            self.pause = RETRY;
            self.refused.clear();
            self.in_force.send_replace(true);
            self.notices.set_all(Reason::ChangeFailed, BTreeMap::new());
            if self.said.take().is_some() {
                tracing::info!("policy is in force as it should be again");
            }
        }
        self.settle(result);
    }

    /// After each attempt: what was refused is said, and tried again.
    pub(super) fn settle(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.metrics.policy_refused();
            let error = format!("{error:#}");
            if self.said.as_ref() != Some(&error) {
                tracing::error!(error, "policy is not in force as it should be: what was in force stays; tried again");
                self.fall_behind(&error);
                self.said = Some(error.clone());
            }
            self.notice_news(Reason::ChangeFailed, |_| Some(format!("it is not in force as it is now: {error}")));
            if self.retry.is_none() {
                self.retry = Some(Instant::now() + self.pause);
                self.pause = RETRY_AT_MOST.min(2 * self.pause);
                self.work.notify_one();
            }
        }
    }
}

/// A change would need numbers that were given before.
pub(super) fn used_up() -> anyhow::Error {
    anyhow!(
        "the numbers of rule sets, classes, peers or rules are used up: reboot the node, with which the maps begin anew"
    )
}
