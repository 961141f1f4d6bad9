//! How the apiserver is reached and who we are there.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// A TCP and TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// An apiserver sends a bookmark a minute on each watch: who is silent for longer is gone without a word.
const SILENCE: Duration = Duration::from_secs(90);

/// Where from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// `--kubeconfig`; without it, what Kubernetes gives to a pod.
    pub kubeconfig: Option<PathBuf>,
    /// `--apiserver`: addresses that are tried in turn, instead of the one that the configuration has.
    pub servers: Vec<String>,
}

impl Access {
    /// Reads it all anew: one configuration an address, at least one.
    ///
    /// # Errors
    /// A file cannot be read or has not what is needed.
    pub(super) async fn read(&self) -> Result<Vec<Config>> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let file = format!("kubeconfig {}", path.display());
                let read = Kubeconfig::read_from(path).with_context(|| file.clone())?;
                Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.context(file)?
            }
            None => match Config::incluster() {
                Ok(config) => config,
                Err(error) => bail!("not in a pod with a service account ({error}): give --kubeconfig FILE"),
            },
        };
        // The library waits for such a program, and everything else with it.
        let runs_a_program = config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some();
        ensure!(
            !runs_a_program,
            "a user with exec or auth-provider: give one with a certificate, a token or a tokenFile"
        );
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(SILENCE);
        config.reset_reader_on_write = true;
        // Our own way of trying again knows the other addresses.
        config.default_retry = false;
        if self.servers.is_empty() {
            return Ok(vec![config]);
        }
        let of = |server: &String| {
            let url = server.parse().with_context(|| format!("--apiserver {server:?} is no URL"))?;
            let mut config = config.clone();
            config.cluster_url = url;
            Ok(config)
        };
        self.servers.iter().map(of).collect()
    }
}

/// A URL of `--apiserver`.
///
/// # Errors
/// It is none, in words.
pub fn server(text: &str) -> Result<String, String> {
    let is_url =
        text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).is_some_and(|at| !at.is_empty());
    let parsed = text.parse::<http::Uri>().is_ok_and(|uri| uri.authority().is_some());
    if is_url && parsed { Ok(text.to_owned()) } else { Err(format!("{text:?} is no URL: write https://HOST:PORT")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_url() {
        for good in ["https://10.0.0.1:6443", "https://[fd00::1]:6443", "http://localhost:8080"] {
            assert_eq!(server(good), Ok(good.to_owned()));
        }
        for bad in ["", "10.0.0.1:6443", "https://", "ftp://x", "https://a b"] {
            assert!(server(bad).unwrap_err().contains("https://HOST:PORT"), "{bad}");
        }
    }
}
