//! An API server that says what a feed says, to agents that do not know the difference: lists, streaming lists, watches with bookmarks.
//!
//! It speaks HTTP without TLS and asks nobody who he is. What it was told last is what it lists; a watch gets every event once, in order.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt as _;
use futures_util::stream::{self, Stream, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep_until, timeout};

use super::{Event, Kind, What};
use crate::manifest::write;
use crate::space::Space;

/// How long a watch may be silent before it gets a bookmark.
const BOOKMARK: Duration = Duration::from_secs(30);
/// How long a watch lasts for whom does not say.
const WATCH: u64 = 300;

/// The server. Dropped, it ends.
pub struct FeedServer {
    address: SocketAddr,
    said: Arc<Said>,
    stop: Option<oneshot::Sender<()>>,
}

/// Everything that was told.
struct Said {
    kinds: Mutex<BTreeMap<Kind, Collection>>,
    /// Of the last event.
    version: watch::Sender<u64>,
}

/// The objects of a kind.
#[derive(Default)]
struct Collection {
    /// By namespace and name; with the version of the event that made them so.
    objects: BTreeMap<String, (u64, Bytes)>,
    /// Versions and lines of all events but the first ones.
    events: Vec<(u64, Bytes)>,
}

impl FeedServer {
    /// Serves inside `space` on a free port of its loopback; `events` are what it starts with.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn start(space: &Space, events: impl IntoIterator<Item = Event>) -> Result<Self> {
        let said = Arc::new(Said { kinds: Mutex::default(), version: watch::Sender::new(0) });
        for event in events {
            said.take(&event);
        }
        // Whoever watches has listed them before.
        for collection in said.kinds().values_mut() {
            collection.events.clear();
        }
        let (stop, stopped) = oneshot::channel();
        let (bound, answer) = mpsc::channel();
        let served = Arc::clone(&said);
        space.run(move || {
            thread::Builder::new().name("feed".into()).spawn(move || {
                let ended = serve(served, stopped, &bound);
                // Nobody listens any more where it fails later than at its start.
                let _ = bound.send(ended.map(|()| None));
            })
        })??;
        let address = answer.recv().context("the server's thread ended")??;
        Ok(Self { address: address.context("the server ended")?, said, stop: Some(stop) })
    }

    /// Tells an event; from when on watches could have it.
    pub fn tell(&self, event: &Event) -> Instant {
        self.said.take(event)
    }

    /// Writes a kubeconfig that leads here into `folder`; gives its path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn kubeconfig(&self, folder: &Path) -> Result<PathBuf> {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "feed", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "feed", "user": {}}],
            "contexts": [{"name": "feed", "context": {"cluster": "feed", "user": "feed"}}],
            "current-context": "feed",
        });
        let name = "feed.kubeconfig";
        write(folder, name, &config.to_string())?;
        Ok(folder.join(name))
    }
}

impl Drop for FeedServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It has ended by itself.
            let _ = stop.send(());
        }
    }
}

impl Said {
    fn kinds(&self) -> MutexGuard<'_, BTreeMap<Kind, Collection>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, event: &Event) -> Instant {
        let mut kinds = self.kinds();
        let version = *self.version.borrow() + 1;
        let mut event = event.clone();
        event.object["metadata"]["resourceVersion"] = version.to_string().into();
        let collection = kinds.entry(event.kind).or_default();
        let key = key(&event.object);
        match event.what {
            What::Added | What::Modified => {
                collection.objects.insert(key, (version, event.object.to_string().into()));
            }
            What::Deleted => drop(collection.objects.remove(&key)),
        }
        collection.events.push((version, (event.line() + "\n").into()));
        let at = Instant::now();
        self.version.send_replace(version);
        at
    }

    /// Lines of the events after a version, and the last version of all.
    fn after(&self, kind: Kind, version: u64) -> (Bytes, u64) {
        let kinds = self.kinds();
        let now = *self.version.borrow();
        let events = kinds.get(&kind).map(|collection| collection.events.as_slice()).unwrap_or_default();
        let first = events.partition_point(|(of, _)| *of <= version);
        let lines: Vec<&[u8]> = events.iter().skip(first).map(|(_, line)| &line[..]).collect();
        (lines.concat().into(), now)
    }

    /// All objects of a kind as a watch says them, and the last version of all.
    fn all(&self, kind: Kind) -> (Vec<Bytes>, u64) {
        let kinds = self.kinds();
        let objects = kinds.get(&kind).into_iter().flat_map(|collection| collection.objects.values());
        let (before, after) = (br#"{"type":"ADDED","object":"#.as_slice(), b"}\n".as_slice());
        let lines = objects.map(|(_, object)| [before, &object[..], after].concat().into());
        (lines.collect(), *self.version.borrow())
    }

    /// A page of a list: from the object after `from` on, at most `limit`.
    fn page(&self, kind: Kind, from: Option<&str>, limit: usize) -> Bytes {
        let kinds = self.kinds();
        let none = BTreeMap::new();
        let objects = kinds.get(&kind).map_or(&none, |collection| &collection.objects);
        let skipped = from.and_then(|from| from.parse().ok()).unwrap_or(0_usize);
        let items: Vec<_> = objects.values().skip(skipped).take(limit).map(|(_, object)| &object[..]).collect();
        let end = skipped + items.len();
        let next = if end < objects.len() { end.to_string() } else { String::new() };
        let (name, api, version) = (kind.name(), kind.version(), *self.version.borrow());
        let head = format!(
            r#"{{"kind":"{name}List","apiVersion":"{api}","metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":["#
        );
        [head.as_bytes(), &items.join(b",".as_slice()), b"]}".as_slice()].concat().into()
    }
}

