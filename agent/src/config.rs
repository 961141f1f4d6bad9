//! The command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use ipnet::IpNet;

use crate::{
    model::{Encap, Settings},
    source::{
        SourceSpec,
        kube::{self, Access},
    },
};

/// The mark bits of kube-proxy.
const KUBE_PROXY_MARKS: u32 = 0x4000 | 0x8000;

/// Osmia's node agent: fills the BPF maps from the cluster's objects and serves the CNI plugin.
///
/// Needs root, a bpffs at --bpffs, and kernel 5.10 or newer (6.6 for full speed). It stops on SIGTERM or SIGINT; pods go on talking
/// without it, and the next start takes over what is there.
#[derive(Parser, Clone, Debug)]
#[command(name = "osmia-agent", version, about, long_about, after_long_help = EXAMPLE)]
pub struct Args {
    /// Name of this node, as its Node object has it [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// Where the cluster's objects come from: kube watches an apiserver; folder:DIR reads the Kubernetes YAML and JSON in DIR and DIR/status,
    /// and follows changes
    #[arg(long, value_name = "SOURCE")]
    pub source: SourceSpec,

    /// With --source kube: the apiserver, its certificate and who we are there, read anew when it does not answer or accept us
    /// [default: what a pod's service account has]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// With --source kube: addresses of the apiserver, tried in turn instead of the one that the configuration has
    #[arg(long, value_name = "URL", value_delimiter = ',', value_parser = kube::server)]
    pub apiserver: Vec<String>,

    /// Write DIR/status/<namespace>.<pod>.yaml for each pod of this node; nodes may share DIR
    #[arg(long, value_name = "DIR")]
    pub publish: Option<PathBuf>,

    /// Journal, queue of DELs, what the source said last. Must survive restarts of the agent
    #[arg(long, value_name = "DIR", default_value = "/var/lib/osmia")]
    pub state: PathBuf,

    /// Socket of the plugin and heartbeat
    #[arg(long, value_name = "DIR", default_value = "/run/osmia")]
    pub run: PathBuf,

    /// Pins of maps and programs; on a bpffs
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/osmia")]
    pub bpffs: PathBuf,

    /// Where the runtime keeps the pods' network namespaces: tells a pod whose link was taken away from one that is gone
    #[arg(long, value_name = "DIR", default_value = "/run/netns")]
    pub netns: PathBuf,

    /// File that changes with each boot: what the journal says of another boot is void
    #[arg(long, value_name = "FILE", default_value = "/proc/sys/kernel/random/boot_id")]
    pub boot_id: PathBuf,

    /// Between nodes: as they are (native), inside VXLAN, or as they are inside a subnet and inside VXLAN across (auto)
    #[arg(long, value_enum, default_value_t = EncapArg::Auto)]
    pub encap: EncapArg,

    /// Pod ranges of the cluster, for the node's own routes and for what belongs to nobody [default: each Node's podCIDRs]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub cluster_cidr: Vec<IpNet>,

    /// Service ranges: beside kube-proxy they go to the node's stack
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub service_cidr: Vec<IpNet>,

    /// Uplinks [default: devices with a Node address or a default route]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub uplink: Vec<String>,

    /// The one skb mark bit that is ours, in hex
    #[arg(long, value_name = "HEX", default_value = "0x1000000", value_parser = hex)]
    pub mark: u32,

    /// UDP port of VXLAN
    #[arg(long, value_name = "PORT", default_value_t = 4789)]
    pub tunnel_port: u16,

    /// VXLAN network identifier
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub vni: u32,

    /// Ports for masquerade; disjoint from net.ipv4.ip_local_port_range and from --node-ports
    #[arg(long, value_name = "MIN-MAX", default_value = "61000-65535", value_parser = ports)]
    pub masquerade_ports: (u16, u16),

    /// NodePorts of the cluster (--service-node-port-range of its apiserver): nothing is masqueraded to them
    #[arg(long, value_name = "MIN-MAX", default_value = "30000-32767", value_parser = ports)]
    pub node_ports: (u16, u16),

    /// Where /metrics, /healthz and /readyz are served, or "off"
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9480")]
    pub metrics: String,

    /// What pods send to 169.254.0.0/16 but for their gateway: cloud metadata (169.254.169.254), node-local DNS. allow sends it to the node's
    /// stack where the address is local there, else out by masquerade; deny drops it (LINK_LOCAL_DENIED)
    #[arg(long, value_enum, default_value_t = LinkLocalArg::Allow)]
    pub link_local: LinkLocalArg,

    /// Memory of the flow tables, in bytes or with K, M, G. What is pinned keeps its size
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = bytes)]
    pub flow_memory: u64,

    /// Seconds that the address of a removed pod is not given to another
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub address_rest: u64,

    /// Seconds that an attachment without link, or a link without attachment, is left alone before it is removed as garbage
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub garbage_after: u64,

    /// Attach by clsact filters also where the kernel has tcx
    #[arg(long)]
    pub clsact: bool,

    /// What the programs say of single packets, in this log: debug names each first packet that is denied. For a debugging session: such a
    /// packet costs some 120 ns more, and a flood of them fills the log. From this start on, until the next without it
    #[arg(long, value_enum, default_value_t = ProgramLogArg::Off)]
    pub program_log: ProgramLogArg,

    /// Form of the log on stderr; what is logged: RUST_LOG [default: info]
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

