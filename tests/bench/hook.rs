//! A program at a pod's link as the agent attached it, run on packets by test-run: with the agent's constants, maps and rows.
//!
//! A test-run takes the device from its context, so that a packet is of the pod whose link that is. What the program asks for (redirect,
//! drop) is not done.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use osmia_lab::packet::{Ip, frame};
use osmia_lab::{Node, Pod, Space};
use osmia_maps::layout::{Addr, programs};
use osmia_maps::{Access, Pins, tables};

use crate::{cpu, sys};

/// `TC_ACT_SHOT`, linux/pkt_cls.h.
pub(crate) const DROPPED: u32 = 2;
/// `TC_ACT_REDIRECT`.
pub(crate) const REDIRECTED: u32 = 7;

/// The program that a pod's packets meet first.
pub(crate) struct Hook {
    space: Space,
    program: OwnedFd,
    ifindex: u32,
    /// The gateway's and the pod's.
    macs: ([u8; 6], [u8; 6]),
    /// The pod's.
    addresses: ([u8; 4], [u8; 16]),
    /// Of IPv4 and of IPv6.
    ends: (Ip, Ip),
    /// Where the node's maps are, inside its mounts.
    pub(crate) pins: Pins,
}

impl Hook {
    /// That of `pod`, for packets to `peer`.
    pub(crate) fn of(node: &Node, pod: &Pod, peer: &Pod) -> Result<Self> {
        let pins = Pins::new(&node.paths.bpffs);
        let address = Addr::v4(pod.v4.context("a pod without IPv4 address")?.octets());
        let (row, config, program) = node.space.run(|| {
            let slot = tables::ENDPOINT_ADDR.open(&pins, Access::ReadOnly)?.get(&address)?;
            let slot = slot.context("the node has no endpoint with the pod's address")?;
            let row = tables::ENDPOINTS.open(&pins, Access::ReadOnly)?.get(&slot)?.context("no row of the endpoint")?;
            let config = tables::CONFIG.open(&pins, Access::ReadOnly)?.get(&0)?.context("no configuration")?;
            let program = sys::program_of_link(&pins.link(programs::FROM_POD.name, row.ifindex))?;
            Ok::<_, anyhow::Error>((row, config, program))
        })??;
        Ok(Self {
            space: node.space.try_clone()?,
            program,
            ifindex: row.ifindex,
            macs: (config.gateway_mac, row.mac),
            addresses: (row.v4, row.v6),
            ends: (
                Ip::new(pod.address(false)?, peer.address(false)?),
                Ip::new(pod.address(true)?, peer.address(true)?),
            ),
            pins,
        })
    }

    /// Source and destination of its packets.
    pub(crate) const fn ends(&self, v6: bool) -> Ip {
        if v6 { self.ends.1 } else { self.ends.0 }
    }

    /// Its pod's IPv4 address.
    pub(crate) const fn v4(&self) -> [u8; 4] {
        self.addresses.0
    }

    /// Its pod's IPv6 address.
    pub(crate) const fn v6(&self) -> [u8; 16] {
        self.addresses.1
    }

    /// An IP packet as the pod sends it.
    pub(crate) fn frame(&self, packet: &[u8]) -> Vec<u8> {
        let (gateway, pod) = self.macs;
        frame(gateway, pod, packet)
    }

    /// Runs it once.
    pub(crate) fn run(&self, frame: &[u8], expected: u32) -> Result<()> {
        self.time(frame, expected, 1).map(drop)
    }

    /// Runs it; gives the CPU time of a run, ns.
    pub(crate) fn time(&self, frame: &[u8], expected: u32, repeat: u32) -> Result<f64> {
        self.time_of(self.program.as_fd(), frame, expected, repeat)
    }

    /// As [`Self::time`], of another program in the same place.
    pub(crate) fn time_of(&self, program: BorrowedFd<'_>, frame: &[u8], expected: u32, repeat: u32) -> Result<f64> {
        self.inside(|| {
            cpu::settle(cpu::Cpu::Main)?;
            let before = cpu::of_this_thread();
            let returned = sys::test_run(program, self.ifindex, frame, repeat)?;
            let took: Duration = cpu::of_this_thread() - before;
            ensure!(
                returned == expected,
                "a program returned {returned}, not {expected}: it did not do what is measured"
            );
            Ok(took.as_nanos() as f64 / f64::from(repeat))
        })
    }

    /// Does something on the node.
    pub(crate) fn inside<T: Send>(&self, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.space.run(f)?
    }
}