/// Namespace and name.
fn key(object: &Value) -> String {
    let part = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    format!("{}/{}", part("namespace"), part("name"))
}

type Bound = mpsc::Sender<Result<Option<SocketAddr>>>;

fn serve(said: Arc<Said>, stopped: oneshot::Receiver<()>, bound: &Bound) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        // Who asked is gone.
        let _ = bound.send(listener.local_addr().map(Some).context("an address"));
        let router = Router::new().fallback(answer).with_state(said);
        // As every API server has it: else an event waits for the receipt of the one before.
        let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
        tokio::select! {
            served = async { axum::serve(listener, router).await } => served.context("serve"),
            // The connections end with the runtime.
            _ = stopped => Ok(()),
        }
    })
}

async fn answer(State(said): State<Arc<Said>>, uri: Uri) -> Response {
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.path() == uri.path()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let query: BTreeMap<&str, &str> =
        uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('=')).collect();
    if query.get("watch") != Some(&"true") {
        let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
        return Body::from(said.page(kind, query.get("continue").copied(), limit)).into_response();
    }
    let seconds = query.get("timeoutSeconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(WATCH);
    let until = tokio::time::Instant::now() + Duration::from_secs(seconds);
    if query.get("sendInitialEvents") == Some(&"true") {
        let (mut lines, version) = said.all(kind);
        lines.push(bookmark(kind, version, &json!({"k8s.io/initial-events-end": "true"})));
        return Body::from_stream(stream::iter(lines.into_iter().map(Ok)).chain(follow(said, kind, version, until)))
            .into_response();
    }
    let Some(version) = query.get("resourceVersion").and_then(|version| version.parse().ok()) else {
        return (StatusCode::BAD_REQUEST, "a watch from no version").into_response();
    };
    Body::from_stream(follow(said, kind, version, until)).into_response()
}

/// The events after a version until some time, and bookmarks.
fn follow(
    said: Arc<Said>,
    kind: Kind,
    version: u64,
    until: tokio::time::Instant,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let told = said.version.subscribe();
    stream::unfold((said, told, version), move |(said, mut told, version)| async move {
        let next = async {
            loop {
                told.mark_unchanged();
                let (lines, now) = said.after(kind, version);
                if !lines.is_empty() {
                    return (lines, now);
                }
                // The sender is in what is said.
                if let Err(_) | Ok(Err(_)) = timeout(BOOKMARK, told.changed()).await {
                    return (bookmark(kind, now, &json!({})), now);
                }
            }
        };
        let (lines, now) = tokio::select! {
            next = next => next,
            () = sleep_until(until) => return None,
        };
        Some((Ok(lines), (said, told, now)))
    })
}

fn bookmark(kind: Kind, version: u64, annotations: &Value) -> Bytes {
    let metadata =
        json!({"resourceVersion": version.to_string(), "creationTimestamp": null, "annotations": annotations});
    let object = json!({"kind": kind.name(), "apiVersion": kind.version(), "metadata": metadata});
    (format!(r#"{{"type":"BOOKMARK","object":{object}}}"#) + "\n").into()
}
