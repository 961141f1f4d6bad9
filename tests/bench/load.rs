//! A load between two pods, from the bench's side: started once, then one burst after the other.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use osmia_lab::Space;

use crate::cpu::{self, Softirqs};
use crate::places::Pair;
use crate::probe::{Did, Kind};
use crate::programs::Sink;

/// What one burst cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// CPU time a packet, transaction, connection or byte, ns: both ends and what the kernel deferred.
    pub(crate) cost: f64,
    /// Median time of a transaction, ns.
    pub(crate) p50: f64,
    /// 99th percentile of it, ns.
    pub(crate) p99: f64,
}

/// A client, and a server or a sink at the other end.
pub(crate) struct Load {
    kind: Kind,
    client: Probe,
    server: Option<Probe>,
    sink: Option<Sink>,
    pair: Rc<Pair>,
}

impl Load {
    /// Starts it; no traffic but what opens a connection.
    pub(crate) fn start(kind: Kind, pair: &Rc<Pair>) -> Result<Self> {
        let start = || {
            let (mut server, mut sink) = (None, None);
            if kind == Kind::Forward {
                sink = Some(Sink::at(&pair.to, &pair.device)?);
            } else {
                server = Some(Probe::start("server", kind, &pair.to, pair.address)?);
            }
            let client = Probe::start("client", kind, &pair.from, pair.address)?;
            Ok::<_, anyhow::Error>(Self { kind, client, server, sink, pair: pair.clone() })
        };
        start().with_context(|| format!("start the load {} on {}", kind.name(), pair.name))
    }

    /// One burst.
    pub(crate) fn burst(&mut self, length: Duration, softirqs: &Softirqs) -> Result<Sample> {
        self.measure(length, softirqs).with_context(|| format!("{} on {}", self.kind.name(), self.pair.name))
    }

    fn measure(&mut self, length: Duration, softirqs: &Softirqs) -> Result<Sample> {
        let others = |server: Option<&Probe>| {
            let server = server.map_or(Ok(0), |s| cpu::of_process(s.child.id()))?;
            Ok::<_, anyhow::Error>(server + softirqs.time()?)
        };
        let counted = self.sink.as_ref().map_or(Ok(0), Sink::count)?;
        let before = others(self.server.as_ref())?;
        let did = self.client.burst(length)?;
        let other = others(self.server.as_ref())? - before;
        ensure!(did.units > 0, "a burst of {length:?} did nothing");
        if let Some(sink) = &self.sink {
            let arrived = sink.count()? - counted;
            // What is lost on the way costs less than what arrives.
            ensure!(
                arrived.abs_diff(did.units) * 1000 <= did.units,
                "{} datagrams sent, {arrived} arrived: the figure would be false",
                did.units
            );
        }
        Ok(Sample { cost: (did.cpu + other) as f64 / did.units as f64, p50: did.p50 as f64, p99: did.p99 as f64 })
    }
}

struct Probe {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Probe {
    fn start(role: &str, kind: Kind, space: &Space, address: IpAddr) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["probe", role, kind.name(), &address.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = space.run(|| command.spawn())?.with_context(|| format!("start the {role}"))?;
        let orders = child.stdin.take().context("stdin of a probe")?;
        let answers = BufReader::new(child.stdout.take().context("stdout of a probe")?);
        let mut probe = Self { child, orders, answers };
        let line = probe.line()?;
        ensure!(line == "ready", "the {role} says {line:?}");
        Ok(probe)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line).context("hear a probe")? == 0 {
            bail!("a probe ended; see above what it said");
        }
        Ok(line.trim().to_owned())
    }

    fn burst(&mut self, length: Duration) -> Result<Did> {
        writeln!(self.orders, "{}", length.as_millis()).context("order a burst")?;
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("a probe answered {line:?}"))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // Both fail only where it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
