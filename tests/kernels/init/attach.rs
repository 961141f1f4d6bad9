//! A classifier on both hooks of a device, decided by whether it ran for a packet and not by the kernel's yes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use aya::programs::tc::qdisc_add_clsact;
use aya::programs::{SchedClassifier, TcAttachType};
use aya::sys::{Stats, enable_stats};
use aya::util::KernelVersion;

use crate::link::Pair;
use crate::reporter::Reporter;

/// How long a packet may take to its hook, on a guest whose host is busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// The device whose hooks are tried, and the way that leads to them on this kernel.
#[derive(Debug)]
pub(crate) struct Hooks {
    pair: Pair,
    way: &'static str,
}

impl Hooks {
    /// Makes the device, and the qdisc that is needed where there is no tcx.
    pub(crate) fn create() -> Result<Self> {
        let pair = Pair::create()?;
        let version = KernelVersion::current().map_err(|err| anyhow::anyhow!("kernel version: {err}"))?;
        // The version by which aya's `TcAttachType` chooses.
        if version >= KernelVersion::new(6, 6, 0) {
            return Ok(Self { pair, way: "tcx" });
        }
        qdisc_add_clsact(pair.host_name()).context("add clsact")?;
        Ok(Self { pair, way: "clsact" })
    }

    /// Attaches `program` at both hooks of the pair's host end, in turn.
    pub(crate) fn check(&self, reporter: &mut Reporter, label: &str, program: &mut SchedClassifier) {
        reporter.check(&format!("{label}/ingress"), self.runs(program, TcAttachType::Ingress));
        reporter.check(&format!("{label}/egress"), self.runs(program, TcAttachType::Egress));
    }

    fn runs(&self, program: &mut SchedClassifier, hook: TcAttachType) -> Result<String> {
        let Self { pair, way } = self;
        let counting = enable_stats(Stats::RunTime).context("count the runs of programs")?;
        let before = program.info().context("ask for the runs")?.run_count();
        let link = program.attach(pair.host_name(), hook).with_context(|| format!("attach by {way}"))?;
        let start = Instant::now();
        let outcome = loop {
            match hook {
                TcAttachType::Ingress => pair.send_towards_host(),
                _ => pair.send_from_host(),
            }
            .context("send a packet")?;
            if program.info().context("ask for the runs")?.run_count() > before {
                break Ok(format!("{way}, ran"));
            }
            if start.elapsed() > PATIENCE {
                break Err(anyhow::anyhow!(
                    "attached by {way}, and it ran for none of the packets sent in {PATIENCE:?}"
                ));
            }
            sleep(Duration::from_millis(5));
        };
        program.detach(link).context("detach")?;
        drop(counting);
        outcome
    }
}
