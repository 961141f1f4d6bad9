//! Short grace periods while programs go on or off a device.
//!
//! Each time a device's tcx programs change, or the device goes, the kernel waits for an RCU grace period (`tcx_entry_sync`,
//! kernel/bpf/tcx.c) and holds the rtnl lock meanwhile: 14 ms a hook here, so 50 pods took 1.4 s to attach and 1.5 s to go, in which no other
//! device could be made. Everywhere else under that lock the kernel expedites (`synchronize_net`, net/core/dev.c); the switch for all
//! grace periods, `/sys/kernel/rcu_expedited`, does the same for tcx: 0.1 ms a hook. It is on only while an [`Expedited`] lives.
//!
//! Invariant: a switch that we turned on is turned off, also after kill -9: a folder among the pins says that it is ours, and
//! [`prepare`] looks for it at start.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use osmia_maps::Pins;
use tracing::{info, warn};

const SWITCH: &str = "/sys/kernel/rcu_expedited";

static HOLDERS: Mutex<Holders> = Mutex::new(Holders::new());

/// Who wants short grace periods.
struct Holders {
    count: usize,
    /// Where the mark is put. `None`: no dataplane is open, and the switch is left alone.
    mark: Option<PathBuf>,
    /// We turned the switch on.
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

/// Turns off what a killed agent left on, and lets the switch be used from now on.
pub(super) fn prepare(pins: &Pins) -> io::Result<()> {
    let mark = pins.folder().join("expedited");
    repair(Path::new(SWITCH), &mark)?;
    HOLDERS.lock().unwrap_or_else(PoisonError::into_inner).mark = Some(mark);
    Ok(())
}

fn repair(switch: &Path, mark: &Path) -> io::Result<()> {
    if mark.exists() {
        turn_off(switch, mark)?;
        info!("{SWITCH} turned off: an agent was killed while it was on");
    }
    Ok(())
}

impl Holders {
    const fn new() -> Self {
        Self { count: 0, mark: None, ours: false, said: false }
    }

    fn enter(&mut self, switch: &Path) {
        self.count += 1;
        if self.count > 1 {
            return;
        }
        let Some(mark) = &self.mark else { return };
        match turn_on(switch, mark) {
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
        let Some(mark) = &self.mark else { return };
        if let Err(error) = turn_off(switch, mark) {
            warn!("{SWITCH} could not be turned off: {error}");
        }
    }
}

/// The mark comes first and goes last. False where the switch is on without us.
fn turn_on(switch: &Path, mark: &Path) -> io::Result<bool> {
    if fs::read_to_string(switch)?.trim() != "0" {
        return Ok(false);
    }
    match fs::create_dir(mark) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match fs::write(switch, "1") {
        Ok(()) => Ok(true),
        Err(error) => {
            fs::remove_dir(mark)?;
            Err(error)
        }
    }
}

fn turn_off(switch: &Path, mark: &Path) -> io::Result<()> {
    fs::write(switch, "0")?;
    fs::remove_dir(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A switch that stands at `state`, and where its mark would be.
    fn switch(state: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (switch, mark) = (folder.path().join("switch"), folder.path().join("mark"));
        fs::write(&switch, state).unwrap();
        (folder, switch, mark)
    }

    fn state(switch: &Path) -> String {
        fs::read_to_string(switch).unwrap()
    }

    #[test]
    fn the_last_holder_turns_it_off() {
        let (_folder, switch, mark) = switch("0\n");
        let mut holders = Holders { mark: Some(mark.clone()), ..Holders::new() };
        holders.enter(&switch);
        holders.enter(&switch);
        holders.leave(&switch);
        assert!(state(&switch) == "1" && mark.exists());
        holders.leave(&switch);
        assert!(state(&switch) == "0" && !mark.exists());
    }

    #[test]
    fn what_an_operator_turned_on_stays_on() {
        let (_folder, switch, mark) = switch("1\n");
        let mut holders = Holders { mark: Some(mark.clone()), ..Holders::new() };
        holders.enter(&switch);
        holders.leave(&switch);
        repair(&switch, &mark).unwrap();
        assert_eq!(state(&switch), "1\n");
    }

    #[test]
    fn what_a_killed_agent_left_on_is_turned_off() {
        let (_folder, switch, mark) = switch("0\n");
        Holders { mark: Some(mark.clone()), ..Holders::new() }.enter(&switch);
        assert_eq!(state(&switch), "1");
        repair(&switch, &mark).unwrap();
        assert!(state(&switch) == "0" && !mark.exists());
    }

    #[test]
    fn without_the_switch_all_goes_on() {
        let (_folder, switch, mark) = switch("0");
        fs::remove_file(&switch).unwrap();
        let mut holders = Holders { mark: Some(mark.clone()), ..Holders::new() };
        holders.enter(&switch);
        holders.leave(&switch);
        assert!(!mark.exists());
    }
}
