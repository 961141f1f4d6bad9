//! How many rows the policy maps have, counted as they are written: whoever asks walks no map.
//!
//! Invariant: right after each write that succeeded. One that failed leaves the number of before, until the maps are read again.

use crate::{
    compile::policy::{Change, Pinned, Policies},
    serve::metrics::PolicyRows,
};

/// The maps were read.
pub(super) fn found(pinned: &Pinned) -> PolicyRows {
    PolicyRows { peers: pinned.peers.len(), blocks: pinned.blocks.len(), verdicts: pinned.verdicts.len() }
}

/// A change was written that brought the maps to `policies`. Verdict rows never take the place of others; addresses and ranges may.
pub(super) fn wrote(rows: &mut PolicyRows, change: &Change, policies: &Policies) {
    rows.verdicts += change.verdicts.len();
    (rows.peers, rows.blocks) = policies.pointers();
}

/// So many verdict rows are gone.
pub(super) fn buried(rows: &mut PolicyRows, gone: usize) {
    rows.verdicts = rows.verdicts.saturating_sub(gone);
}
