//! The CNI socket.
//!
//! Invariant: only root is served; an ADD whose connection ends before its commit is undone; a caller that says nothing holds nothing.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use osmia_cni::{
    protocol::{Answer, AttachmentKey, Failure, Request, frame::FrameError},
    spec::error::code,
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time,
};

use super::{connection::Connection, metrics::Metrics};
use crate::attachments::{Attachments, Wish, netns_id};

/// A caller that connects and says nothing.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest a reservation is held, whatever the caller says.
const LONGEST_ADD: Duration = Duration::from_secs(120);
/// Connections served at one time; more wait.
const CONNECTIONS: usize = 256;
/// How long a stop waits for calls that are being served.
const STOP: Duration = Duration::from_secs(5);

/// Makes the socket. An old file of that name gives way in one step, so that there is no moment without one.
///
/// # Errors
/// The folder cannot be written.
pub fn bind(path: &Path) -> Result<UnixListener> {
    let new = path.with_extension("new");
    let what = || format!("cannot make the socket {}", path.display());
    match fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).with_context(what),
        _ => {}
    }
    let listener = UnixListener::bind(&new).with_context(what)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).with_context(what)?;
    fs::rename(&new, path).with_context(what)?;
    Ok(listener)
}

/// Serves until told to stop; then finishes the calls that are being served.
pub async fn serve(
    listener: UnixListener,
    attachments: Arc<Attachments>,
    metrics: Arc<Metrics>,
    mut stop: watch::Receiver<bool>,
) {
    let sessions = AtomicU64::new(1);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut calls = JoinSet::new();
    loop {
        let accept = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accept => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        while calls.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) if is_root(&stream) => {
                let session = sessions.fetch_add(1, Ordering::Relaxed);
                let (attachments, metrics) = (Arc::clone(&attachments), Arc::clone(&metrics));
                calls.spawn(async move {
                    let _place = place;
                    Call { session, connection: Connection::new(stream), attachments, metrics, pending: None }
                        .run()
                        .await;
                });
            }
            Ok(_) => tracing::warn!("refused a caller that is not root"),
            Err(error) => {
                // Out of descriptors, most likely: the next call would fail at once too.
                tracing::error!(%error, "cannot accept a call");
                time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    if time::timeout(STOP, async { while calls.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(calls = calls.len(), "stopping although calls are being served; the next start undoes them");
    }
}

fn is_root(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0)
}

struct Call {
    session: u64,
    connection: Connection,
    attachments: Arc<Attachments>,
    metrics: Arc<Metrics>,
    /// The reservation that waits for its commit, and until when.
    pending: Option<(AttachmentKey, time::Instant)>,
}

impl Call {
    async fn run(mut self) {
        let why = self.requests().await;
        if let Some((key, _)) = self.pending.take() {
            self.attachments.abandon(self.session, &key, &why).await;
        }
    }

    /// Serves requests until the connection ends; says how.
    async fn requests(&mut self) -> String {
        loop {
            let until = self.pending.as_ref().map_or_else(|| time::Instant::now() + SILENCE, |(_, until)| *until);
            let received = match time::timeout_at(until, self.connection.request()).await {
                Ok(Ok(Some(received))) => received,
                Ok(Ok(None)) => return "its caller went away".to_owned(),
                Ok(Err(FrameError::Io(error))) => return format!("its connection broke: {error}"),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "refused a message");
                    // Whether it can still read that is its own concern.
                    let failure = Failure::new(code::DECODE, error.to_string());
                    let _ = self.connection.answer(&Answer::Failed(failure)).await;
                    return error.to_string();
                }
                Err(_) => {
                    let why = "its time is up".to_owned();
                    if let Some((key, _)) = self.pending.take() {
                        self.attachments.abandon(self.session, &key, &why).await;
                        let failure =
                            Failure::new(code::TRY_LATER, format!("the ADD of {key} took longer than its deadline"));
                        let _ = self.connection.answer(&Answer::Failed(failure)).await;
                    }
                    return why;
                }
            };
            let (request, fd) = received;
            let started = Instant::now();
            let verb = verb(&request);
            let answer = match self.one(request, fd).await {
                Ok(answer) => answer,
                Err(failure) => Answer::Failed(failure),
            };
            self.metrics.call(verb, &answer, started.elapsed());
            if let Err(error) = self.connection.answer(&answer).await {
                return format!("its caller did not take the answer: {error}");
            }
        }
    }

    async fn one(&mut self, request: Request, fd: Option<std::os::fd::OwnedFd>) -> Result<Answer, Failure> {
        let attachments = Arc::clone(&self.attachments);
        match request {
            Request::Reserve { key, network, netns, pod, started_ns, deadline_ms, config: _ } => {
                if let Some((pending, _)) = &self.pending {
                    let text = format!("this connection already serves the ADD of {pending}");
                    return Err(Failure::new(code::INTERNAL, text));
                }
                let fd =
                    fd.ok_or_else(|| Failure::new(code::INTERNAL, "no network namespace came with the request"))?;
                let netns_id = netns_id(&fd)?;
                let wish = Wish { key: key.clone(), network, netns, pod, started_ns };
                let assignment = attachments.reserve(self.session, wish, netns_id).await?;
                self.pending = Some((key, time::Instant::now() + Duration::from_millis(deadline_ms).min(LONGEST_ADD)));
                Ok(Answer::Reserved(assignment))
            }
            Request::Commit { key, pod_mac, host_ifindex } => {
                attachments.commit(self.session, &key, &pod_mac, host_ifindex).await?;
                self.pending = None;
                Ok(Answer::Done)
            }
            Request::Delete { key, started_ns } => {
                attachments.delete(&key, started_ns).await.map_err(Failure::for_del)?;
                Ok(Answer::Done)
            }
            Request::Check { key } => Ok(Answer::Attachment(attachments.check(&key).await?)),
            Request::Status => Ok(Answer::Done),
            Request::Collect { network, valid } => {
                attachments.collect(&network, &valid).await.map_err(Failure::for_del)?;
                Ok(Answer::Done)
            }
        }
    }
}

fn verb(request: &Request) -> &'static str {
    match request {
        Request::Reserve { .. } => "reserve",
        Request::Commit { .. } => "commit",
        Request::Delete { .. } => "delete",
        Request::Check { .. } => "check",
        Request::Status => "status",
        Request::Collect { .. } => "collect",
    }
}

#[cfg(test)]
mod tests;
