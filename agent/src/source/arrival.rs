//! When news came: the agent's one thread may have been busy with something else when they did.
//!
//! Invariant: never later than they came, as far as this thread can know. What is there at the first look may have been there since somebody
//! last looked; what comes while it is waited for came when the waiter was woken.

use tokio::time::Instant;

/// One who looks now and then.
#[derive(Debug)]
pub(super) struct Lookout {
    left: Instant,
}

impl Lookout {
    pub(super) fn new() -> Self {
        Self { left: Instant::now() }
    }

    /// Looks, until the answer is dropped.
    pub(super) fn look(&mut self) -> Look<'_> {
        Look { of: self, first: true }
    }
}

/// A look that lasts.
#[derive(Debug)]
pub(super) struct Look<'a> {
    of: &'a mut Lookout,
    first: bool,
}

impl Look<'_> {
    /// Asked right before each poll: since when what it finds may have been there.
    pub(super) fn since(&mut self) -> Instant {
        match std::mem::take(&mut self.first) {
            true => self.of.left,
            false => Instant::now(),
        }
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.of.left = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_waited_for_us_came_when_we_looked_away() {
        let mut lookout = Lookout::new();
        time::advance(Duration::from_secs(3)).await;
        let mut look = lookout.look();
        assert_eq!(look.since().elapsed(), Duration::from_secs(3), "it may have been there from the beginning");
        time::advance(Duration::from_secs(60)).await;
        assert_eq!(look.since().elapsed(), Duration::ZERO, "we were woken for it");
        drop(look);
        time::advance(Duration::from_millis(40)).await;
        assert_eq!(lookout.look().since().elapsed(), Duration::from_millis(40), "it came while we were busy");
    }
}
