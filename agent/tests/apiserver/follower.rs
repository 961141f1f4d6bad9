//! A source that runs beside a test, and the model that its events make.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use osmia_agent::model::{Cluster, Event};
use osmia_agent::source::kube::{Access, KubeSource};
use osmia_lab::Space;
use osmia_lab::apiserver::Apiserver;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// On a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) cluster: Cluster,
    /// Every event since the start.
    pub(crate) events: Vec<Event>,
    pub(crate) problems: Vec<String>,
    /// The source gave its first events.
    pub(crate) started: bool,
    /// Why it did not.
    pub(crate) refused: Option<String>,
}

/// The source. Dropped, it ends.
pub(crate) struct Follower {
    seen: Arc<Mutex<Seen>>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Follower {
    /// Runs a source in the apiserver's namespace.
    pub(crate) fn start(server: &Apiserver, kubeconfig: &Path, servers: &[String], state: &Path) -> Self {
        Self::inside(&server.space, kubeconfig, servers, state)
    }

    /// Runs a source in a namespace.
    pub(crate) fn inside(space: &Space, kubeconfig: &Path, servers: &[String], state: &Path) -> Self {
        let access = Access { kubeconfig: Some(kubeconfig.to_owned()), servers: servers.to_vec() };
        let (space, state) = (space.try_clone().unwrap(), state.to_owned());
        let seen = Arc::<Mutex<Seen>>::default();
        let (told, (stop, mut stopped)) = (Arc::clone(&seen), oneshot::channel());
        let thread = thread::spawn(move || {
            let follow = async move {
                tokio::select! {
                    () = follow(access, &state, &told) => {}
                    _ = &mut stopped => {}
                }
            };
            let run =
                move || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(follow);
            space.run(run).unwrap();
        });
        Self { seen, thread: Some((stop, thread)) }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it holds; gives how long that took.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, mut holds: impl FnMut(&Seen) -> bool) -> Duration {
        let since = Instant::now();
        while !holds(&self.seen()) {
            let seen = self.seen();
            assert!(
                since.elapsed() < PATIENCE,
                "not seen: {what}; started {}, refused {:?}, problems {:?}, events {:#?}",
                seen.started,
                seen.refused,
                seen.problems,
                seen.events.iter().rev().take(5).collect::<Vec<_>>()
            );
            drop(seen);
            thread::sleep(Duration::from_millis(5));
        }
        since.elapsed()
    }

    #[track_caller]
    pub(crate) fn wait_started(&self) {
        self.wait("the source starts", |seen| seen.started);
    }

    #[track_caller]
    pub(crate) fn wait_problem(&self, word: &str) {
        self.wait(&format!("a problem with {word:?}"), |seen| seen.problems.iter().any(|text| text.contains(word)));
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let Some((stop, thread)) = self.thread.take() else { return };
        // It ended already where it was refused.
        let _ = stop.send(());
        assert!(thread.join().is_ok() || thread::panicking(), "the source panicked");
    }
}

async fn follow(access: Access, state: &Path, told: &Mutex<Seen>) {
    let lock = || told.lock().unwrap_or_else(PoisonError::into_inner);
    let take = |events: Vec<Event>| {
        let mut seen = lock();
        for event in events {
            seen.cluster.apply(event.clone());
            seen.events.push(event);
        }
    };
    let mut source = match KubeSource::open(access, state).await {
        Ok(source) => source,
        Err(error) => {
            lock().refused = Some(format!("{error:#}"));
            return;
        }
    };
    loop {
        let started = lock().started;
        let next = async { if started { source.next().await.0 } else { source.first().await } };
        let next = timeout(Duration::from_millis(100), next).await;
        let problems = source.problems();
        if let Ok(events) = next {
            take(events);
            lock().started = true;
        }
        lock().problems = problems;
    }
}
