//! Wiring: what starts after what, and what happens when something changes.
//!
//! Invariant: the socket opens only when maps, journal, kernel and queue agree; stopping leaves the dataplane as it is.

use std::{
    fs,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, Result};
use osmia_maps::{
    Access, MapError, Pins,
    catalogue::{self, Index},
    tables,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time,
};

mod dataplane;
mod instance;
mod log;
mod model;
mod notices;
mod policing;
mod tidy;

use dataplane::Shared;
pub use log::init as init_log;
use model::Model;
use notices::Notices;
use policing::Policing;
use tidy::Tidy;

use crate::{
    attachments::{self, Attachments, Limits, Outside, links::KernelLinks},
    clock::{Clock, SystemClock},
    config::{Args, ProgramLogArg, check_ports},
    model::{Numbers, Settings},
    program::{self, Attaching, Dataplane, OBJECT, Options, ProgramLog},
    publish::Publisher,
    readiness::Readiness,
    serve::{heartbeat, http, metrics::Metrics, socket},
    source::Source,
    sys,
    underlay::{self, Wanted},
};

/// Garbage, expired flows, pins of gone devices, files that could not be written.
const HOUSEKEEPING: Duration = Duration::from_secs(30);
/// How long a problem of the model has to last to be said.
const SAY: Duration = Duration::from_secs(1);
/// How long a start waits for the agent before it to be gone.
const LOCK: Duration = Duration::from_secs(5);
/// After the maps refused.
const RETRY: Duration = Duration::from_secs(2);
/// How long the rows of before stay while ways to new node addresses are asked for. After it the maps are brought to what is known.
const HOLD: Duration = Duration::from_secs(1);

/// Runs the agent until it is told to stop.
///
/// # Errors
/// What keeps it from starting, in words for an operator. The dataplane is as it was.
pub fn run(args: &Args) -> Result<()> {
    let settings = args.settings()?;
    sys::bound_free_memory();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(start(args, settings))
}

