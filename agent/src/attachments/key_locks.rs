//! One operation an attachment at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Locks by host link name; those nobody holds or waits for take no memory.
#[derive(Default)]
pub(super) struct KeyLocks {
    locks: Mutex<HashMap<String, Arc<AsyncMutex<()>>>>,
}

/// A held lock.
pub(super) struct KeyGuard<'a> {
    locks: &'a KeyLocks,
    name: String,
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyLocks {
    /// Waits for its turn; turns come in the order of asking.
    pub(super) async fn lock(&self, name: &str) -> KeyGuard<'_> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(locks.entry(name.to_owned()).or_default())
        };
        KeyGuard { locks: self, name: name.to_owned(), guard: Some(lock.lock_owned().await) }
    }
}

impl Drop for KeyGuard<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = self.locks.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if locks.get(&self.name).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_holds_a_name_others_are_free_and_nothing_stays() {
        let locks = KeyLocks::default();
        let held = locks.lock("a").await;
        drop(locks.lock("b").await);
        let second = locks.lock("a");
        tokio::pin!(second);
        let soon = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, &mut second).await.is_err());
        drop(held);
        drop(second.await);
        assert!(locks.locks.lock().unwrap().is_empty());
    }
}
