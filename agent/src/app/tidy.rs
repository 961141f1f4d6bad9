//! What many news leave in memory: maps with room between their entries, and pages that the allocator keeps although they are free.
//!
//! Invariant: after so many news it is put in order, as soon as none have come for a while, else with the housekeeping. So how much memory the
//! agent takes at rest follows from what there is, not from what happened before.

use tokio::time::{Duration, Instant};

/// Fewer leave too little to be worth it: in a large cluster it takes some tens of milliseconds.
const MANY: usize = 1000;
/// Nothing happens.
const QUIET: Duration = Duration::from_secs(1);

/// The news since it was put in order.
pub(super) struct Tidy {
    news: usize,
    last: Instant,
}

impl Tidy {
    /// So many were told at the start.
    pub(super) fn new(news: usize) -> Self {
        Self { news, last: Instant::now() }
    }

    pub(super) fn took(&mut self, news: usize) {
        if news > 0 {
            self.news += news;
            self.last = Instant::now();
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.news >= MANY
    }

    /// When nothing happens, if nothing does until then.
    pub(super) fn quiet_at(&self) -> Instant {
        self.last + QUIET
    }

    pub(super) fn is_done(&mut self) {
        self.news = 0;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_put_in_order_once_nothing_happens_after_much_did() {
        let mut tidy = Tidy::new(0);
        tidy.took(MANY - 1);
        assert!(!tidy.is_due());
        time::advance(QUIET / 2).await;
        tidy.took(1);
        assert!(tidy.is_due() && tidy.quiet_at() == Instant::now() + QUIET);
        time::advance(QUIET / 2).await;
        tidy.took(0);
        assert_eq!(tidy.quiet_at(), Instant::now() + QUIET / 2, "a watch that says nothing is none");
        tidy.is_done();
        assert!(!tidy.is_due());
    }
}
