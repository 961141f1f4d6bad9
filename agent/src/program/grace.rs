//! Short grace periods while programs go on or off a device.
//!
//! Each time a device's tcx programs change, or the device goes, the kernel waits for an RCU grace period (`tcx_entry_sync`,
//! kernel/bpf/tcx.c) and holds the rtnl lock meanwhile: 14 ms a hook here, so 50 pods took 1.4 s to attach and 1.5 s to go, in which no other
//! device could be made. Everywhere else under that lock the kernel expedites (`synchronize_net`, net/core/dev.c); the switch for all
//! grace periods, `/sys/kernel/rcu_expedited`, does the same for tcx: 0.1 ms a hook. It is on only while an [`Expedited`] lives.
//!
//! Invariant: a switch that we turned on is turned off, also after kill -9, and one that somebody else turned on stays on: the switch is
//! a number, and ours is [`OURS`]. Whoever finds it (this agent at its next start or pod, or another node's agent on the same kernel)
//! turns it off; where that hits a living holder, its pod waits as it would have without.

use std::{
    fs, io,
    path::Path,
    sync::{Mutex, PoisonError},
};

use tracing::{info, warn};

const SWITCH: &str = "/sys/kernel/rcu_expedited";
/// Any number but 0 is on; this one is "osm".
const OURS: &str = "7304045";

static HOLDERS: Mutex<Holders> = Mutex::new(Holders::new());

/// Who wants short grace periods.
struct Holders {
    count: usize,
    /// The switch is on by us.
    ours: bool,
    /// It was said that the switch cannot be used.
    said: bool,
}

/// Grace periods are short while one of these lives. Where the switch cannot be written all works as well, only later.
#[derive(Debug)]
#[must_use = "grace periods are long again when this is dropped"]
pub struct Expedited(());

impl Expedited {
    /// Turns the switch on, unless it is on already.
    pub fn begin() -> Self {
        HOLDERS.lock().unwrap_or_else(PoisonError::into_inner).enter(Path::new(SWITCH));
        Self(())
    }
}

impl Drop for Expedited {
    fn drop(&mut self) {
        HOLDERS.lock().unwrap_or_else(PoisonError::into_inner).leave(Path::new(SWITCH));
    }
}

/// Turns off what a killed agent left on. Where there is no such switch nobody turned it on.
pub(super) fn repair() {
    match repair_at(Path::new(SWITCH)) {
        Ok(true) => info!("{SWITCH} turned off: an agent was killed while it was on"),
        Ok(false) => {}
        Err(error) => warn!("cannot tell whether an agent left {SWITCH} on: {error}"),
    }
}

fn repair_at(switch: &Path) -> io::Result<bool> {
    match fs::read_to_string(switch) {
        Ok(state) if state.trim() == OURS => fs::write(switch, "0").map(|()| true),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(false),
    }
}

impl Holders {
    const fn new() -> Self {
        Self { count: 0, ours: false, said: false }
    }

    fn enter(&mut self, switch: &Path) {
        self.count += 1;
        if self.count > 1 {
            return;
        }
        match turn_on(switch) {
            Ok(turned) => self.ours = turned,
            Err(error) if !self.said => {
                warn!("{SWITCH} cannot be used ({error}): ADD and DEL of each pod wait some 30 ms for the kernel");
                self.said = true;
            }
            Err(_) => {}
        }
    }

    fn leave(&mut self, switch: &Path) {
        self.count -= 1;
        if self.count > 0 || !self.ours {
            return;
        }
        self.ours = false;
        if let Err(error) = fs::write(switch, "0") {
            warn!("{SWITCH} could not be turned off: {error}");
        }
    }
}

/// False where the switch is on without us.
fn turn_on(switch: &Path) -> io::Result<bool> {
    match fs::read_to_string(switch)?.trim() {
        "0" => fs::write(switch, OURS).map(|()| true),
        // Left on, or another node's on this kernel: ours to turn off, too.
        OURS => Ok(true),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(state: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), state).unwrap();
        file
    }

    fn state(switch: &tempfile::NamedTempFile) -> String {
        fs::read_to_string(switch.path()).unwrap()
    }

    #[test]
    fn the_last_holder_turns_it_off() {
        let switch = switch("0\n");
        let mut holders = Holders::new();
        holders.enter(switch.path());
        holders.enter(switch.path());
        holders.leave(switch.path());
        assert_eq!(state(&switch), OURS);
        holders.leave(switch.path());
        assert_eq!(state(&switch), "0");
    }

    #[test]
    fn what_an_operator_turned_on_stays_on() {
        let switch = switch("1\n");
        let mut holders = Holders::new();
        holders.enter(switch.path());
        holders.leave(switch.path());
        assert!(!repair_at(switch.path()).unwrap());
        assert_eq!(state(&switch), "1\n");
    }

    #[test]
    fn what_a_killed_agent_left_on_is_turned_off_at_start_or_at_the_next_pod() {
        let switch = switch("0\n");
        Holders::new().enter(switch.path());
        assert!(repair_at(switch.path()).unwrap());
        assert_eq!(state(&switch), "0");

        Holders::new().enter(switch.path());
        let mut next = Holders::new();
        next.enter(switch.path());
        next.leave(switch.path());
        assert_eq!(state(&switch), "0");
    }

    #[test]
    fn without_the_switch_all_goes_on() {
        let missing = Path::new("/nonexistent/switch");
        let mut holders = Holders::new();
        holders.enter(missing);
        holders.leave(missing);
        assert!(!repair_at(missing).unwrap());
    }
}
