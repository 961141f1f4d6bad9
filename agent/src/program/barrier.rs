//! Waiting until no packet is under way that read a map before.

use std::{sync::Once, thread, time::Duration};

use rustix::thread::{MembarrierCommand, membarrier};

/// How long packets under way are given where the kernel has no barrier.
const INSTEAD: Duration = Duration::from_millis(100);

/// Returns when every packet is done that was in a program when this was called. Blocks for an RCU grace period, some 4 to 28 ms; calls at the
/// same time share one.
pub fn barrier() {
    static SAID: Once = Once::new();
    if let Err(error) = membarrier(MembarrierCommand::Global) {
        SAID.call_once(|| {
            tracing::warn!(%error, "no barrier here (nohz_full?): packets under way are given {INSTEAD:?} instead");
        });
        thread::sleep(INSTEAD);
    }
}
