//! The programs behind the jump table: the slow way in stages, each a program of its own.
//!
//! A stage starts from what the one before left in the scratch, so each is verified by itself, has 512 bytes of stack of its own, and stays
//! far below the million instructions that 5.10 walks; as functions of one program they did not (a static function is walked again for each
//! state it is called in).

use super::slow::{Run, Scratch};
use super::tables::Tables;
use super::{Packet, Verdict, door, pod, uplink};
use crate::layout::programs::JUMPS;
use crate::layout::{Config, FlowKey4, FlowKey6};

/// A program of the jump table. Values are rows ([`crate::layout::programs::JUMPS`]).
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Headers of what a pod sends: IPv4 and all that is no IP.
    Pod4 = 0,
    /// Headers of what a pod sends: IPv6.
    Pod6 = 1,
    /// Headers of what came to an uplink as it is.
    Uplink4 = 2,
    /// Headers of what came to an uplink as it is.
    Uplink6 = 3,
    /// Headers of what came out of our tunnel.
    Tunnel4 = 4,
    /// Headers of what came out of our tunnel.
    Tunnel6 = 5,
    /// Headers of what the stack sends out of an uplink.
    Out4 = 6,
    /// Headers of what the stack sends out of an uplink.
    Out6 = 7,
    /// Headers of what comes out of the stack at `osmia1`.
    Door4 = 8,
    /// Headers of what comes out of the stack at `osmia1`.
    Door6 = 9,
    /// The fast program of what came out of our tunnel.
    Inner4 = 10,
    /// The fast program of what came out of our tunnel.
    Inner6 = 11,
    /// Lookup and state.
    Entry4 = 12,
    /// Lookup and state.
    Entry6 = 13,
    /// The decision on a flow, of either family.
    Decide = 14,
    /// Both entries written.
    Open4 = 15,
    /// Both entries written.
    Open6 = 16,
    /// A masquerade address and port, then both entries written.
    Masquerade4 = 17,
    /// A masquerade address and port, then both entries written.
    Masquerade6 = 18,
    /// Into the established table.
    Promote4 = 19,
    /// Into the established table.
    Promote6 = 20,
    /// Rewrites and the way out.
    Leave4 = 21,
    /// Rewrites and the way out.
    Leave6 = 22,
    /// An answer to what is too large or has used up its hops.
    Refuse4 = 23,
    /// An answer to what is too large or has used up its hops.
    Refuse6 = 24,
    /// ICMP errors.
    Related4 = 25,
    /// ICMP errors.
    Related6 = 26,
}

impl Stage {
    /// All of them, by row.
    pub const ALL: [Self; 27] = [
        Self::Pod4,
        Self::Pod6,
        Self::Uplink4,
        Self::Uplink6,
        Self::Tunnel4,
        Self::Tunnel6,
        Self::Out4,
        Self::Out6,
        Self::Door4,
        Self::Door6,
        Self::Inner4,
        Self::Inner6,
        Self::Entry4,
        Self::Entry6,
        Self::Decide,
        Self::Open4,
        Self::Open6,
        Self::Masquerade4,
        Self::Masquerade6,
        Self::Promote4,
        Self::Promote6,
        Self::Leave4,
        Self::Leave6,
        Self::Refuse4,
        Self::Refuse6,
        Self::Related4,
        Self::Related6,
    ];
}

const _: () = {
    let mut row = 0;
    while row < Stage::ALL.len() {
        assert!(Stage::ALL[row] as usize == row);
        row += 1;
    }
    assert!(Stage::ALL.len() == JUMPS.len());
};

/// Runs one stage; for tests, and the one list of what each row is.
#[inline(always)]
pub fn run<P: Packet, T: Tables>(
    stage: Stage,
    packet: &mut P,
    tables: &T,
    config: &Config,
    scratch: &mut Scratch,
    now: u32,
) -> Verdict {
    let run = &mut Run { packet, tables, config, scratch, now };
    match stage {
        Stage::Pod4 => pod::slow4(run),
        Stage::Pod6 => pod::slow6(run),
        Stage::Uplink4 => uplink::slow::<FlowKey4, P, T>(run),
        Stage::Uplink6 => uplink::slow::<FlowKey6, P, T>(run),
        Stage::Tunnel4 => uplink::slow_tunnel::<FlowKey4, P, T>(run),
        Stage::Tunnel6 => uplink::slow_tunnel::<FlowKey6, P, T>(run),
        Stage::Out4 => uplink::slow_out::<FlowKey4, P, T>(run),
        Stage::Out6 => uplink::slow_out::<FlowKey6, P, T>(run),
        Stage::Door4 => door::slow::<FlowKey4, P, T>(run),
        Stage::Door6 => door::slow::<FlowKey6, P, T>(run),
        Stage::Inner4 => uplink::inner::<FlowKey4, P, T>(run),
        Stage::Inner6 => uplink::inner::<FlowKey6, P, T>(run),
        Stage::Entry4 => run.entry::<FlowKey4>(),
        Stage::Entry6 => run.entry::<FlowKey6>(),
        Stage::Decide => run.decide(),
        Stage::Open4 => run.open::<FlowKey4>(),
        Stage::Open6 => run.open::<FlowKey6>(),
        Stage::Masquerade4 => run.masquerade::<FlowKey4>(),
        Stage::Masquerade6 => run.masquerade::<FlowKey6>(),
        Stage::Promote4 => run.promote::<FlowKey4>(),
        Stage::Promote6 => run.promote::<FlowKey6>(),
        Stage::Leave4 => run.leave::<FlowKey4>(),
        Stage::Leave6 => run.leave::<FlowKey6>(),
        Stage::Refuse4 => run.refuse::<FlowKey4>(),
        Stage::Refuse6 => run.refuse::<FlowKey6>(),
        Stage::Related4 => run.related::<FlowKey4>(),
        Stage::Related6 => run.related::<FlowKey6>(),
    }
}
