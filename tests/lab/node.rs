//! A node: namespaces, folders, an uplink, an agent, a runtime that calls the plugin.

use std::env;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::agent::{Agent, Starter};
use crate::cni_runner::CniRunner;
use crate::lan::{Lan, Subnet, UPLINK, quick_addresses};
use crate::manifest::{NodeManifest, pod_range_v4, pod_range_v6};
use crate::options::{Families, Options, Underlay};
use crate::space::{Ended, Space};

/// Where the node keeps what it keeps. All but pins are visible from outside its mounts.
#[derive(Clone, Debug)]
pub struct Paths {
    /// bpffs, in the node's mounts only; from outside through [`Space::mounts_path`].
    pub bpffs: PathBuf,
    /// `--run`.
    pub run: PathBuf,
    /// `--state`.
    pub state: PathBuf,
    /// `--netns`: the pods' namespaces, bound in the node's mounts only.
    pub netns: PathBuf,
    /// `--source` and `--publish`.
    pub manifests: PathBuf,
    /// `--boot-id`.
    pub boot_id: PathBuf,
    /// The agent's output.
    pub log: PathBuf,
}

impl Paths {
    fn below(folder: &Path) -> Result<Self> {
        let paths = Self {
            bpffs: folder.join("bpf"),
            run: folder.join("run"),
            state: folder.join("state"),
            netns: folder.join("netns"),
            manifests: folder.join("manifests"),
            boot_id: folder.join("boot-id"),
            log: folder.join("agent.log"),
        };
        for path in [&paths.bpffs, &paths.run, &paths.state, &paths.netns, &paths.manifests] {
            fs::create_dir_all(path).with_context(|| format!("make {}", path.display()))?;
        }
        fs::copy("/proc/sys/kernel/random/boot_id", &paths.boot_id).context("copy the boot id")?;
        Ok(paths)
    }

    /// The CNI socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run.join("cni.sock")
    }
}

/// A node of the cluster.
#[derive(Debug)]
pub struct Node {
    /// `n1`, `n2`, …
    pub name: String,
    /// 1, 2, …: the host part of its addresses and the number of its pod ranges.
    pub number: u8,
    /// Where it stands.
    pub subnet: Subnet,
    /// Its namespaces.
    pub space: Space,
    /// Its folders.
    pub paths: Paths,
    /// Its runtime.
    pub runtime: CniRunner,
    /// What the cluster says of it.
    pub manifest: NodeManifest,
    starter: Starter,
    source: Vec<String>,
    flags: Vec<String>,
    agent: Mutex<Option<Agent>>,
}

impl Node {
    pub(crate) fn build(options: &Options, lan: &Lan, folder: &Path, index: usize, subnet: Subnet) -> Result<Self> {
        let number = u8::try_from(index + 1).context("too many nodes")?;
        let name = format!("n{number}");
        let paths = Paths::below(&folder.join(&name))?;
        let space = Space::machine(name.as_str(), &paths.bpffs)?;
        quick_addresses(&space)?;
        space.sysctl(&[
            ("net/ipv4/ip_forward", "0"),
            ("net/ipv4/conf/all/rp_filter", "1"),
            ("net/ipv4/conf/default/rp_filter", "1"),
            ("net/ipv6/conf/all/forwarding", "0"),
        ])?;
        if options.families == Families::V4 {
            space.sysctl(&[("net/ipv6/conf/all/disable_ipv6", "1"), ("net/ipv6/conf/default/disable_ipv6", "1")])?;
        }
        lan.plug(&space, subnet, number, options.families)?;
        if options.underlay == Underlay::Segmenting {
            let off = ["gso", "off", "tso", "off", "tx-udp-segmentation", "off", "gro", "on"];
            space.output(Command::new("ethtool").args(["-K", UPLINK]).args(off))?;
            // A veth merges only what comes from a peer without TSO (drivers/net/veth.c, veth_skb_is_eligible_for_gro).
            lan.bridges.output(Command::new("ethtool").args(["-K", &format!("node{number}")]).args(off))?;
        }
        let manifest = manifest(options, &name, number, subnet);
        let plugin = json!({
            "type": "osmia-cni",
            "socket": paths.socket(),
            "state": paths.state,
            "bpffs": paths.bpffs,
            "capabilities": {"portMappings": true, "bandwidth": true},
        });
        let runtime = CniRunner::new(space.try_clone()?, vec![bin_dir()?], "osmia", vec![plugin]);
        Ok(Self {
            source: vec!["--source".into(), format!("folder:{}", paths.manifests.display())],
            flags: flags(options, &name, &paths),
            starter: Starter::inside(space.try_clone()?)?,
            agent: Mutex::default(),
            name,
            number,
            subnet,
            space,
            paths,
            runtime,
            manifest,
        })
    }

    /// Its IPv4 address, which is its InternalIP unless the families say otherwise.
    #[must_use]
    pub fn v4(&self) -> Ipv4Addr {
        self.subnet.v4(self.number)
    }

    /// Its IPv6 address.
    #[must_use]
    pub fn v6(&self) -> Ipv6Addr {
        self.subnet.v6(self.number)
    }

    /// Its address of the family.
    #[must_use]
    pub fn address(&self, v6: bool) -> IpAddr {
        if v6 { self.v6().into() } else { self.v4().into() }
    }