async fn start(args: &Args, settings: Settings) -> Result<()> {
    let mut stop = stop_signal()?;
    let readiness = Readiness::default();
    let [told, maps, network, journal, policy, queue] =
        ["source", "dataplane", "underlay", "attachments", "policy", "queue and socket"]
            .map(|task| readiness.task(task));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    check_ports(settings.masquerade_ports, Path::new("/proc/sys/net/ipv4/ip_local_port_range"))?;
    for folder in [&args.state, &args.run] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let pins = Pins::new(&args.bpffs);
    program::make_root(&pins).context("cannot open the dataplane")?;
    let folders = [("--state", args.state.as_path()), ("--run", &args.run), ("--bpffs", &args.bpffs)];
    let _locks = instance::lock_all(folders, LOCK).await?;
    let boot_id = attachments::boot_id(&args.boot_id)?;
    tracing::info!(node = settings.node, version = env!("CARGO_PKG_VERSION"), "starting");

    let metrics = Arc::new(Metrics::default());
    let asked = Arc::new(OnceLock::new());
    if args.metrics != "off" {
        let told =
            http::Told { readiness: readiness.clone(), metrics: Arc::clone(&metrics), refresh: Arc::clone(&asked) };
        let address = args.metrics.clone();
        tokio::spawn(async move { http::serve(&address, told).await });
    }

    let (mut source, events) = tokio::select! {
        started = Source::start(&args.source, args.access(), &args.state) => started?,
        () = stop.changed() => return Ok(()),
    };
    let told_at = time::Instant::now();
    told.done();
    let (notices, noticed) = Notices::new();
    if let Some(reporter) = source.reporter(&settings.node) {
        tokio::spawn(reporter.follow(noticed));
    }
    let mut policing = Policing::open(&args.run, Arc::clone(&clock), Arc::clone(&metrics), notices)?;

    let attaching = if args.clsact { Attaching::Clsact } else { Attaching::Auto };
    let log = match args.program_log {
        ProgramLogArg::Off => ProgramLog::Off,
        ProgramLogArg::Debug => ProgramLog::Debug,
    };
    let options =
        Options { pins: pins.clone(), mark: settings.mark, flow_memory: settings.flow_memory, attaching, log };
    let mut opened = Dataplane::open(&options, OBJECT, clock.as_ref()).context("cannot open the dataplane")?;
    let stray = opened.repair_endpoint_keys().context("cannot read the endpoint rows")?;
    if stray > 0 {
        tracing::warn!(rows = stray, "rows by address or link that disagreed with the endpoints: repaired");
    }
    if log != ProgramLog::Off {
        tokio::spawn(opened.program_log()?.follow());
    }
    let mut untidy = Tidy::new(events.len());
    policing.take(&mut opened, events, told_at);
    let shared = Shared::new(opened, policing);
    maps.done();

    // From here on the node's devices are kept as they should be.
    let (want, wanted) = watch::channel(shared.with_cluster(|cluster| Wanted::new(cluster, &settings)));
    let (mut underlay, service) = underlay::start(wanted)?;
    tokio::spawn(service);
    let Some(first) = first_underlay(&mut underlay, &mut stop).await? else { return Ok(()) };

    let numbers = Numbers::recover(&node_rows(&pins)?);
    let mut model = Model::new(settings, numbers, first, want, shared.clone(), Arc::clone(&metrics));
    let mut retry = !model.bring();
    network.done();

    let outside = Outside {
        endpoints: Box::new(shared.clone()),
        links: Box::new(KernelLinks::new()?),
        publisher: args.publish.as_deref().map(|dir| Publisher::new(dir, &model.settings().node)),
        clock: Arc::clone(&clock),
        told: shared.told(),
    };
    let limits = Limits {
        address_rest: Duration::from_secs(args.address_rest),
        garbage_after: Duration::from_secs(args.garbage_after),
        netns: args.netns.clone(),
        ..Limits::default()
    };
    let file = catalogue::path(&args.run);
    // What its rules say is read where it is asked for.
    let names = Index::read(&file).with_context(|| format!("cannot read {}", file.display()))?.rest().endpoints.clone();
    let (facts, pods) = (model.facts(), model.pods());
    let mut compared = pods.is_some();
    let attachments = Attachments::open(&args.state, &boot_id, facts, pods.as_ref(), &names, outside, limits).await?;
    // As many as the cluster has.
    drop((pods, names));
    journal.done();
    // Before the first ADD, and before a queued DEL: until now each endpoint's rules stayed as an earlier agent left them. So they go on
    // where the source has not told all yet.
    shared.begin_policy(attachments.locals());
    tokio::spawn(shared.clone().tend_policy());
    // Also where the maps refused at first and did not later.
    tokio::spawn(policy.done_when(shared.policy_in_force()));
    let drained = attachments.drain(&args.state).await?;
    let cni = socket::bind(&args.run.join("cni.sock"))?;
    // Only now: a plugin that waited for the queue finds the socket open.
    drop(drained);
    let (halt, halted) = watch::channel(false);
    let serving = tokio::spawn(socket::serve(cni, Arc::clone(&attachments), Arc::clone(&metrics), halted));
    let run = args.run.clone();
    tokio::spawn(async move { heartbeat::beat(&run).await });
    // Set once, here.
    let _ = asked.set(refresh(&attachments, &shared, &metrics));
    queue.done();
    sys::trim_memory();

    let mut housekeeping = time::interval(Duration::from_secs(args.garbage_after.max(1)).min(HOUSEKEEPING));
    housekeeping.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    let mut held = None;
    loop {
        tokio::select! {
            () = stop.changed() => break,
            (events, since) = source.next() => {
                tell_problems(&source, &shared, &metrics);
                untidy.took(events.len());
                let nodes = model.take(events, since);
                if !compared && let Some(pods) = model.pods() {
                    compared = true;
                    let attachments = Arc::clone(&attachments);
                    tokio::spawn(async move { attachments.pods_told(pods).await });
                }
                if !nodes && !retry {
                    continue;
                }
                if model.awaits_ways() {
                    held.get_or_insert_with(|| time::Instant::now() + HOLD);
                    continue;
                }
            }
            changed = underlay.changed() => {
                changed.context("the underlay is no longer followed")?;
                let now = underlay.borrow_and_update().clone();
                if let Some(now) = now {
                    model.set_underlay(now);
                }
                if held.is_some() && model.awaits_ways() {
                    continue;
                }
            }
            () = time::sleep_until(held.unwrap_or_else(time::Instant::now)), if held.is_some() => {}
            () = time::sleep(RETRY), if retry && held.is_none() => {}
            () = time::sleep(SAY), if model.is_unsaid() => {
                model.say();
                continue;
            }
            () = time::sleep_until(untidy.quiet_at()), if untidy.is_due() => {
                tidy(&mut untidy, &mut source, &shared);
                continue;
            }
            _ = housekeeping.tick() => {
                attachments.collect_garbage().await;
                shared.housekeep(clock.as_ref(), &metrics);
                metrics.problems("unpublished", attachments.retry_publishing());
                tell_problems(&source, &shared, &metrics);
                if untidy.is_due() {
                    tidy(&mut untidy, &mut source, &shared);
                }
                continue;
            }
        }
        held = None;
        retry = !model.bring();
        attachments.set_facts(model.facts());
    }
    tracing::info!("stopping; pods go on talking");
    // Nobody listens any more if it ended by itself.
    let _ = halt.send(true);
    let served = serving.await.context("the socket's task failed");
    attachments.sync();
    served
}

