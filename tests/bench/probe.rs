//! The load as processes of this same binary: one inside each pod, as real clients and servers are.
//!
//! `bench probe client|server KIND ADDRESS`. A client reads from stdin how many milliseconds a burst lasts and answers with a line; a
//! server serves until its stdin ends. Both end with the bench, however that ends.

mod connections;
mod datagrams;
mod stream;

use std::io::{self, BufRead, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::cpu::{self, Cpu};

/// Port that servers listen at and datagrams go to.
pub(crate) const PORT: u16 = 7007;
/// Source port of datagrams: one flow over all bursts.
const SOURCE_PORT: u16 = 7008;
/// Nothing that is measured takes this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a load does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Datagrams of 18 bytes, one way, as fast as one core sends them.
    Forward,
    /// A byte there and a byte back on one connection.
    Rr,
    /// A connection, a byte there and a byte back, closed by the client.
    Crr,
    /// Bulk over TCP.
    Stream,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Forward, Self::Rr, Self::Crr, Self::Stream];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Rr => "rr",
            Self::Crr => "crr",
            Self::Stream => "stream",
        }
    }

    /// Where the server runs: on the client's CPU, but for bulk, which then has two as it would on a real node.
    const fn server_cpu(self) -> Cpu {
        match self {
            Self::Stream => Cpu::Other,
            _ => Cpu::Main,
        }
    }
}

/// What a client did in a burst.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Did {
    /// Packets, transactions, connections or bytes.
    pub(crate) units: u64,
    /// Its CPU time, ns.
    pub(crate) cpu: u64,
    /// Half of the transactions took at most this, ns; 0 where nothing is answered.
    pub(crate) p50: u64,
    /// Of a hundred transactions 99 took at most this, ns.
    pub(crate) p99: u64,
}

/// Runs as a probe if the arguments say so.
pub(crate) fn run(arguments: &[String]) -> Option<ExitCode> {
    let [first, rest @ ..] = arguments else { return None };
    if first != "probe" {
        return None;
    }
    Some(match probe(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            // Nobody to tell if stderr is closed.
            let _ = writeln!(io::stderr(), "bench probe {}: {err:#}", rest.join(" "));
            ExitCode::FAILURE
        }
    })
}

fn probe(arguments: &[String]) -> Result<()> {
    let [role, kind, address] = arguments else { bail!("expected client|server KIND ADDRESS") };
    let kind = Kind::ALL.into_iter().find(|k| k.name() == kind).with_context(|| format!("unknown kind {kind}"))?;
    let address: IpAddr = address.parse().with_context(|| format!("address {address}"))?;
    let at = SocketAddr::new(address, PORT);
    match role.as_str() {
        "client" => {
            cpu::settle(Cpu::Main)?;
            client(kind, at)
        }
        "server" => {
            cpu::settle(kind.server_cpu())?;
            server(kind, at)
        }
        other => bail!("unknown role {other}"),
    }
}

fn client(kind: Kind, at: SocketAddr) -> Result<()> {
    match kind {
        Kind::Forward => {
            let socket = datagrams::socket(at)?;
            answer(|end| datagrams::burst(&socket, end))
        }
        Kind::Rr => {
            let mut stream = connections::open(at)?;
            answer(|end| connections::transactions(&mut stream, end))
        }
        Kind::Crr => answer(|end| connections::whole(at, end)),
        Kind::Stream => answer(|end| stream::send(at, end)),
    }
}

/// Answers each line of stdin with a burst of that many milliseconds.
fn answer(mut burst: impl FnMut(Instant) -> Result<Did>) -> Result<()> {
    let mut out = io::stdout().lock();
    let mut say = |line: &str| writeln!(out, "{line}").and_then(|()| out.flush()).context("answer");
    say("ready")?;
    for line in io::stdin().lock().lines() {
        let line = line.context("read an order")?;
        let length = Duration::from_millis(line.parse().with_context(|| format!("order {line:?}"))?);
        let did = burst(Instant::now() + length)?;
        say(&serde_json::to_string(&did)?)?;
    }
    Ok(())
}

fn server(kind: Kind, at: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(at).with_context(|| format!("listen on {at}"))?;
    let serve = move || match kind {
        Kind::Stream => stream::serve(&listener),
        _ => connections::serve(&listener),
    };
    // It ends with the process.
    thread::Builder::new().name("server".into()).spawn(serve).context("start a thread")?;
    let mut out = io::stdout().lock();
    writeln!(out, "ready").and_then(|()| out.flush()).context("say that it serves")?;
    io::copy(&mut io::stdin().lock(), &mut io::sink()).context("wait for the end")?;
    Ok(())
}
