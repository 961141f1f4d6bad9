//! Three ways to give pods a link: Osmia, the `ptp` plugin with host-local addresses, and netlink alone.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use osmia_cni::client::Agent;
use osmia_cni::link::{Namespace, Netlink, Plan, build, remove};
use osmia_cni::protocol::{Answer, Assignment, AttachmentKey, PodRef, Request};
use osmia_lab::cni_runner::{Attachment, CniRunner, Misbehave};
use osmia_lab::{Lab, Options, POD_NAMESPACE, Space, Subnet, random};
use osmia_maps::layout::endpoint::E_PRESENT;
use osmia_maps::layout::policy::OPEN;
use osmia_maps::{Access, Pins, tables};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

/// Where Debian's package containernetworking-plugins puts them; `cargo xtask setup` installs it.
const PLUGINS: &str = "/usr/lib/cni";
/// No agent takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A pod that has no network yet, or has had one.
pub(super) struct Sandbox {
    space: Space,
    attachment: Attachment,
    /// The result of ADD, for DEL.
    result: Option<Value>,
}

/// A plugin and the runtime that calls it.
pub(super) struct Plugin<'a> {
    runner: &'a CniRunner,
    plugin: &'a Value,
}

impl<'a> Plugin<'a> {
    pub(super) fn of(runner: &'a CniRunner) -> Result<Self> {
        Ok(Self { runner, plugin: runner.plugins.first().context("a network without plugins")? })
    }

    /// ADD; gives the time from the plugin's start to its end.
    pub(super) fn add(&self, pod: &mut Sandbox) -> Result<Duration> {
        let (took, stdout) = self.call("ADD", pod)?;
        pod.result = Some(serde_json::from_str(&stdout).with_context(|| format!("result of ADD: {stdout}"))?);
        Ok(took)
    }

    /// DEL.
    pub(super) fn del(&self, pod: &mut Sandbox) -> Result<Duration> {
        Ok(self.call("DEL", pod)?.0)
    }

    fn call(&self, verb: &str, pod: &Sandbox) -> Result<(Duration, String)> {
        let ran = self.runner.run(verb, self.plugin, &pod.attachment, pod.result.as_ref(), Misbehave::default())?;
        ensure!(ran.status.success(), "{verb}: {} {}", ran.stderr.trim(), ran.stdout.trim());
        Ok((ran.took, ran.stdout))
    }

