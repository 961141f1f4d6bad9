//! CHECK: the kernel's links, addresses, routes and neighbours against prevResult and the agent's record; the agent looks at programs
//! and map rows.
//!
//! prevResult is the *final* result of the chain (K3): where a later plugin may have changed something (MAC and MTU by `tuning`, more
//! routes, routes in another table by `sbr`), what it lists counts, not what ADD once made.

use std::time::{Duration, Instant};

use super::add::{enter, open};
use super::{Context, host_netlink};
use crate::client::{Agent, AgentError};
use crate::link::namespace::kernel_has_ipv6;
use crate::link::read::{self, Link};
use crate::link::{Netlink, NetlinkError, gateway};
use crate::protocol::{Answer, Assignment, Failure, Request};
use crate::spec::error::code;
use crate::spec::{Attach, CniResult, Interface, Mac, Version};

/// Longest wait for an agent that restarts: CRI-O sends CHECK right after every ADD, and a failure ends the pod.
const WAIT: Duration = Duration::from_secs(10);
/// Longest call.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs CHECK.
///
/// # Errors
/// Code 1 for an old configuration, 7 without a usable prevResult, 11 without an agent, [`code::DIFFERS`] with every difference.
pub fn check(context: &Context, attach: &Attach) -> Result<(), Failure> {
    context.document.at_least(Version::V0_4_0, "CHECK")?;
    let previous = context.document.prev_result().ok_or_else(|| {
        Failure::new(code::CONFIG, "CHECK without prevResult: the runtime must pass the result of the ADD")
    })?;
    let previous = CniResult::from_json(previous).map_err(|e| {
        Failure::new(code::CONFIG, format!("prevResult is {e}: the runtime must pass the result of the ADD"))
    })?;
    let namespace = open(&attach.netns)?;
    let mut host = host_netlink()?;
    let mut pod = enter(&namespace, &attach.netns)?;

    let answer = Agent::connect(&context.config.socket, Instant::now() + WAIT, context.deadline(LIMIT))
        .and_then(|mut agent| agent.ask(&Request::Check { key: attach.key.clone() }, None))
        .map_err(|e| e.into_failure("CHECK"))?;
    let assignment = match answer {
        Answer::Attachment(assignment) => assignment,
        Answer::Failed(failure) => return Err(failure),
        other => return Err(AgentError::unexpected(&other).into_failure("CHECK")),
    };
    let mut check = Check { attach, previous: &previous, assignment: &assignment, differences: Vec::new() };
    check.links(&mut host, &mut pod).map_err(|e| Failure::new(code::IO, format!("CHECK of {}: {e}", attach.key)))?;
    if check.differences.is_empty() {
        return Ok(());
    }
    let message = format!("{} in {} is not as it was made: {}", attach.key, attach.netns, check.differences.join("; "));
    Err(Failure::new(code::DIFFERS, message).with_details("delete the pod so that it is made anew"))
}

struct Check<'a> {
    attach: &'a Attach,
    previous: &'a CniResult,
    assignment: &'a Assignment,
    differences: Vec<String>,
}

