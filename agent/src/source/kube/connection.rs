//! One client for all watches, over every address of the apiserver.
//!
//! Invariant: whatever fails is tried at each address in turn before it is an error, and what could not be reached, or did not accept us,
//! is read from its files anew before the next request: a rotated token, certificate or kubeconfig needs no restart. A watch is never
//! continued at an apiserver that knows less than we do.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use http::{Method, Request, Response, StatusCode};
use kube::{Client, Config, client::Body};
use serde::Deserialize;
use tokio::time::Instant;
use tower::BoxError;

use super::access::Access;

/// Why an object was not made.
#[derive(Debug)]
pub(super) struct Refused {
    /// It may be taken later.
    pub(super) again: bool,
    pub(super) why: String,
}

/// The client's inside.
pub(super) struct Connection {
    access: Access,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Which of the addresses is asked first.
    turn: usize,
    /// By address; empty: to be made anew.
    clients: Vec<(String, Client)>,
    /// What is wrong, by what is asked for, and since when something is.
    failing: BTreeMap<String, (String, Instant)>,
}

impl Connection {
    /// Over the addresses that `access` names.
    ///
    /// # Errors
    /// It names none that can be used.
    pub(super) async fn new(access: Access) -> Result<Arc<Self>> {
        let clients = make(access.read().await?)?;
        Ok(Self::over(access, clients))
    }

    /// Over these until one fails.
    pub(super) fn over(access: Access, clients: Vec<(String, Client)>) -> Arc<Self> {
        Arc::new(Self { access, state: Mutex::new(State { clients, ..State::default() }) })
    }

    /// A client over it.
    pub(super) fn client(self: &Arc<Self>) -> Client {
        let connection = Arc::clone(self);
        let service = tower::service_fn(move |request| {
            let connection = Arc::clone(&connection);
            async move { connection.send(request).await }
        });
        Client::new(service, "default")
    }

    /// Makes an object in the collection at `path`, at whichever address takes it. One of its name that is there is left as it is. That it
    /// is not taken is nobody's problem but the caller's: no watch depends on it.
    ///
    /// # Errors
    /// Nobody takes it.
    pub(super) async fn create(&self, path: &str, object: &serde_json::Value) -> Result<(), Refused> {
        let clients = self.clients().await.map_err(|error| Refused { again: true, why: format!("{error:#}") })?;
        let mut failed = Vec::new();
        for (server, client) in &clients {
            let request = Request::post(path)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(object.to_string().into_bytes())
                .map_err(|error| Refused { again: false, why: error.to_string() })?;
            match client.request_text(request).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => return Ok(()),
                Err(kube::Error::Api(status)) if !StatusCode::from_u16(status.code).is_ok_and(is_elsewhere) => {
                    // The files that say who we are may have changed.
                    let again = status.code == StatusCode::UNAUTHORIZED.as_u16();
                    if again {
                        self.state().clients.clear();
                    }
                    return Err(Refused { again, why: format!("{server}: {} {}", status.code, status.message) });
                }
                Err(error) => failed.push(format!("{server}: {}", chain(&error))),
            }
        }
        Err(Refused { again: true, why: failed.join("; ") })
    }

    /// What cannot be asked for at the moment, and why.
    pub(super) fn failing(&self) -> Vec<String> {
        self.state().failing.iter().map(|(what, (why, _))| format!("{what}: {why}")).collect()
    }

    /// Since when this cannot be asked for.
    pub(super) fn failing_since(&self, what: &str) -> Option<Instant> {
        self.state().failing.get(what).map(|(_, since)| *since)
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (mut request, _) = request.into_parts();
        current(&mut request)?;
        let what = request.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        let clients = match self.clients().await {
            Ok(clients) => clients,
            Err(error) => {
                let why = format!("{error:#}");
                self.note(&what, why.clone());
                return Err(why.into());
            }
        };
        let mut failed = Vec::new();
        let mut answer = None;
        for (server, client) in &clients {
            match ask(client, &request).await {
                Ok(response) if !is_elsewhere(response.status()) => {
                    self.answered(server, &what, response.status());
                    return Ok(response);
                }
                Ok(response) => {
                    failed.push(format!("{server}: {}", text(response.status())));
                    answer = Some(response);
                }
                Err(error) => failed.push(format!("{server}: {}", chain(&error))),
            }
            self.leave(server);
        }
        let why = failed.join("; ");
        self.note(&what, why.clone());
        answer.map_or_else(|| Err(why.into()), Ok)
    }

    /// The clients, that whose turn it is first.
    async fn clients(&self) -> Result<Vec<(String, Client)>> {
        if self.state().clients.is_empty() {
            let made = make(self.access.read().await?)?;
            self.state().clients = made;
        }
        let state = self.state();
        let mut clients = state.clients.clone();
        let turn = state.turn.checked_rem(clients.len()).unwrap_or_default();
        clients.rotate_left(turn);
        Ok(clients)
    }

    /// An apiserver answered.
    fn answered(&self, server: &str, what: &str, status: StatusCode) {
        let mut state = self.state();
        if let Some(turn) = state.clients.iter().position(|(other, _)| other == server) {
            state.turn = turn;
        }
        if status == StatusCode::UNAUTHORIZED {
            state.clients.clear();
        }
        // An Invalid to a streaming list is how one says that it has none.
        if status.is_success() || status == StatusCode::UNPROCESSABLE_ENTITY || status == StatusCode::GONE {
            if state.failing.remove(what).is_some() {
                tracing::info!(kind = what, server, "the apiserver answers again");
            }
            return;
        }
        drop(state);
        self.note(what, format!("{server}: {}", text(status)));
    }

    /// It is not that one's turn any more, and its files may have changed.
    fn leave(&self, server: &str) {
        let mut state = self.state();
        if state.clients.get(state.turn).is_some_and(|(other, _)| other == server) {
            state.turn = (state.turn + 1) % state.clients.len();
        }
        state.clients.clear();
    }

    fn note(&self, what: &str, why: String) {
        let mut state = self.state();
        let (said, _) = state.failing.entry(what.to_owned()).or_insert_with(|| (String::new(), Instant::now()));
        if *said != why {
            tracing::warn!(kind = what, why, "the apiserver cannot be asked; what it said last stays");
            *said = why;
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make(configs: Vec<Config>) -> Result<Vec<(String, Client)>> {
    let of = |config: Config| {
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config).with_context(|| format!("cannot make a client for {server}"))?;
        Ok((server, client))
    };
    configs.into_iter().map(of).collect()
}

/// Whether another apiserver may do what this one could not.
fn is_elsewhere(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

fn text(status: StatusCode) -> String {
    match status {
        StatusCode::UNAUTHORIZED => format!("{status}: it does not accept our client certificate or token"),
        StatusCode::FORBIDDEN => format!("{status}: our user may not list and watch this"),
        _ => status.to_string(),
    }
}

/// An error with what is below it, where that says more.
fn chain(error: &kube::Error) -> String {
    let mut said = Vec::<String>::new();
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if let Some(outer) = said.last_mut().filter(|outer| outer.contains(&text)) {
            *outer = outer.replace(&text, "").trim_end_matches([':', ' ']).to_owned();
        }
        said.push(text);
        next = error.source();
    }
    said.retain(|text| !text.is_empty());
    said.join(": ")
}

/// A streaming list from version 0 may come from a cache that lags behind what another apiserver told us: a policy would be gone for a
/// moment. Without a version it is at least as new as the request.
fn current(request: &mut http::request::Parts) -> Result<(), http::uri::InvalidUri> {
    let text = request.uri.to_string();
    if text.contains("sendInitialEvents=true") {
        request.uri = text.replace("&resourceVersion=0", "").parse()?;
    }
    Ok(())
}

/// Sends a request without a body, which is all that a watch needs.
async fn ask(client: &Client, request: &http::request::Parts) -> kube::Result<Response<Body>> {
    let version = resumed(request);
    let newest = match version {
        Some(_) => match newest(client, request).await {
            Err(kube::Error::Api(status)) => return refusal(&status),
            newest => newest?,
        },
        None => None,
    };
    if let (Some(newest), Some(version)) = (newest, version)
        && newest < version
    {
        tracing::warn!(path = request.uri.path(), "the apiserver has an older state than it had: all is listed anew");
        return Ok(Response::new(Body::from(GONE.as_bytes().to_vec())));
    }
    client.send(Request::from_parts(request.clone(), Body::empty())).await
}

/// As it came.
fn refusal(status: &kube::core::Status) -> kube::Result<Response<Body>> {
    let body = serde_json::to_vec(status).map_err(kube::Error::SerdeError)?;
    Response::builder().status(status.code).body(Body::from(body)).map_err(kube::Error::HttpError)
}

/// The watch's own word for "list anew".
const GONE: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
    r#""message":"older state","reason":"Expired","code":410}}"#,
    "\n"
);

