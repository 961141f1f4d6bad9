//! `GET /healthz`, `/readyz`, `/metrics`.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::{net::TcpListener, time};

use super::metrics::Metrics;
use crate::readiness::Readiness;

/// After an address could not be had.
const RETRY: Duration = Duration::from_secs(5);

/// Reads what is only read when somebody asks.
pub type Refresh = Box<dyn Fn() + Send + Sync>;

/// What the routes answer from.
#[derive(Clone)]
pub struct Told {
    /// Whether the start is over.
    pub readiness: Readiness,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Brings the metrics up to date before they are told; set once there is something to ask.
    pub refresh: Arc<OnceLock<Refresh>>,
}

/// Serves for ever. An address that cannot be had is tried again: pods need their network more than this.
pub async fn serve(address: &str, told: Told) {
    let listener = listen(address).await;
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(told);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the metrics endpoint ended");
    }
}

async fn listen(address: &str) -> TcpListener {
    let mut said = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) if !said => {
                tracing::error!(address, %error, "cannot serve metrics and probes (--metrics); tried again every 5 s");
                said = true;
            }
            Err(_) => {}
        }
        time::sleep(RETRY).await;
    }
}

async fn ready(State(told): State<Told>) -> impl IntoResponse {
    let pending = told.readiness.pending();
    if pending.is_empty() {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", pending.join(", ")))
    }
}

async fn metrics(State(told): State<Told>) -> impl IntoResponse {
    if let Some(refresh) = told.refresh.get() {
        refresh();
    }
    let kind = [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    (kind, told.metrics.text())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn get(address: &str, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn probes_and_metrics_are_answered() {
        // The port of a listener that is closed again: free, in all likelihood.
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let readiness = Readiness::default();
        let task = readiness.task("adoption");
        let metrics = Arc::new(Metrics::default());
        let shown = Arc::clone(&metrics);
        let refresh = Arc::new(OnceLock::<Refresh>::from(Box::new(move || shown.flows(17)) as Refresh));
        let serving = address.clone();
        tokio::spawn(async move { serve(&serving, Told { readiness, metrics, refresh }).await });
        tokio::task::yield_now().await;
        assert!(get(&address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let waiting = get(&address, "/readyz").await;
        assert!(waiting.starts_with("HTTP/1.1 503") && waiting.contains("adoption"), "{waiting}");
        task.done();
        assert!(get(&address, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(get(&address, "/metrics").await.contains("osmia_flows_established 17"));
    }
}
