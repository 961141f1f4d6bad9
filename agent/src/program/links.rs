//! Programs on hooks. From 6.6 on a tcx link a hook, pinned; below it a filter of a clsact qdisc, which lives as long as its device.
//!
//! Invariant: a hook that has our program never loses it: replacing is one kernel call, and where the kind changes the wanted one is there
//! before the other goes. For that moment both run: the filter sees what the link hands on (`TCX_NEXT`), which our programs neither change
//! nor count, so the second look says what the first said. A pin whose device is gone is of no use, since an ifindex may come again: what
//! the link says decides, not the pin's name.

mod netlink;
mod tcx;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use aya::{Ebpf, programs::tc::TcAttachType, util::KernelVersion};
use osmia_maps::{
    Pins,
    layout::{
        Config,
        programs::{self, Attached},
    },
};
use tracing::{debug, info};

use super::{AttachError, Expedited, OpenError, load, migrate::reached};

/// How programs are attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Attaching {
    /// tcx where the kernel has it (6.6).
    #[default]
    Auto,
    /// Filters of a clsact qdisc also where the kernel has tcx.
    Clsact,
}

/// A program at a device's ingress or egress.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Place {
    pub(super) program: &'static str,
    pub(super) ingress: bool,
    pub(super) ifindex: u32,
}

impl Place {
    fn new(program: Attached, ifindex: u32) -> Self {
        Self { program: program.name, ingress: program.ingress, ifindex }
    }

    /// Whether it is a hook of a pod's link.
    pub(super) fn of_pod(self) -> bool {
        [programs::FROM_POD.name, programs::TO_POD.name].contains(&self.program)
    }

    fn direction(self) -> TcAttachType {
        if self.ingress { TcAttachType::Ingress } else { TcAttachType::Egress }
    }