    /// From the next start on, its agent gets the cluster's objects from elsewhere: `flags` instead of `--source folder:…`.
    pub fn set_source(&mut self, flags: &[&str]) {
        self.source = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }

    /// The line that starts this node's agent, to be run inside [`Self::space`].
    ///
    /// # Errors
    /// Nobody said where the binaries are.
    pub fn agent_command(&self) -> Result<Command> {
        self.agent_named("osmia-agent")
    }

    fn agent_named(&self, binary: &str) -> Result<Command> {
        let mut command = Command::new(bin_dir()?.join(binary));
        command.args(&self.source).args(&self.flags).env("RUST_BACKTRACE", "1");
        Ok(command)
    }

    /// Starts the agent and does not wait; see [`Self::wait_ready`]. One that runs is killed first.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start_agent(&self) -> Result<()> {
        self.start_agent_named("osmia-agent", &[])
    }

    /// As [`Self::start_agent`], with another of the binaries and with variables in its environment.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start_agent_named(&self, binary: &str, variables: &[(&str, &str)]) -> Result<()> {
        let mut slot = self.agent();
        *slot = None;
        let mut command = self.agent_named(binary)?;
        command.envs(variables.iter().copied());
        *slot = Some(Agent::start(&self.starter, command, &self.name, &self.paths.socket(), &self.paths.log)?);
        Ok(())
    }

    /// Waits until the agent serves; gives the time since its start.
    ///
    /// # Errors
    /// It was not started, ended, or took longer than 20 s.
    pub fn wait_ready(&self) -> Result<Duration> {
        self.agent().as_mut().with_context(|| format!("no agent was started on {}", self.name))?.wait_ready()
    }

    /// Kills the agent (SIGKILL); says whether it served by then.
    ///
    /// # Errors
    /// None runs, or it had ended by itself.
    pub fn kill_agent(&self) -> Result<bool> {
        let mut agent = self.agent().take().with_context(|| format!("no agent runs on {}", self.name))?;
        let ready = agent.is_ready()?;
        agent.kill()?;
        Ok(ready)
    }

    /// Waits until the agent has ended by itself, or was killed by somebody; says how.
    ///
    /// # Errors
    /// None was started, or it still runs after 20 s.
    pub fn wait_agent_end(&self) -> Result<ExitStatus> {
        self.agent().take().with_context(|| format!("no agent runs on {}", self.name))?.wait_end()
    }

    /// Ends the agent by SIGTERM.
    ///
    /// # Errors
    /// None runs, or it did not end well.
    pub fn stop_agent(&self) -> Result<()> {
        self.agent().take().with_context(|| format!("no agent runs on {}", self.name))?.stop()
    }

    /// The agent, if one was started and not taken away.
    pub fn agent(&self) -> MutexGuard<'_, Option<Agent>> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the command line tool on this node's pins and its agent's run folder.
    ///
    /// # Errors
    /// It could not be started.
    pub fn osmia(&self, arguments: &[&str]) -> Result<Ended> {
        let mut command = Command::new(bin_dir()?.join("osmia"));
        command.arg("--bpffs").arg(&self.paths.bpffs).arg("--run").arg(&self.paths.run).args(arguments);
        self.space.feed(&mut command, "")
    }

    /// The line that gives a shell on this node while the lab lives.
    #[must_use]
    pub fn enter_line(&self) -> String {
        let mounts = self.space.mounts_path().unwrap_or_default();
        format!("nsenter --net={} --mount={}", self.space.net_path().display(), mounts.display())
    }
}

/// Where the binaries under test are.
///
/// # Errors
/// Nobody said.
pub fn bin_dir() -> Result<PathBuf> {
    env::var_os("OSMIA_BIN_DIR")
        .map(PathBuf::from)
        .context("OSMIA_BIN_DIR names no folder with osmia-agent, osmia-cni and osmia: `cargo xtask` sets it")
}

fn manifest(options: &Options, name: &str, number: u8, subnet: Subnet) -> NodeManifest {
    let families = options.families;
    let (mut addresses, mut pod_cidrs) = (Vec::new(), Vec::new());
    if families.nodes_v4() {
        addresses.push(subnet.v4(number).into());
    }
    if families.nodes_v6() {
        addresses.push(subnet.v6(number).into());
    }
    if families.pods_v4() {
        let (address, bits) = pod_range_v4(number);
        pod_cidrs.push(format!("{address}/{bits}"));
    }
    if families.pods_v6() {
        let (address, bits) = pod_range_v6(number);
        pod_cidrs.push(format!("{address}/{bits}"));
    }
    NodeManifest { name: name.to_owned(), addresses, pod_cidrs }
}

fn flags(options: &Options, name: &str, paths: &Paths) -> Vec<String> {
    let mut flags = vec!["--node".into(), name.into()];
    for (flag, value) in [
        ("--publish", &paths.manifests),
        ("--state", &paths.state),
        ("--run", &paths.run),
        ("--bpffs", &paths.bpffs),
        ("--netns", &paths.netns),
        ("--boot-id", &paths.boot_id),
    ] {
        flags.extend([flag.to_owned(), value.display().to_string()]);
    }
    flags.extend(["--encap".into(), options.encap.name().into()]);
    for cidr in &options.cluster_cidrs {
        flags.extend(["--cluster-cidr".into(), cidr.clone()]);
    }
    flags.extend(options.agent_flags.iter().cloned());
    flags
}