const EXAMPLE: &str = "\
A node of two, without an apiserver:

  mount -t bpf bpf /sys/fs/bpf            # if it is not there
  osmia-agent --node a --source folder:/etc/osmia/cluster --cluster-cidr 10.0.0.0/8

with /etc/osmia/cluster/nodes.yaml holding a Node object for each node:

  apiVersion: v1
  kind: Node
  metadata: {name: a}
  spec: {podCIDRs: [10.1.0.0/24]}
  status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}

Namespace, Pod and NetworkPolicy objects lie there too, such as

  apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {namespace: shop, name: default-deny}
  spec: {podSelector: {}, policyTypes: [Ingress, Egress]}

A pod of whose namespace nothing is known is isolated. Is a policy in force here: osmia policy show shop/default-deny. What is made of it:
docs/policy.md.

With an apiserver (a user that may list and watch nodes, namespaces, pods and networkpolicies, and create events):

  osmia-agent --source kube --kubeconfig /etc/osmia/kubeconfig
  osmia-agent --source kube --kubeconfig /etc/osmia/kubeconfig --apiserver https://192.0.2.8:6443,https://192.0.2.9:6443

Either way, let the runtime use a conflist with {\"type\": \"osmia-cni\"}. How it goes: osmia status, and GET /readyz and /metrics at --metrics.
As a service, upgrades, what is red: docs/operations.md. Each flag, and what is changed on the host: docs/configuration.md.";

/// `--encap`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum EncapArg {
    /// As they are.
    Native,
    /// Inside VXLAN.
    Vxlan,
    /// Native inside a subnet, VXLAN across.
    Auto,
}

/// `--link-local`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LinkLocalArg {
    /// To the stack, or out.
    Allow,
    /// Dropped.
    Deny,
}

/// `--program-log`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ProgramLogArg {
    /// Nothing; their counters tell (osmia drop).
    Off,
    /// Each first packet that is denied, with device and reason.
    Debug,
}

/// `--log-format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// A JSON object a line.
    Json,
}

impl Args {
    /// How an apiserver is reached.
    #[must_use]
    pub fn access(&self) -> Access {
        Access { kubeconfig: self.kubeconfig.clone(), servers: self.apiserver.clone() }
    }

    /// The settings that decide rows, checked.
    ///
    /// # Errors
    /// A setting that cannot work, with what to change.
    pub fn settings(&self) -> Result<Settings> {
        let node = match &self.node {
            Some(name) => name.clone(),
            None => rustix::system::uname()
                .nodename()
                .to_str()
                .context("the host name is not UTF-8: set --node")?
                .to_owned(),
        };
        ensure!(!node.is_empty(), "this host has no name: set --node");
        ensure!(
            self.source == SourceSpec::Kube || (self.kubeconfig.is_none() && self.apiserver.is_empty()),
            "--kubeconfig and --apiserver are for --source kube"
        );
        ensure!(self.mark.is_power_of_two(), "--mark {:#x} must be one bit", self.mark);
        ensure!(self.mark & KUBE_PROXY_MARKS == 0, "--mark {:#x} is a bit of kube-proxy's", self.mark);
        ensure!(self.vni < 1 << 24, "--vni {} is larger than 24 bits", self.vni);
        ensure!(self.tunnel_port != 0, "--tunnel-port 0 is no port");
        let (masquerade, nodes) = (self.masquerade_ports, self.node_ports);
        ensure!(
            !meet(masquerade, nodes),
            "--masquerade-ports {}-{} meets --node-ports {}-{}: change one of them",
            masquerade.0,
            masquerade.1,
            nodes.0,
            nodes.1
        );
        Ok(Settings {
            node,
            encap: match self.encap {
                EncapArg::Native => Encap::Native,
                EncapArg::Vxlan => Encap::Vxlan,
                EncapArg::Auto => Encap::Auto,
            },
            cluster_cidrs: self.cluster_cidr.iter().map(IpNet::trunc).collect(),
            service_cidrs: self.service_cidr.iter().map(IpNet::trunc).collect(),
            deny_link_local: self.link_local == LinkLocalArg::Deny,
            mark: self.mark,
            tunnel_port: self.tunnel_port,
            vni: self.vni,
            masquerade_ports: self.masquerade_ports,
            uplinks: self.uplink.clone(),
            flow_memory: self.flow_memory,
        })
    }
}