    fn failed(self, what: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AttachError {
        AttachError::Call { what, program: self.program.to_owned(), ifindex: self.ifindex, source: source.into() }
    }

    fn gone(self) -> AttachError {
        AttachError::Gone { program: self.program, ifindex: self.ifindex }
    }
}

/// The hooks of a pod's host-side link.
pub(super) fn endpoint(ifindex: u32) -> [Place; 2] {
    [programs::FROM_POD, programs::TO_POD].map(|program| Place::new(program, ifindex))
}

/// The hooks of uplinks, door and tunnel device; what is not there yet is left out.
pub(super) fn underlay(config: &Config, uplinks: impl IntoIterator<Item = u32>) -> BTreeSet<Place> {
    let of_uplink = |ifindex| [programs::FROM_UPLINK, programs::TO_UPLINK].map(|program| Place::new(program, ifindex));
    let mut places: BTreeSet<Place> = uplinks.into_iter().flat_map(of_uplink).collect();
    let single = [
        (programs::TO_DOOR, config.door_host),
        (programs::FROM_DOOR, config.door_pods),
        (programs::FROM_TUNNEL_DEVICE, config.tunnel_dev),
    ];
    places.extend(single.into_iter().filter(|&(_, i)| i != 0).map(|(program, ifindex)| Place::new(program, ifindex)));
    places
}

/// The links of one set of pins.
pub(super) struct Links {
    pins: Pins,
    tcx: bool,
}

impl Links {
    pub(super) fn new(pins: Pins, attaching: Attaching) -> Self {
        let has_tcx = KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0));
        if !has_tcx {
            info!("this kernel has no tcx (6.6): programs are attached as clsact filters");
        }
        Self { pins, tcx: has_tcx && attaching == Attaching::Auto }
    }

    /// Whether tcx links are wanted.
    pub(super) fn tcx(&self) -> bool {
        self.tcx
    }

    /// Puts the new programs on every hook that has one of ours, be it a pinned link or, where `attached` says one may be, a filter; then
    /// every hook has the kind that is wanted. Says how many hooks had one.
    ///
    /// All are replaced before the first changes its kind: whatever is left where a start is cut short runs the new programs.
    pub(super) fn adopt(&self, ebpf: &mut Ebpf, attached: &BTreeSet<Place>) -> Result<usize, OpenError> {
        self.collect()?;
        let mut replaced = 0;
        let mut other_kind = Vec::new();
        for &place in self.pinned()?.union(attached) {
            let program = load::program(ebpf, place.program)?;
            let link = tcx::replace(program, place, &self.pin(place))?;
            let filter = netlink::replace(program, place)?;
            replaced += usize::from(link || filter);
            let other = if self.tcx { filter } else { link };
            if other {
                other_kind.push(place);
            }
        }
        for place in &other_kind {
            self.change_kind(ebpf, *place);
        }
        Ok(replaced)
    }

    /// From the kind that is not wanted to the one that is. A hook that refuses keeps what it has: its programs are the new ones.
    fn change_kind(&self, ebpf: &mut Ebpf, place: Place) {
        let changed =
            self.attach(ebpf, place).and_then(|()| if self.tcx { netlink::detach(place) } else { self.unpin(place) });
        let Place { program, ifindex, .. } = place;
        match changed {
            Ok(()) => info!(program, ifindex, tcx = self.tcx, "attached in the other way"),
            Err(AttachError::Gone { .. }) => debug!(program, ifindex, "device gone"),
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::from(error));
                tracing::error!(
                    program,
                    ifindex,
                    tcx = self.tcx,
                    error,
                    "stays attached as before; the next start tries again"
                );
            }
        }
    }

    /// Puts our program on each uplink in front of the one of another folder's link, which stays until [`Self::let_go`]: the answer to a
    /// masqueraded flow is known only to the set that opened it, and each hands on what it does not know.
    pub(super) fn double_uplinks(&self, ebpf: &mut Ebpf, from: &Pins) -> Result<(), OpenError> {
        let from = Self { pins: from.clone(), tcx: self.tcx };
        // What a start left that was cut short between detaching and removing.
        self.collect()?;
        from.collect()?;
        if !self.tcx {
            return Ok(());
        }
        let _short = Expedited::begin();
        for place in from.pinned()?.into_iter().filter(|place| place.program == programs::FROM_UPLINK.name) {
            if tcx::runs(place, &self.pin(place))?.is_none() {
                let program = load::program(ebpf, place.program)?;
                match tcx::attach_before(program, place, &self.pin(place), &from.pin(place)) {
                    Ok(()) | Err(AttachError::Gone { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Puts the new programs on every other link pinned in another folder, and moves the pins into ours. Says how many. Cut short between the
    /// two, a link of that folder runs our program already: the next start finds it there all the same.
    pub(super) fn take_over(&self, ebpf: &mut Ebpf, from: &Pins) -> Result<usize, OpenError> {
        let from = Self { pins: from.clone(), tcx: self.tcx };
        let mut moved = 0;
        for place in from.pinned()? {
            let (old, new) = (from.pin(place), self.pin(place));
            if tcx::runs(place, &new)?.is_some() {
                continue;
            }
            if !tcx::replace(load::program(ebpf, place.program)?, place, &old)? {
                // Its device is gone.
                remove(&old)?;
                continue;
            }
            reached("link-replaced");
            fs::rename(&old, &new).map_err(|source| AttachError::Folder { what: "moving", path: old, source })?;
            reached(place.program);
            moved += 1;
        }
        Ok(moved)
    }

    /// Removes the links of another folder beside which we have our own.
    pub(super) fn let_go(&self, from: &Pins) -> Result<(), OpenError> {
        let from = Self { pins: from.clone(), tcx: self.tcx };
        let _short = Expedited::begin();
        for place in from.pinned()? {
            if tcx::runs(place, &self.pin(place))?.is_some() {
                // The jump table goes next: no packet may be in the program then.
                tcx::detach(place, &from.pin(place))?;
                from.unpin(place)?;
            }
        }
        from.collect()?;
        Ok(())
    }

    /// Puts a program on a hook, or replaces what is there of ours. Nothing changes where it is there already.
    pub(super) fn attach(&self, ebpf: &mut Ebpf, place: Place) -> Result<(), AttachError> {
        let program = load::program(ebpf, place.program).map_err(|e| place.failed("finding", e))?;
        let pin = self.pin(place);
        if self.tcx {
            if tcx::replace(program, place, &pin)? {
                return Ok(());
            }
            let _short = Expedited::begin();
            tcx::attach(program, place, &pin)?;
        } else {
            if netlink::replace(program, place)? {
                return Ok(());
            }
            netlink::attach(program, place)?;
        }
        debug!(program = place.program, ifindex = place.ifindex, "attached");
        Ok(())
    }

    /// Takes a program off a hook, whichever way it is attached; nothing to do where it is not there.
    pub(super) fn detach(&self, place: Place) -> Result<(), AttachError> {
        self.unpin(place)?;
        netlink::detach(place)
    }

    /// Number of the program that a hook runs of ours, whichever way it is attached; `None` where there is none.
    pub(super) fn runs(&self, place: Place) -> Result<Option<u32>, AttachError> {
        let link = tcx::runs(place, &self.pin(place))?;
        if link.is_some() { Ok(link) } else { netlink::runs(place) }
    }

    fn pin(&self, place: Place) -> PathBuf {
        self.pins.link(place.program, place.ifindex)
    }

    /// The kernel detaches a link when its last reference goes.
    fn unpin(&self, place: Place) -> Result<(), AttachError> {
        remove(&self.pin(place))
    }

    /// Every hook with a pinned link.
    pub(super) fn pinned(&self) -> Result<BTreeSet<Place>, AttachError> {
        let folder = self.pins.links();
        let failed = |source| AttachError::Folder { what: "listing", path: folder.clone(), source };
        let mut places = BTreeSet::new();
        let entries = match fs::read_dir(&folder) {
            // A folder of another layout that is being removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(places),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let Some((program, ifindex)) = name.to_str().and_then(Pins::link_of) else { continue };
            let ours = programs::ATTACHED.into_iter().find(|hook| hook.name == program);
            places.extend(ours.map(|program| Place::new(program, ifindex)));
        }
        Ok(places)
    }

    /// Removes pins whose device is gone; says how many.
    pub(super) fn collect(&self) -> Result<usize, AttachError> {
        let mut removed = 0;
        for place in self.pinned()? {
            let pin = self.pin(place);
            if tcx::runs(place, &pin)?.is_none() {
                remove(&pin)?;
                debug!(program = place.program, ifindex = place.ifindex, "device gone, pin removed");
                removed += 1;
            }
        }
        Ok(removed)
    }
}

fn remove(pin: &Path) -> Result<(), AttachError> {
    match fs::remove_file(pin) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(AttachError::Folder { what: "removing", path: pin.to_owned(), source })
        }
        _ => Ok(()),
    }
}
