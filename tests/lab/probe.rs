//! Does a packet arrive, whole, and as from whom? Decided by who receives it, never by who sends.
//!
//! Every probe has a receiver in the destination's namespace that records the peer's address and checks every byte, and a way back that
//! is checked by the sender as a receiver of its own.

mod icmp;
mod payload;
mod tcp;
mod udp;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;

use crate::space::Space;

/// Protocol of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proto {
    /// One connection, 256 KiB there, a digest back.
    Tcp,
    /// Datagrams of several sizes, each echoed.
    Udp,
    /// Echo requests, answered by the receiver's kernel.
    Icmp,
}

impl Proto {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Icmp];

    /// Lower case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
        }
    }
}

/// A probe: from a namespace to an address that lies in another.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// Protocol.
    pub proto: Proto,
    /// Who sends.
    pub from: &'a Space,
    /// Who receives.
    pub to: &'a Space,
    /// Where it is sent to.
    pub destination: IpAddr,
    /// How long the receiver waits for all of it. One that must see nothing waits this long.
    pub patience: Duration,
}

/// What the receivers saw.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arrival {
    /// Peers the destination saw.
    pub peers: BTreeSet<IpAddr>,
    /// Units that reached the destination: datagrams, echo requests, connections.
    pub count: usize,
    /// Units sent.
    pub sent: usize,
    /// Whether all that came was as it was sent.
    pub whole: bool,
    /// Units whose answer came back whole.
    pub returned: usize,
    /// What the sender's socket said, for the message.
    pub note: Option<String>,
}

impl Probe<'_> {
    /// Sends and receives.
    ///
    /// # Errors
    /// A socket could not be made: the lab's fault, not the network's.
    pub fn run(&self) -> Result<Arrival> {
        match self.proto {
            Proto::Tcp => tcp::run(self),
            Proto::Udp => udp::run(self),
            Proto::Icmp => icmp::run(self),
        }
    }
}

impl Arrival {
    /// Whether everything came, whole, from `peer` alone, and went back; otherwise what was seen instead.
    ///
    /// # Errors
    /// A line that says what is wrong.
    pub fn complete(&self, peer: IpAddr) -> Result<(), String> {
        let note = self.note.as_ref().map(|n| format!(" ({n})")).unwrap_or_default();
        if self.count == 0 {
            return Err(format!("nothing arrived{note}"));
        }
        if self.peers.len() != 1 || !self.peers.contains(&peer) {
            return Err(format!("arrived as from {:?}, not {peer}{note}", self.peers));
        }
        if !self.whole {
            return Err(format!("the payload was damaged{note}"));
        }
        if self.count != self.sent {
            return Err(format!("{} of {} arrived{note}", self.count, self.sent));
        }
        if self.returned != self.sent {
            return Err(format!("arrived, but {} of {} answers came back{note}", self.returned, self.sent));
        }
        Ok(())
    }

    /// Whether not a single unit arrived as from `peer`.
    #[must_use]
    pub fn nothing_from(&self, peer: IpAddr) -> bool {
        self.count == 0 || !self.peers.contains(&peer)
    }
}
