//! Objects written into etcd as an apiserver keeps them: thousands a second, where each would be two requests of it.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::ETCD;
use crate::feed::{Event, Kind, What};
use crate::space::Space;

/// Operations of a transaction; etcd takes 128 by default.
const AT_ONCE: usize = 100;

/// A connection to the etcd of an apiserver, which learns of everything by its own watch.
pub struct Store {
    space: Space,
    runtime: Runtime,
    client: Client<HttpConnector, Full<axum::body::Bytes>>,
}

impl Store {
    pub(super) fn new(space: Space) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().context("start a runtime")?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { space, runtime, client })
    }

    /// Writes what came, changed and went; gives the time when the last of it was sent.
    ///
    /// # Errors
    /// etcd refused.
    pub fn tell(&self, events: &[Event]) -> Result<Instant> {
        let mut at = Instant::now();
        for some in events.chunks(AT_ONCE) {
            let body = json!({"success": some.iter().map(operation).collect::<Vec<_>>()}).to_string();
            let request = axum::http::Request::post(format!("{ETCD}/v3/kv/txn")).body(Full::from(body))?;
            let send = async {
                at = Instant::now();
                let answer = self.client.request(request).await.context("ask etcd")?;
                let status = answer.status();
                let text = answer.into_body().collect().await.context("etcd's answer")?.to_bytes();
                ensure!(status.is_success(), "etcd: {status} {}", String::from_utf8_lossy(&text));
                Ok(())
            };
            self.space.run(|| self.runtime.block_on(send))??;
        }
        Ok(at)
    }
}

fn operation(event: &Event) -> Value {
    let key = STANDARD.encode(key(event));
    match event.what {
        What::Added | What::Modified => {
            json!({"requestPut": {"key": key, "value": STANDARD.encode(event.object.to_string())}})
        }
        What::Deleted => json!({"requestDeleteRange": {"key": key}}),
    }
}

/// Where an apiserver keeps it.
fn key(event: &Event) -> String {
    let part = |name: &str| event.object["metadata"][name].as_str().unwrap_or_default();
    let (namespace, name) = (part("namespace"), part("name"));
    match event.kind {
        Kind::Node => format!("/registry/minions/{name}"),
        Kind::Namespace => format!("/registry/namespaces/{name}"),
        Kind::Policy => format!("/registry/networkpolicies/{namespace}/{name}"),
        Kind::Pod => format!("/registry/pods/{namespace}/{name}"),
    }
}