/// From which version a watch goes on. Versions are numbers that grow (KEP-5504); one of another form is not judged.
fn resumed(request: &http::request::Parts) -> Option<u64> {
    let query = request.uri.query()?;
    let parameters: BTreeMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let is_watch = *parameters.get("watch")? == "true" && !parameters.contains_key("sendInitialEvents");
    is_watch.then(|| parameters.get("resourceVersion")?.parse().ok())?
}

#[derive(Deserialize)]
struct List {
    metadata: ListMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}

/// The version of the apiserver's state. A watch from one that is yet to come would be silent until then (seen), and a state that was
/// brought back from a backup with it.
async fn newest(client: &Client, watch: &http::request::Parts) -> kube::Result<Option<u64>> {
    let request = Request::builder()
        .method(Method::GET)
        .uri(format!("{}?limit=1", watch.uri.path()))
        .header(http::header::ACCEPT, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    let list: List = client.request(request).await?;
    Ok(list.metadata.resource_version.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(uri: &str) -> http::request::Parts {
        Request::get(uri).body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_a_watch_that_goes_on_has_a_version_to_compare() {
        assert_eq!(resumed(&parts("/api/v1/pods?&watch=true&timeoutSeconds=290&resourceVersion=42")), Some(42));
        for other in [
            "/api/v1/pods?limit=500",
            "/api/v1/pods?watch=true&resourceVersion=x",
            "/api/v1/pods?watch=true&resourceVersion=0&sendInitialEvents=true",
        ] {
            assert_eq!(resumed(&parts(other)), None, "{other}");
        }
    }

    #[test]
    fn what_stands_for_gone_is_an_event_of_a_watch() {
        let event: kube::core::WatchEvent<k8s_openapi::api::core::v1::Pod> = serde_json::from_str(GONE).unwrap();
        assert!(matches!(event, kube::core::WatchEvent::Error(status) if status.code == 410));
    }
}
