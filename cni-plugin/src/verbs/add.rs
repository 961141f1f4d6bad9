//! ADD: the agent reserves, the plugin builds, the agent commits, and only then the result is printed.
//!
//! Invariant: on every failure the plugin removes the link that it made and closes the connection, by which the agent undoes the
//! reservation. Nothing stays behind that a DEL would need the namespace for.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use serde_json::Value;

use super::{Context, host_netlink};
use crate::client::{Agent, AgentError};
use crate::link::namespace::{NamespaceError, kernel_has_ipv6};
use crate::link::{BuildError, Namespace, Netlink, NetlinkError, Plan, build, gateway, read, remove};
use crate::protocol::{Answer, Assignment, AttachmentKey, Failure, Request, host_link_name};
use crate::run::warn;
use crate::spec::error::code;
use crate::spec::result::{Address, Route};
use crate::spec::wishes::Wishes;
use crate::spec::{Args, Attach, CniResult, Interface, Mac};

/// Longest call, the wait for an agent that restarts included.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest wait for the link of an earlier call with the same key: a DEL is answered before its link is gone.
const LEFTOVER: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(5);

/// Runs ADD; gives the result document.
///
/// # Errors
/// Code 11 where another attempt may succeed; see [`code`] for the others.
pub fn add(context: &Context, attach: &Attach) -> Result<Value, Failure> {
    if context.document.prev_result().is_some() {
        let message = "prevResult on ADD: another plugin made the interface already";
        let advice = "osmia-cni must be the first plugin of the list; chain others behind it";
        return Err(Failure::new(code::CONFIG, message).with_details(advice));
    }
    let args = Args::parse(&attach.args)?;
    let wishes = Wishes::read(&context.document, &args)?;
    for warning in &wishes.warnings {
        warn(warning);
    }
    let namespace = open(&attach.netns)?;
    let mut host = host_netlink()?;
    let mut pod = enter(&namespace, &attach.netns)?;
    let deadline = context.deadline(LIMIT);
    let mut agent = Agent::connect(&context.config.socket, deadline, deadline).map_err(|e| e.into_failure("ADD"))?;
    await_free(&attach.key, &mut host, &mut pod, deadline).map_err(|e| in_words(&e, attach))?;

    let reserve = Request::Reserve {
        key: attach.key.clone(),
        network: context.config.name.clone(),
        netns: attach.netns.clone(),
        pod: args.pod,
        started_ns: context.started_ns,
        deadline_ms: u64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(0),
        config: wishes.for_agent(),
    };
    let assignment = match agent.ask(&reserve, Some(namespace.as_fd())) {
        Ok(Answer::Reserved(assignment)) => assignment,
        Ok(Answer::Failed(failure)) => return Err(failure),
        Ok(other) => return Err(AgentError::unexpected(&other).into_failure("ADD: reserving")),
        Err(error) => return Err(error.into_failure("ADD: reserving")),
    };
    let plan = plan(&assignment, &wishes, &attach.key)?;
    let host_ifindex = build(&plan, &mut host, &mut pod, &namespace).map_err(|e| in_words(&e, attach))?;

    let pod_mac = plan.pod_mac.to_string();
    let commit = Request::Commit { key: attach.key.clone(), pod_mac, host_ifindex };
    let failure = match agent.ask(&commit, None) {
        Ok(Answer::Done) => return Ok(result(&plan, attach, wishes).to_json(context.document.version)),
        Ok(Answer::Failed(failure)) => failure,
        Ok(other) => AgentError::unexpected(&other).into_failure("ADD: committing"),
        Err(error) => error.into_failure("ADD: committing"),
    };
    if let Err(error) = remove::by_host_name(&mut host, &plan.host_link) {
        warn(&format!("{error}; osmia-agent removes {} when it undoes the reservation", plan.host_link));
    }
    Err(failure)
}

/// The pod's namespace.
pub(super) fn open(netns: &str) -> Result<Namespace, Failure> {
    Namespace::open(netns).map_err(|error| match error {
        NamespaceError::Own => {
            let message = format!("CNI_NETNS {netns:?} is the node's own namespace: nothing was touched");
            Failure::new(code::OWN_NAMESPACE, message).with_details("a pod of the host network needs no plugin")
        }
        other => Failure::new(code::ENVIRONMENT, format!("CNI_NETNS {netns:?} {other}"))
            .with_details("the container is gone, or the runtime passed a wrong path"),
    })
}

/// A socket in the pod's namespace. The process moves there with it: a thread for it alone would take longer than all that is built
/// there, and nothing that comes later is of the node's network but the socket that its caller opened before.
pub(super) fn enter(namespace: &Namespace, netns: &str) -> Result<Netlink, Failure> {
    namespace.enter().and_then(|()| Netlink::open()).map_err(|e| {
        Failure::new(code::ENVIRONMENT, format!("CNI_NETNS {netns:?} cannot be entered: {e}"))
            .with_details("it must be a network namespace, and the runtime must run as root")
    })
}

