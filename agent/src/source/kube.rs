//! `--source kube`: Nodes, Namespaces, NetworkPolicies and Pods of the whole cluster, watched at an apiserver.
//!
//! Invariant: of what it told only keys and fingerprints stay in memory. What is told twice is told once; what is not in a list any more
//! is gone, also if it went while nobody watched; an object that cannot be read stays as it was read last. While the apiserver is away
//! all stays as it was, over a restart too.

use std::{future, path::Path, sync::Arc, task::Poll, time::Duration};

use anyhow::Result;
use backon::ExponentialBuilder;
use futures_util::{StreamExt as _, stream::BoxStream};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt as _,
        utils::ResetTimerBackoff,
        watcher::{self, ExponentialBackoff},
    },
};
use tokio::time;

mod access;
mod connection;
mod told;
mod watched;

pub use access::{Access, server};
use connection::Connection;
use told::{KINDS, News, Told};
use watched::{Kind, Watched};

use super::arrival::Lookout;
use crate::model::Event;

/// How long a start waits for the apiserver where a copy of what it said last is there.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many news of a kind are taken before it is another kind's turn, and the agent's.
const TURN: usize = 64;
/// Between two tries, doubled from the first to the second, and up to as much again; back to the first after a while without failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
const CALM: Duration = Duration::from_secs(60);

/// The watches of an apiserver.
pub struct KubeSource {
    connection: Arc<Connection>,
    watches: [Watch; KINDS],
    told: Told,
    /// What [`Self::first`] has not given yet.
    first: Vec<Event>,
    opened: time::Instant,
    lookout: Lookout,
}

impl KubeSource {
    /// Reads the configuration and the copy of what an apiserver said last.
    ///
    /// # Errors
    /// The configuration cannot be used, or the state folder.
    pub async fn open(access: Access, state: &Path) -> Result<Self> {
        let connection = Connection::new(access).await?;
        let told = Told::open(&state.join("source").join("kube"))?;
        Ok(Self::over(connection, told))
    }

    fn over(connection: Arc<Connection>, (told, first): (Told, Vec<Event>)) -> Self {
        let client = connection.client();
        let watches = [
            Watch::new::<watched::Node>(&client),
            Watch::new::<watched::Namespace>(&client),
            Watch::new::<watched::Policy>(&client),
            Watch::new::<watched::Pod>(&client),
        ];
        Self { connection, watches, told, first, opened: time::Instant::now(), lookout: Lookout::new() }
    }

    /// What to start with: everything, listed once. Where all was listed once before, what was said then is enough while no apiserver
    /// answers; else one is waited for. Cancel-safe.
    pub async fn first(&mut self) -> Vec<Event> {
        let until = self.told.has_copy().then(|| self.opened + PATIENCE);
        while !self.told.is_complete() {
            let Some(until) = until else {
                let (events, _) = self.next().await;
                self.first.extend(events);
                continue;
            };
            let next = time::timeout_at(until, self.next()).await;
            let is_late = next.is_err();
            self.first.extend(next.into_iter().flat_map(|(events, _)| events));
            if is_late || !self.connection.failing().is_empty() {
                tracing::warn!("no apiserver answers in time; starting with what it said last");
                break;
            }
        }
        std::mem::take(&mut self.first)
    }

    /// Waits for changes; they and when the first of them came, before it was parsed. Cancel-safe.
    pub async fn next(&mut self) -> (Vec<Event>, time::Instant) {
        let mut look = self.lookout.look();
        let news = future::poll_fn(|context| {
            let since = look.since();
            let mut news = Vec::new();
            for (kind, watch) in self.watches.iter_mut().enumerate() {
                for _ in 0..TURN {
                    let Poll::Ready(Some(one)) = watch.stream.poll_next_unpin(context) else { break };
                    news.push((kind, one));
                }
            }
            if news.is_empty() { Poll::Pending } else { Poll::Ready((news, since)) }
        });
        let (news, since) = news.await;
        drop(look);
        let mut events = Vec::new();
        for (kind, said) in news {
            self.take(kind, said, &mut events);
        }
        self.told.save();
        (events, since)
    }

    /// What cannot be asked for or read, and why.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let stuck =
            self.watches.iter().filter_map(|watch| Some(format!("{}: {}", watch.plural, watch.stuck.as_ref()?)));
        self.connection.failing().into_iter().chain(stuck).chain(self.told.problems()).collect()
    }

    fn take(&mut self, kind: usize, said: Result<News, watcher::Error>, events: &mut Vec<Event>) {
        let watch = &mut self.watches[kind];
        match said {
            Ok(news) => {
                watch.stuck = None;
                self.told.take(kind, news, events);
            }
            Err(watcher::Error::WatchStartFailed(kube::Error::Api(status))) if status.code == 422 && watch.streams => {
                tracing::info!(kind = watch.plural, "this apiserver has no streaming lists: listing in pages");
                watch.streams = false;
                watch.stream = (watch.start)(&self.connection.client(), false);
            }
            // The connection has said it.
            Err(
                watcher::Error::InitialListFailed(error)
                | watcher::Error::WatchStartFailed(error)
                | watcher::Error::WatchFailed(error),
            ) if !matches!(error, kube::Error::SerdeError(_)) => {
                tracing::debug!(kind = watch.plural, %error, "a watch broke");
            }
            Err(watcher::Error::WatchError(status)) if status.code == 410 => {
                tracing::info!(kind = watch.plural, why = status.message, "the watch cannot go on: listing anew");
            }
            Err(error) => {
                let why = error.to_string();
                tracing::warn!(kind = watch.plural, why, "the apiserver's answer cannot be read");
                watch.stuck = Some(why);
            }
        }
    }
}

type NewsStream = BoxStream<'static, Result<News, watcher::Error>>;

/// The watch of a kind.
struct Watch {
    plural: &'static str,
    stream: NewsStream,
    start: fn(&Client, bool) -> NewsStream,
    /// Whether it lists by streaming.
    streams: bool,
    /// An answer that cannot be read, and none since that can.
    stuck: Option<String>,
}

impl Watch {
    fn new<K: Kind>(client: &Client) -> Self
    where
        K::Scope: Send,
    {
        Self { plural: K::PLURAL, stream: start::<K>(client, true), start: start::<K>, streams: true, stuck: None }
    }
}

/// The library's watch, which knows bookmarks, pages and versions that are too old.
fn start<K: Kind>(client: &Client, streams: bool) -> NewsStream {
    let config = watcher::Config::default();
    let config = if streams { config.streaming_lists() } else { config };
    let backoff = ExponentialBuilder::new().with_min_delay(BACKOFF.0).with_max_delay(BACKOFF.1);
    let backoff = ExponentialBackoff::from(backoff.with_factor(2.0).without_max_times().with_jitter());
    let watch = watcher::watcher(Api::<Watched<K>>::all(client.clone()), config);
    let news = watch.backoff(ResetTimerBackoff::new(backoff, CALM)).map(|said| {
        said.map(|event| match event {
            watcher::Event::Init => News::Begin,
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => News::Is(object.key(), object.said),
            watcher::Event::Delete(object) => News::Gone(object.key()),
            watcher::Event::InitDone => News::End,
        })
    });
    news.boxed()
}

#[cfg(test)]
mod tests;
