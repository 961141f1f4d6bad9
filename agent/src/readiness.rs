//! Named start tasks: the agent is ready when all are done, and says which are not.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

/// What is still to be done.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    open: Arc<Mutex<BTreeSet<&'static str>>>,
}

/// A task; done when [`Task::done`] is called.
#[derive(Debug)]
#[must_use]
pub struct Task {
    name: &'static str,
    readiness: Readiness,
}

impl Readiness {
    /// Something that has to be done first.
    pub fn task(&self, name: &'static str) -> Task {
        self.open().insert(name);
        Task { name, readiness: self.clone() }
    }

    /// What is not done yet.
    #[must_use]
    pub fn pending(&self) -> Vec<&'static str> {
        self.open().iter().copied().collect()
    }

    fn open(&self) -> std::sync::MutexGuard<'_, BTreeSet<&'static str>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Task {
    /// It is done once this says so, also if it did before anybody asked.
    pub async fn done_when(self, mut said: watch::Receiver<bool>) {
        // Who would say it goes with the agent.
        if said.wait_for(|done| *done).await.is_ok() {
            self.done();
        }
    }

    /// It is done.
    pub fn done(self) {
        let mut open = self.readiness.open();
        open.remove(self.name);
        let left = open.iter().copied().collect::<Vec<_>>().join(", ");
        if left.is_empty() {
            tracing::info!("ready");
        } else {
            tracing::debug!(task = self.name, left, "done");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_all_are_done() {
        let readiness = Readiness::default();
        let (a, b) = (readiness.task("a"), readiness.task("b"));
        a.done();
        assert_eq!(readiness.pending(), ["b"]);
        b.done();
        assert!(readiness.pending().is_empty());
    }

    #[tokio::test]
    async fn what_was_so_before_anybody_asked_is_done_as_well() {
        let readiness = Readiness::default();
        let (early, late) = (watch::Sender::new(false), watch::Sender::new(false));
        early.send_replace(true);
        let within = std::time::Duration::from_secs(10);
        tokio::time::timeout(within, readiness.task("early").done_when(early.subscribe())).await.unwrap();
        let waits = tokio::spawn(readiness.task("late").done_when(late.subscribe()));
        tokio::task::yield_now().await;
        assert_eq!(readiness.pending(), ["late"]);
        late.send_replace(true);
        tokio::time::timeout(within, waits).await.unwrap().unwrap();
        assert!(readiness.pending().is_empty());
    }
}
