//! What happens in the cluster beside what is timed, told at its own pace.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use osmia_lab::feed::{Event, Feed};

use super::{GLANCE, Server};

/// Between two steps of churn: see `osmia_lab::feed`.
const STEP: Duration = Duration::from_millis(100);

/// How far it has come.
#[derive(Default)]
pub(super) struct Churn {
    /// Events of a step that are to be told.
    due: VecDeque<Event>,
    /// How far apart they are.
    apart: Duration,
}

impl Churn {
    /// Tells of it from now on, while `goes_on`.
    pub(super) fn tell(&mut self, feed: &mut Feed, server: &Server, goes_on: impl Fn() -> bool) -> Result<()> {
        let mut next = Instant::now();
        while goes_on() {
            if self.due.is_empty() {
                self.due.extend(feed.churn());
                self.apart = STEP / u32::try_from(self.due.len()).unwrap_or(1).max(1);
            }
            let wait = next.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                thread::sleep(wait.min(GLANCE));
            } else if let Some(event) = self.due.pop_front() {
                server.tell(&event)?;
                next += self.apart;
            } else {
                next += STEP;
            }
        }
        Ok(())
    }

    /// Calls while a thread of its own tells of it.
    pub(super) fn beside<T>(
        &mut self,
        feed: &mut Feed,
        server: &Server,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let teller = scope.spawn(|| self.tell(feed, server, || !over.load(Ordering::Relaxed)));
            // The scope waits for the thread also where the call panics.
            let ends = Ends(&over);
            let result = call();
            drop(ends);
            teller.join().map_err(|_| anyhow!("what tells of churn panicked"))??;
            result
        })
    }
}

/// Says that it is over when it goes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