/// The interface must not be there (A2). One of an earlier call with the same key may be on its way out: podman's reload sends DEL
/// and ADD for one namespace, and a killed ADD is undone by the agent.
fn await_free(key: &AttachmentKey, host: &mut Netlink, pod: &mut Netlink, deadline: Instant) -> Result<(), BuildError> {
    let patience = deadline.min(Instant::now() + LEFTOVER);
    let host_link = host_link_name(key);
    while read::link(pod, key.ifname())?.is_some() {
        // Host end first: if it is gone and the pod's end is there *afterwards*, that one was never ours.
        let leftover = read::link(host, &host_link)?.is_some();
        if read::link(pod, key.ifname())?.is_some() && (!leftover || Instant::now() >= patience) {
            return Err(BuildError::Exists);
        }
        thread::sleep(POLL);
    }
    Ok(())
}

fn in_words(error: &BuildError, attach: &Attach) -> Failure {
    let (ifname, netns) = (attach.key.ifname(), &attach.netns);
    match error {
        BuildError::Exists => {
            let message = format!("CNI_IFNAME {ifname} exists already in {netns}");
            let advice = "a container gets an interface once: run DEL for it first, or choose another name";
            Failure::new(code::EXISTS, message).with_details(advice)
        }
        BuildError::Kernel(NetlinkError::Refused { .. }) | BuildError::Namespace(_) => {
            Failure::new(code::LINK, format!("building {ifname} in {netns}: {error}"))
                .with_details("the node's kernel refused; nothing was left behind")
        }
        BuildError::Kernel(_) => Failure::new(code::LINK, format!("building {ifname} in {netns}: {error}"))
            .with_details("nothing was left behind; the runtime may try again"),
    }
}

/// What to build from what the agent assigned.
fn plan(assignment: &Assignment, wishes: &Wishes, key: &AttachmentKey) -> Result<Plan, Failure> {
    let unfit = |what: &str| AgentError::Unexpected(format!("with {what}")).into_failure("ADD: reserving");
    if assignment.host_link != host_link_name(key) {
        return Err(unfit("another name for the host's link"));
    }
    let mac = |text: &str| text.parse::<Mac>().map_err(|e| unfit(&e.to_string()));
    if let Some(missing) = wishes.addresses.iter().find(|w| !assignment.addresses.contains(w)) {
        let message = format!("ips {missing} is not supported: osmia-agent assigned {:?}", assignment.addresses);
        let advice = "leave the address to osmia-agent, or ask for a free one of the node's range";
        return Err(Failure::new(code::UNSUPPORTED_FIELD, message).with_details(advice));
    }
    let ipv6 = kernel_has_ipv6();
    let mut addresses = assignment.addresses.clone();
    if !ipv6 && addresses.iter().any(IpAddr::is_ipv6) {
        warn("the kernel has no IPv6: the pod gets its IPv4 address only");
        addresses.retain(IpAddr::is_ipv4);
    }
    if addresses.is_empty() {
        return Err(unfit("no address that this kernel can use"));
    }
    if addresses.iter().filter(|a| a.is_ipv4()).count() > 1 || addresses.iter().filter(|a| a.is_ipv6()).count() > 1 {
        return Err(unfit("more than one address of a family"));
    }
    Ok(Plan {
        host_link: assignment.host_link.clone(),
        ifname: key.ifname().to_owned(),
        mtu: assignment.mtu,
        gateway_mac: mac(&assignment.gateway_mac)?,
        pod_mac: wishes.mac.map_or_else(|| mac(&assignment.pod_mac), Ok)?,
        addresses,
        ipv6,
    })
}

/// Everything that was created: host's end first, as the chained plugins expect it.
fn result(plan: &Plan, attach: &Attach, wishes: Wishes) -> CniResult {
    let end = |name: &str, mac: Mac| Interface {
        name: name.to_owned(),
        mac: mac.to_string(),
        mtu: Some(plan.mtu),
        ..Interface::default()
    };
    let mut pod = end(&plan.ifname, plan.pod_mac);
    pod.sandbox.clone_from(&attach.netns);
    let gateway = |a: &IpAddr| Some(gateway::of(*a));
    pod.addresses = plan.addresses.iter().map(|a| Address { address: IpNet::from(*a), gateway: gateway(a) }).collect();
    CniResult {
        interfaces: vec![end(&plan.host_link, plan.gateway_mac), pod],
        unattached: Vec::new(),
        routes: plan.addresses.iter().map(|a| Route::via(gateway::everything(*a), gateway::of(*a))).collect(),
        dns: wishes.dns,
    }
}