    /// A call for each pod, all at once, by as many callers; gives the time until the last has ended.
    pub(super) fn at_once(
        &self,
        pods: &mut [Sandbox],
        call: impl Fn(&Self, &mut Sandbox) -> Result<Duration> + Sync,
    ) -> Result<Duration> {
        let waiting = AtomicUsize::new(pods.len());
        let ended = thread::scope(|scope| {
            let callers: Vec<_> = pods
                .iter_mut()
                .map(|pod| {
                    scope.spawn(|| {
                        // Nobody starts before all are there.
                        waiting.fetch_sub(1, Ordering::Relaxed);
                        while waiting.load(Ordering::Relaxed) > 0 {
                            thread::sleep(Duration::from_micros(200));
                        }
                        let start = Instant::now();
                        call(self, pod)?;
                        Ok::<_, anyhow::Error>((start, Instant::now()))
                    })
                })
                .collect();
            let join =
                |caller: thread::ScopedJoinHandle<'_, _>| caller.join().map_err(|_| anyhow!("a caller panicked"))?;
            callers.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        let first = ended.iter().map(|(start, _)| *start).min().context("nobody called")?;
        let last = ended.iter().map(|(_, end)| *end).max().context("nobody called")?;
        Ok(last - first)
    }
}

/// Selects every pod of [`osmia`], both ways: what is attached is isolated, and allowed what its peers are.
const POLICY: &str = "{podSelector: {}, policyTypes: [Ingress, Egress], \
    ingress: [{from: [{podSelector: {}}], ports: [{port: 8080}]}], \
    egress: [{to: [{podSelector: {}}], ports: [{port: 8080}]}]}";

/// A node with a large pod range. No agent runs yet.
pub(super) fn node() -> Result<Lab> {
    let mut lab = Lab::build(Options { nodes: vec![Subnet::Near], ..Options::default() })?;
    let node = lab.nodes.first_mut().context("a lab without nodes")?;
    // A released address rests: the usual 254 would not do.
    node.manifest.pod_cidrs = vec!["10.244.64.0/20".into(), "fd00:10:244:1::/64".into()];
    lab.announce(0)?;
    Ok(lab)
}

/// Osmia on such a node, with policy in force for all that is attached.
pub(super) fn osmia() -> Result<Lab> {
    let lab = node()?;
    lab.start_agents()?;
    lab.enforce(POD_NAMESPACE, "each-other", POLICY)?;
    Ok(lab)
}

/// That the pods on the node of [`osmia`] are isolated in both directions.
pub(super) fn ensure_isolated(lab: &Lab) -> Result<()> {
    let node = lab.node(0)?;
    let rows = node.space.run(|| tables::ENDPOINTS.open(&Pins::new(&node.paths.bpffs), Access::ReadOnly)?.rows())??;
    let pods: Vec<_> = rows.iter().filter(|(_, row)| row.flags & E_PRESENT != 0).collect();
    let open = pods.iter().filter(|(_, row)| row.egress_rules == OPEN || row.ingress_rules == OPEN).count();
    ensure!(!pods.is_empty() && open == 0, "of {} pods {open} are not isolated: policy is not in force", pods.len());
    Ok(())
}

/// Sandboxes on the node of [`osmia`].
pub(super) fn sandboxes(lab: &Lab, count: usize) -> Result<Vec<Sandbox>> {
    let one = |_| {
        let (space, attachment) = lab.sandbox(0, &format!("bench-{:08x}", random() as u32))?;
        Ok(Sandbox { space, attachment, result: None })
    };
    (0..count).map(one).collect()
}

/// A node that the `ptp` plugin serves; its addresses' state is in `folder`.
pub(super) fn ptp(folder: &Path) -> Result<CniRunner> {
    let path = Path::new(PLUGINS);
    ensure!(path.join("ptp").is_file(), "no ptp plugin in {PLUGINS}: install containernetworking-plugins");
    let state = folder.join("ptp");
    fs::create_dir_all(&state).with_context(|| format!("make {}", state.display()))?;
    let plugin = json!({
        "type": "ptp",
        "mtu": 1500,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.97.0.0/20"}]], "dataDir": state},
    });
    let node = Space::network("osm-ptp")?;
    let mut runner = CniRunner::new(node, vec![path.to_owned()], "bench", vec![plugin]);
    // What Debian's version of it speaks.
    runner.version = "1.0.0".into();
    Ok(runner)
}

/// Sandboxes of no node in particular.
pub(super) fn loose(count: usize) -> Result<Vec<Sandbox>> {
    let one = |_| {
        let space = Space::network("osm-pod")?;
        let attachment = Attachment {
            container_id: format!("{:016x}{:016x}", random(), random()),
            netns: Some(space.net_path()),
            ifname: "eth0".into(),
            args: vec![("IgnoreUnknown".into(), "1".into())],
            capabilities: Map::new(),
        };
        Ok(Sandbox { space, attachment, result: None })
    };
    (0..count).map(one).collect()
}

/// Netlink alone, from a process that runs already: the kernel's own part of what Osmia's plugin does, both families.
pub(super) struct Floor {
    node: Space,
    host: Netlink,
}

impl Floor {
    pub(super) fn new() -> Result<Self> {
        let node = Space::network("osm-floor")?;
        let host = node.run(Netlink::open)?.context("open a netlink socket")?;
        Ok(Self { node, host })
    }

    /// Builds the link; gives its name and the time.
    pub(super) fn add(&mut self, pod: &Sandbox) -> Result<(String, Duration)> {
        let host_link = format!("f{:08x}", random() as u32);
        let plan = Plan {
            host_link: host_link.clone(),
            ifname: pod.attachment.ifname.clone(),
            mtu: 1500,
            gateway_mac: "02:00:00:00:00:01".parse()?,
            pod_mac: "02:00:00:00:00:02".parse()?,
            addresses: vec!["10.96.0.1".parse()?, "fd00::1".parse()?],
            ipv6: true,
        };
        let path = pod.space.net_path();
        let host = &mut self.host;
        let took = self.node.run(|| {
            let start = Instant::now();
            let namespace = Namespace::open(&path.to_string_lossy())?;
            let mut inside = pod.space.run(Netlink::open)??;
            build(&plan, host, &mut inside, &namespace)?;
            Ok::<_, anyhow::Error>(start.elapsed())
        })??;
        Ok((host_link, took))
    }

    /// Removes it.
    pub(super) fn del(&mut self, host_link: &str) -> Result<Duration> {
        let start = Instant::now();
        remove::by_host_name(&mut self.host, host_link)?;
        Ok(start.elapsed())
    }
}

/// One ADD and one DEL where the plugin's part is done here: gives the time that the agent took for its two answers of the ADD.
pub(super) fn agent_part(lab: &Lab, pod: &Sandbox) -> Result<Duration> {
    let node = lab.node(0)?;
    let socket = node.paths.socket();
    let key = AttachmentKey::new(&pod.attachment.container_id, &pod.attachment.ifname)?;
    let netns = pod.attachment.netns.as_ref().context("a pod without a namespace")?.display().to_string();
    let of = |name: &str| {
        let mut arguments = pod.attachment.args.iter();
        arguments.find(|(argument, _)| argument == name).map_or_else(String::new, |(_, value)| value.clone())
    };
    node.space.run(|| {
        let boot = clock_gettime(ClockId::Boottime);
        let started_ns = boot.tv_sec.cast_unsigned() * 1_000_000_000 + boot.tv_nsec.cast_unsigned();
        let deadline = Instant::now() + PATIENCE;
        let mut agent = Agent::connect(&socket, deadline, deadline)?;
        let namespace = Namespace::open(&netns)?;
        let (mut host, mut inside) = (Netlink::open()?, pod.space.run(Netlink::open)??);
        let reserve = Request::Reserve {
            key: key.clone(),
            network: "osmia".into(),
            netns: netns.clone(),
            pod: PodRef { namespace: POD_NAMESPACE.into(), name: of("K8S_POD_NAME"), uid: of("K8S_POD_UID") },
            started_ns,
            deadline_ms: PATIENCE.as_millis() as u64,
            config: json!({}),
        };
        let start = Instant::now();
        let answer = agent.ask(&reserve, Some(std::os::fd::AsFd::as_fd(&namespace)))?;
        let reserving = start.elapsed();
        let Answer::Reserved(assignment) = answer else { bail!("the agent answered {answer:?}") };
        let plan = plan(assignment, &pod.attachment.ifname)?;
        let host_ifindex = build(&plan, &mut host, &mut inside, &namespace)?;
        let commit = Request::Commit { key: key.clone(), pod_mac: plan.pod_mac.to_string(), host_ifindex };
        let start = Instant::now();
        done(agent.ask(&commit, None)?)?;
        let committing = start.elapsed();
        let mut agent = Agent::connect(&socket, deadline, deadline)?;
        done(agent.ask(&Request::Delete { key, started_ns: started_ns + 1 }, None)?)?;
        Ok(reserving + committing)
    })?
}

fn plan(assignment: Assignment, ifname: &str) -> Result<Plan> {
    Ok(Plan {
        host_link: assignment.host_link,
        ifname: ifname.to_owned(),
        mtu: assignment.mtu,
        gateway_mac: assignment.gateway_mac.parse()?,
        pod_mac: assignment.pod_mac.parse()?,
        addresses: assignment.addresses,
        ipv6: true,
    })
}

fn done(answer: Answer) -> Result<()> {
    match answer {
        Answer::Done => Ok(()),
        other => bail!("the agent answered {other:?}"),
    }
}