impl Check<'_> {
    fn differs(&mut self, what: impl Into<String>) {
        self.differences.push(what.into());
    }

    fn links(&mut self, host: &mut Netlink, pod: &mut Netlink) -> Result<(), NetlinkError> {
        let ipv6 = kernel_has_ipv6();
        let ifname = self.attach.key.ifname();
        let host_name = self.assignment.host_link.as_str();
        let listed = self.previous.in_sandbox(ifname);
        if listed.is_none() {
            self.differs(format!("prevResult lists no {ifname} with a sandbox"));
        }
        if let Some(sandbox) = listed.map(|i| &i.sandbox).filter(|s| **s != self.attach.netns) {
            self.differs(format!("prevResult has {ifname} in {sandbox}"));
        }
        let host_link = read::link(host, host_name)?;
        match &host_link {
            None => self.differs(format!("{host_name} on the node is gone")),
            Some(link) => self.host_end(link),
        }
        let Some(link) = read::link(pod, ifname)? else {
            self.differs(format!("{ifname} is gone"));
            return Ok(());
        };
        if let Some(host_link) = host_link
            && (host_link.peer, link.peer) != (Some(link.index), Some(host_link.index))
        {
            self.differs(format!("{ifname} and {host_name} are no pair"));
        }
        self.pod_end(&link, listed);
        self.addresses(pod, &link, ipv6)?;
        self.routes(pod, ipv6)?;
        self.neighbours(pod, &link, listed, ipv6)
    }

    /// Nobody but us may change the host's end.
    fn host_end(&mut self, link: &Link) {
        let name = &self.assignment.host_link;
        if !link.up {
            self.differs(format!("{name} is down"));
        }
        if link.mtu != self.assignment.mtu {
            self.differs(format!("{name} has MTU {}, not {}", link.mtu, self.assignment.mtu));
        }
        if link.mac != self.assignment.gateway_mac.parse().ok() {
            let is = link.mac.map_or_else(|| "no MAC".into(), |m| format!("MAC {m}"));
            self.differs(format!("{name} has {is}, not {}", self.assignment.gateway_mac));
        }
    }

    fn pod_end(&mut self, link: &Link, listed: Option<&Interface>) {
        let ifname = self.attach.key.ifname();
        if !link.up {
            self.differs(format!("{ifname} is down"));
        }
        if let Some(expected) = listed.map(|i| &i.mac).filter(|m| !m.is_empty())
            && link.mac != expected.parse::<Mac>().ok()
        {
            let is = link.mac.map_or_else(|| "no MAC".into(), |m| format!("MAC {m}"));
            self.differs(format!("{ifname} has {is}, not {expected}"));
        }
        match listed.and_then(|i| i.mtu) {
            Some(expected) if link.mtu != expected => {
                self.differs(format!("{ifname} has MTU {}, not {expected}", link.mtu));
            }
            // Layouts before 1.1.0 do not list it. A later plugin may have lowered it; a larger one loses packets.
            None if link.mtu > self.assignment.mtu => {
                self.differs(format!("{ifname} has MTU {}, more than {}", link.mtu, self.assignment.mtu));
            }
            _ => {}
        }
    }

    fn addresses(&mut self, pod: &mut Netlink, link: &Link, ipv6: bool) -> Result<(), NetlinkError> {
        let ifname = self.attach.key.ifname();
        let there = read::addresses(pod, link.index)?;
        // An address without an index belongs to CNI_IFNAME, as portmap and containerd read it.
        let listed = self.previous.in_sandbox(ifname).into_iter().flat_map(|i| &i.addresses);
        let expected: Vec<_> = listed.chain(&self.previous.unattached).map(|a| a.address).collect();
        for address in &expected {
            match there.iter().find(|t| t.address == *address) {
                None => self.differs(format!("{ifname} lacks the address {address}")),
                Some(found) if !found.usable => self.differs(format!("{address} of {ifname} is not usable")),
                Some(_) => {}
            }
        }
        for address in self.assignment.addresses.iter().filter(|a| a.is_ipv4() || ipv6) {
            if !expected.iter().any(|e| e.addr() == *address) {
                self.differs(format!("osmia-agent has {address} for it, prevResult has not"));
            }
        }
        Ok(())
    }

    fn routes(&mut self, pod: &mut Netlink, ipv6: bool) -> Result<(), NetlinkError> {
        let there = read::routes(pod, ipv6)?;
        for route in &self.previous.routes {
            let found = there.iter().any(|t| t.dst == route.dst.trunc() && (route.gw.is_none() || t.gw == route.gw));
            if !found {
                let via = route.gw.map_or_else(String::new, |g| format!(" via {g}"));
                self.differs(format!("the route to {}{via} is gone", route.dst));
            }
        }
        // ADD makes it and no result lists it.
        let v4 = self.assignment.addresses.iter().any(|a| a.is_ipv4());
        if v4 && !there.iter().any(|t| t.dst.addr() == gateway::V4 && t.gw.is_none()) {
            self.differs(format!("the route to the gateway {} is gone", gateway::V4));
        }
        Ok(())
    }

    /// The gateway as a permanent neighbour; no result lists it. A plugin that changes the MAC makes the kernel forget all neighbours
    /// (neighbour.c, neigh_changeaddr), and then the dataplane answers for the gateway.
    fn neighbours(
        &mut self,
        pod: &mut Netlink,
        link: &Link,
        listed: Option<&Interface>,
        ipv6: bool,
    ) -> Result<(), NetlinkError> {
        let there = read::permanent_neighbours(pod, link.index)?;
        let gateway_mac = self.assignment.gateway_mac.parse::<Mac>().ok();
        let same_mac = listed.is_some_and(|i| i.mac.eq_ignore_ascii_case(&self.assignment.pod_mac));
        for address in self.assignment.addresses.iter().filter(|a| a.is_ipv4() || ipv6) {
            let gateway = gateway::of(*address);
            match there.iter().find(|(ip, _)| *ip == gateway) {
                Some((_, mac)) if Some(*mac) == gateway_mac => {}
                Some((_, mac)) => self.differs(format!("the neighbour {gateway} has MAC {mac}")),
                None if same_mac => self.differs(format!("the permanent neighbour {gateway} is gone")),
                None => {}
            }
        }
        Ok(())
    }
}
