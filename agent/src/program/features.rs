//! What kernels differ in, in one place: the global that tells the programs, how it is found out, and what is lost without it.
//!
//! What a program can learn by itself while it runs (an EINVAL that it meets once, such as for `BPF_F_ADJ_ROOM_DECAP_L3_*`) is not here.
//! A global that stays 0 is frozen rodata: the verifier never walks the branch behind it, so one object serves every kernel.

use osmia_maps::layout::programs;
use tracing::{debug, warn};

/// How a feature is found out: a program that is test-run and returns 1 where the kernel has it. Where it does not even load, the kernel
/// has not.
pub(super) struct Known {
    /// The global, a `u32`.
    pub(super) global: &'static str,
    /// The program that asks the kernel.
    pub(super) probe: &'static str,
    /// What is done without it.
    without: &'static str,
}

/// All of them.
pub(super) const KNOWN: &[Known] = &[Known {
    global: "HAVE_CSUM_IPV6",
    probe: programs::HAS_CSUM_IPV6,
    without: "IPv6 rewrites leave BPF_F_IPV6 out of l4_csum_replace",
}];

/// A feature of this kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feature {
    /// The global that tells the programs.
    pub name: &'static str,
    /// Whether this kernel has it.
    pub present: bool,
    /// What is done where it has not.
    pub without: &'static str,
}

impl Known {
    pub(super) fn found(&self, present: bool) -> Feature {
        Feature { name: self.global, present, without: self.without }
    }
}

/// Says each fall-back once, at start.
pub(super) fn log(features: &[Feature]) {
    for Feature { name, present, without } in features {
        if *present {
            debug!(feature = name, "kernel has it");
        } else {
            warn!(feature = name, "this kernel lacks it: {without}");
        }
    }
}