fn refresh(attachments: &Arc<Attachments>, shared: &Shared, metrics: &Arc<Metrics>) -> http::Refresh {
    let (attachments, shared, metrics) = (Arc::clone(attachments), shared.clone(), Arc::clone(metrics));
    Box::new(move || {
        metrics.attachments(attachments.counts(), &attachments.ranges());
        shared.tell(&metrics);
    })
}

/// Takes no more memory than what there is needs.
fn tidy(untidy: &mut Tidy, source: &mut Source, shared: &Shared) {
    source.pack();
    shared.pack();
    sys::trim_memory();
    untidy.is_done();
}

/// What the source cannot ask for or read, for Prometheus and for who looks with the agent stopped.
fn tell_problems(source: &Source, shared: &Shared, metrics: &Metrics) {
    let problems = source.problems();
    metrics.problems(source.matter(), problems.len());
    shared.source(problems);
}

/// The signals that stop the agent.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    async fn changed(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn stop_signal() -> Result<Stop> {
    let of = |kind| signal(kind).context("cannot listen to signals");
    Ok(Stop { terminate: of(SignalKind::terminate())?, interrupt: of(SignalKind::interrupt())? })
}

/// Waits until netlink told the node's devices; `None` if the agent is stopped meanwhile.
async fn first_underlay(
    told: &mut watch::Receiver<Option<underlay::Underlay>>,
    stop: &mut Stop,
) -> Result<Option<underlay::Underlay>> {
    let first = told.wait_for(Option::is_some);
    tokio::select! {
        first = first => Ok(first.context("the underlay cannot be followed")?.clone()),
        () = stop.changed() => Ok(None),
    }
}

/// The node rows an earlier agent left.
fn node_rows(pins: &Pins) -> Result<std::collections::BTreeMap<u16, osmia_maps::layout::Node>> {
    let read = || -> Result<_, MapError> { tables::NODES.open(pins, Access::ReadOnly)?.rows() };
    let rows = read().context("cannot read the node rows")?;
    let present = rows.into_iter().filter(|(_, row)| row.flags & osmia_maps::layout::node::N_PRESENT != 0);
    Ok(present.filter_map(|(number, row)| Some((u16::try_from(number).ok()?, row))).collect())
}
