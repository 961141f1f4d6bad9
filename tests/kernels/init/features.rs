//! Kernel features that the object is told about before it is loaded.
//!
//! The verifier refuses a helper that the kernel lacks even on a branch that is never taken, but it never walks a branch behind a
//! frozen constant that is 0. So the object declares one `Global<u32>` a feature, 0 by default, and the loader sets to 1 those that
//! this kernel has.

use anyhow::{Context, Result};
use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported};

/// A constant of the object and the helper whose presence it stands for, in classifier programs.
const HELPERS: [(&str, BpfHelper); 3] = [
    // 5.11; without it jiffies.
    ("HAVE_COARSE_CLOCK", BpfHelper::BPF_FUNC_ktime_get_coarse_ns),
    // 5.12
    ("HAVE_CHECK_MTU", BpfHelper::BPF_FUNC_check_mtu),
    // 5.18
    ("HAVE_SET_TSTAMP", BpfHelper::BPF_FUNC_skb_set_tstamp),
];

/// Every known constant with its value on this kernel. To be set with `override_global(name, &value, false)`: an object need not
/// declare them all.
pub(crate) fn features() -> Result<Vec<(&'static str, u32)>> {
    HELPERS
        .into_iter()
        .map(|(name, helper)| {
            let have = is_helper_supported(ProgramType::SchedClassifier, helper)
                .with_context(|| format!("ask the kernel for what {name} stands for"))?;
            Ok((name, u32::from(have)))
        })
        .collect()
}