/// Checks that masquerade and the node's own sockets do not pick the same ports.
///
/// # Errors
/// The ranges meet, or the kernel's cannot be read.
pub fn check_ports(masquerade: (u16, u16), range_file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(range_file).with_context(|| format!("cannot read {}", range_file.display()))?;
    let mut local = text.split_whitespace().map(str::parse::<u16>);
    let (Some(Ok(min)), Some(Ok(max))) = (local.next(), local.next()) else {
        bail!("{} holds no port range: {text:?}", range_file.display());
    };
    ensure!(
        !meet(masquerade, (min, max)),
        "--masquerade-ports {}-{} meets net.ipv4.ip_local_port_range {min}-{max}: change one of them",
        masquerade.0,
        masquerade.1
    );
    Ok(())
}

/// Whether two ranges have a port in common.
fn meet(a: (u16, u16), b: (u16, u16)) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

fn hex(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u32::from_str_radix(digits, 16).map_err(|_| format!("{text:?} is no hexadecimal number of 32 bits"))
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let range = text.split_once('-').and_then(|(min, max)| Some((min.parse().ok()?, max.parse().ok()?)));
    match range {
        Some((min, max)) if 0 < min && min <= max => Ok((min, max)),
        _ => Err(format!("{text:?} is no port range: write MIN-MAX")),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| format!("{text:?} is no number of bytes: write 64M"))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clap::CommandFactory as _;

    use super::*;

    fn args(more: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["osmia-agent", "--node", "a", "--source", "folder:/x"].iter().chain(more))
    }

    #[test]
    fn the_least_is_a_source() {
        let settings = args(&[]).unwrap().settings().unwrap();
        assert_eq!((settings.mark, settings.tunnel_port, settings.vni), (0x100_0000, 4789, 1));
        assert_eq!(
            (settings.masquerade_ports, settings.encap, settings.flow_memory),
            ((61000, 65535), Encap::Auto, 64 << 20)
        );
        assert!(Args::try_parse_from(["osmia-agent"]).unwrap_err().to_string().contains("--source"));
    }

    /// Each flag has a line `| \`--flag VALUE\` | \`default\` |` on its page, and no other flag has one.
    #[test]
    fn the_page_has_every_flag_and_its_default() {
        let page = include_str!("../../docs/configuration.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `--")?.split_once("` | "));
        let told: BTreeMap<&str, &str> = rows.map(|(flag, rest)| (flag, rest.split(" |").next().unwrap())).collect();
        let mut flags = BTreeSet::new();
        for arg in Args::command().get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version")) {
            let takes = arg.get_action().takes_values();
            let value = if takes { format!(" {}", arg.get_value_names().unwrap().join(" ")) } else { String::new() };
            let flag = format!("{}{value}", arg.get_long().unwrap());
            let default = arg.get_default_values().iter().map(|value| value.to_str().unwrap()).next();
            if let (Some(default), true) = (default, takes) {
                assert_eq!(told.get(flag.as_str()), Some(&format!("`{default}`").as_str()), "default of --{flag}");
            }
            flags.insert(flag);
        }
        assert_eq!(told.into_keys().collect::<Vec<_>>(), flags.iter().collect::<Vec<_>>());
    }

    #[test]
    fn lists_are_repeated_or_separated_by_commas() {
        let more =
            ["--cluster-cidr", "10.0.0.1/8,fd00::/16", "--cluster-cidr", "172.16.0.0/12", "--uplink", "eth0,eth1"];
        let settings = args(&more).unwrap().settings().unwrap();
        assert_eq!(settings.cluster_cidrs.len(), 3);
        assert_eq!(settings.cluster_cidrs[0].to_string(), "10.0.0.0/8");
        assert_eq!(settings.uplinks, ["eth0", "eth1"]);
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_flag() {
        for (more, flag) in [
            (["--mark", "0x3"], "--mark"),
            (["--mark", "0x4000"], "--mark"),
            (["--vni", "16777216"], "--vni"),
            (["--tunnel-port", "0"], "--tunnel-port"),
            (["--masquerade-ports", "32767-40000"], "--node-ports 30000-32767"),
            (["--node-ports", "60000-61000"], "--masquerade-ports 61000-65535"),
            (["--kubeconfig", "/x"], "--source kube"),
        ] {
            let error = args(&more).unwrap().settings().unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
        for more in
            [["--mark", "xyz"], ["--masquerade-ports", "5-1"], ["--flow-memory", "many"], ["--apiserver", "10.0.0.1"]]
        {
            assert!(args(&more).unwrap_err().to_string().contains(more[0]), "{more:?}");
        }
    }

    #[test]
    fn port_ranges_must_not_meet() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("range");
        std::fs::write(&file, "32768\t60999\n").unwrap();
        assert!(check_ports((61000, 65535), &file).is_ok());
        for meets in [(60999, 65535), (1, 65535), (40000, 41000)] {
            assert!(check_ports(meets, &file).unwrap_err().to_string().contains("ip_local_port_range"));
        }
    }

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!((bytes("7"), bytes("2K"), bytes("64M"), bytes("1g")), (Ok(7), Ok(2048), Ok(64 << 20), Ok(1 << 30)));
        assert!(bytes("").is_err() && bytes("M").is_err() && bytes("99999999999G").is_err());
    }
}
