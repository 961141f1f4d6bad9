//! `--source kube`: Nodes, Namespaces, NetworkPolicies and Pods of the whole cluster, watched at an apiserver.
//!
//! Invariant: of what it told only fingerprints stay in memory, and names and what objects have in common, which are the model's own. What is
//! told twice is told once; what is not in a list any more is gone, also if it went while nobody watched; an object that cannot be read stays as
//! it was read last. While the apiserver is away all stays as it was, over a restart too: a kind counts as remembered then, and as told once this
//! process has listed it. Namespaces and policies count as remembered again once they cannot be asked for any more. While one of them is only
//! remembered a pod that is new, or has other labels, is isolated, told or not: a policy may be there that nobody told. So no list is waited for
//! to be safe (`told.rs` has the rest of it). What is listed is held back for a while only so that pods and policies that changed together are
//! told together: such a pod would be isolated in between.

use std::{future, mem, path::Path, sync::Arc, task::Poll, time::Duration};

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
mod reporter;
mod told;
mod watched;

pub use access::{Access, server};
use connection::Connection;
pub use reporter::Reporter;
use told::{KINDS, News, Told};
use watched::{Kind, Watched};

use super::arrival::Lookout;
use crate::model::{self, Event};

/// How long a start waits for the apiserver where a copy of what it said last is there, or for the other kinds once Nodes are listed.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long after such a start what is listed waits for the kinds that are not: longer than a large cluster takes to list. After it a kind
/// that cannot be listed does not hold up the others.
const TOGETHER: Duration = Duration::from_secs(20);
/// How long policies or namespaces cannot be asked for before they are only remembered, and listed anew: longer than an apiserver takes to
/// hand over to another one. Also, how long after an answer that cannot be read, and none since, pods are.
const LAPSE: Duration = Duration::from_secs(10);
/// The kinds that are.
const LAPSING: [model::Kind; 3] = [model::Kind::Namespace, model::Kind::Policy, model::Kind::Pod];
/// After the watch of pods went on: what it missed is told by then. Also, how often it is looked whether it did.
const CATCH_UP: Duration = Duration::from_secs(1);
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
    /// What the copy of what an apiserver said last says, until it is given.
    copied: Vec<Event>,
    /// What an apiserver said since, and was not given yet.
    held: Vec<Event>,
    /// When the first of it came.
    held_since: Option<time::Instant>,
    /// Until when something is waited for: [`Self::first`], or that what is listed after it is complete.
    until: Option<time::Instant>,
    pods: PodWatch,
    /// Some kind was waited for in vain: each is told as it comes.
    apart: bool,
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

    fn over(connection: Arc<Connection>, (told, copied): (Told, Vec<Event>)) -> Self {
        let client = connection.client();
        // In the order of the model's kinds.
        let watches = [
            Watch::new::<watched::Node>(&client),
            Watch::new::<watched::Namespace>(&client),
            Watch::new::<watched::Policy>(&client),
            Watch::new::<watched::Pod>(&client),
        ];
        Self {
            connection,
            watches,
            told,
            copied,
            held: Vec::new(),
            held_since: None,
            until: None,
            pods: PodWatch::Goes,
            apart: false,
            lookout: Lookout::new(),
        }
    }

    /// What to start with: everything, listed once. Where all was listed once before, what was said then is enough while no apiserver
    /// answers. Else the Nodes are waited for, without which nothing can be done here, and the other kinds not for long. Cancel-safe.
    pub async fn first(&mut self) -> Vec<Event> {
        while !self.told.is_complete() {
            if !self.told.has_copy() && !self.told.is_listed(model::Kind::Node) {
                self.gather().await;
                continue;
            }
            let until = *self.until.get_or_insert_with(|| time::Instant::now() + PATIENCE);
            let is_late = time::timeout_at(until, self.gather()).await.is_err();
            if is_late || (self.told.has_copy() && !self.connection.failing().is_empty()) {
                let without_a_copy = !self.told.has_copy();
                tracing::warn!(without_a_copy, "no apiserver tells all in time; starting with what it said last");
                break;
            }
        }
        self.until = None;
        let mut events = mem::take(&mut self.copied);
        if self.told.is_complete() || !self.told.has_copy() {
            // With the room that it took: it will not be needed again.
            events.extend(mem::take(&mut self.held));
            self.held_since = None;
        }
        events
    }

    /// Waits for changes; they and when the first of them came, before it was parsed. Cancel-safe.
    pub async fn next(&mut self) -> (Vec<Event>, time::Instant) {
        match self.together_until() {
            None => self.gather().await,
            Some(until) if time::timeout_at(until, self.gather()).await.is_err() => {
                tracing::warn!("some kinds cannot be listed: the others are told without them");
                self.apart = true;
            }
            Some(_) => {}
        }
        if self.together_until().is_some() {
            return (Vec::new(), time::Instant::now());
        }
        (mem::take(&mut self.held), self.held_since.take().unwrap_or_else(time::Instant::now))
    }

    /// Until when what is listed after a start from the copy waits for the kinds that are not listed yet; `None`: for none, or nothing is.
    fn together_until(&mut self) -> Option<time::Instant> {
        let begun = !self.held.is_empty() || model::Kind::ALL.into_iter().any(|kind| self.told.is_listed(kind));
        if self.apart || self.told.is_complete() || !self.told.has_copy() || !begun {
            return None;
        }
        Some(*self.until.get_or_insert_with(|| time::Instant::now() + TOGETHER))
    }

    /// Waits for news and takes them in. Cancel-safe.
    async fn gather(&mut self) {
        let lapse = LAPSING.into_iter().filter_map(|kind| self.lapses_at(kind));
        let pods = match self.pods {
            PodWatch::Goes => None,
            PodWatch::Broken => Some(time::Instant::now() + CATCH_UP),
            PodWatch::GoesOn(until) => Some(until),
        };
        let due = lapse.chain(self.told.due()).chain(pods).min();
        let mut look = self.lookout.look();
        let news = future::poll_fn(|context| {
            let since = look.since();
            let mut news = Vec::new();
            for (kind, watch) in model::Kind::ALL.into_iter().zip(&mut self.watches) {
                for _ in 0..TURN {
                    let Poll::Ready(Some(one)) = watch.stream.poll_next_unpin(context) else { break };
                    news.push((kind, one));
                }
            }
            if news.is_empty() { Poll::Pending } else { Poll::Ready((news, since)) }
        });
        // The disk is tried again, whether there is news or not.
        let (news, since) = match due {
            None => news.await,
            Some(due) => time::timeout_at(due, news).await.unwrap_or_else(|_| (Vec::new(), due)),
        };
        drop(look);
        self.look_at_pods();
        for (kind, said) in news {
            self.take(kind, said);
        }
        for kind in LAPSING {
            if self.lapses_at(kind).is_some_and(|at| at <= time::Instant::now()) {
                self.lapse(kind);
            }
        }
        if !self.held.is_empty() {
            self.held_since.get_or_insert(since);
        }
        self.told.save();
    }

    /// A watch that is broken, or went on this moment, may have missed pods that changed with policies.
    fn look_at_pods(&mut self) {
        let now = time::Instant::now();
        let watch = &self.watches[model::Kind::Pod as usize];
        let is_broken = watch.stuck.is_some() || self.connection.failing_since(watch.plural).is_some();
        self.pods = match self.pods {
            _ if is_broken => PodWatch::Broken,
            PodWatch::Broken => PodWatch::GoesOn(now + CATCH_UP),
            PodWatch::GoesOn(until) if until <= now => PodWatch::Goes,
            same => same,
        };
        self.told.miss_pods(self.pods != PodWatch::Goes, &mut self.held);
    }

    /// When a kind that was told is listed anew, if it goes on that it cannot be asked for or read. The watch of pods that cannot be asked for
    /// says by itself when it goes on; one that could not be read may be silent from then on.
    fn lapses_at(&self, kind: model::Kind) -> Option<time::Instant> {
        let watch = &self.watches[kind as usize];
        let failing = self.connection.failing_since(watch.plural);
        // While nobody answers no list is there to ask for.
        let stuck = watch.stuck.as_ref().map(|(_, since)| *since).filter(|_| failing.is_none());
        let failing = failing.filter(|_| model::Kind::JUDGES.contains(&kind));
        let since = failing.into_iter().chain(stuck).min()?;
        self.told.is_told(kind).then(|| since + LAPSE)
    }

    /// Nobody knows what is missing of a kind: where a watch goes on it does not say when it has told what there was meanwhile, a list does.
    fn lapse(&mut self, kind: model::Kind) {
        let watch = &mut self.watches[kind as usize];
        watch.stream = (watch.start)(&self.connection.client(), watch.streams);
        watch.lapsed = model::Kind::JUDGES.contains(&kind);
        if watch.lapsed {
            tracing::warn!(
                kind = watch.plural,
                "it cannot be asked for: new pods are isolated until it is listed again"
            );
        } else {
            tracing::warn!(kind = watch.plural, "nothing came since an answer that cannot be read: listing anew");
        }
        if let Some((_, since)) = &mut watch.stuck {
            // Once more if that cannot be read either.
            *since = time::Instant::now();
        }
        self.told.list_anew(kind, &mut self.held);
    }

    /// See [`Told::pack`].
    pub fn pack(&mut self) {
        self.told.pack();
    }

    /// Who writes Events for this node.
    #[must_use]
    pub fn reporter(&self, node: &str) -> Reporter {
        Reporter::new(Arc::clone(&self.connection), node)
    }

    /// What cannot be asked for or read, and why.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let stuck =
            self.watches.iter().filter_map(|watch| Some(format!("{}: {}", watch.plural, watch.stuck.as_ref()?.0)));
        let lapsed = self.watches.iter().filter(|watch| watch.lapsed);
        let lapsed = lapsed.map(|watch| format!("{}: new pods are isolated until they are listed again", watch.plural));
        let said = self.connection.failing().into_iter().chain(stuck).chain(lapsed).chain(self.told.problems());
        let mut said: Vec<String> = said.collect();
        // Of which it is said already why, or not: until then what is missing of it may be there.
        let unlisted = model::Kind::ALL.into_iter().filter(|kind| !self.told.is_listed(*kind));
        let unlisted = unlisted.map(|kind| self.watches[kind as usize].plural);
        let unlisted: Vec<&str> = unlisted.filter(|plural| !said.iter().any(|text| text.starts_with(plural))).collect();
        said.extend(unlisted.into_iter().map(|plural| format!("{plural}: not listed to the end since this start")));
        said
    }

    fn take(&mut self, kind: model::Kind, said: Result<News, watcher::Error>) {
        let watch = &mut self.watches[kind as usize];
        match said {
            Ok(news) => {
                watch.stuck = None;
                self.told.take(kind, news, &mut self.held);
                if watch.lapsed && self.told.is_told(kind) {
                    watch.lapsed = false;
                    tracing::info!(kind = watch.plural, "it is listed again");
                }
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
                let since = watch.stuck.take().map_or_else(time::Instant::now, |(_, since)| since);
                watch.stuck = Some((why, since));
            }
        }
    }
}

/// How the watch of pods is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PodWatch {
    Goes,
    Broken,
    /// After it was broken; until what it missed is told.
    GoesOn(time::Instant),
}

type NewsStream = BoxStream<'static, Result<News, watcher::Error>>;

/// The watch of a kind.
struct Watch {
    plural: &'static str,
    stream: NewsStream,
    start: fn(&Client, bool) -> NewsStream,
    /// Whether it lists by streaming.
    streams: bool,
    /// An answer that cannot be read, and none since that can; since when.
    stuck: Option<(String, time::Instant)>,
    /// Only remembered although it was told.
    lapsed: bool,
}

impl Watch {
    fn new<K: Kind>(client: &Client) -> Self
    where
        K::Scope: Send,
    {
        let stream = start::<K>(client, true);
        Self { plural: K::PLURAL, stream, start: start::<K>, streams: true, stuck: None, lapsed: false }
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
