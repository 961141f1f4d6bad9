//! `--source kube` against a real apiserver. Needs root, for the namespace that apiserver and source are in.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, wherever it does")]

mod access;
mod away;
mod feed;
mod follower;
mod objects;
mod restarts;
mod watch;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use osmia_lab::apiserver::Apiserver;

/// The apiserver that tests share which do nothing to it but to make and delete objects of their own names.
fn shared() -> Arc<Apiserver> {
    static SHARED: Mutex<Weak<Apiserver>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Apiserver::start(&[]).unwrap());
        *shared = Arc::downgrade(&server);
        server
    })
}
